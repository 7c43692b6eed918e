package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
)

type pointInput struct {
	Type uint32 `path:"type" minimum:"1" maximum:"4294967295" format:"int64"`
	ID   string `path:"id" maxLength:"128" pattern:"^[A-Za-z0-9._~@:-]+$"`

	IfNoneMatch string `header:"If-None-Match" doc:"Etags, in quotes, of records that need not be sent again: then the answer is 304."`
}

type deleteInput struct {
	Type uint32 `path:"type" minimum:"1" maximum:"4294967295" format:"int64"`
	ID   string `path:"id" maxLength:"128" pattern:"^[A-Za-z0-9._~@:-]+$"`

	IfMatch string `header:"If-Match" doc:"The etag, in quotes, of the only record that is to be removed: for another one, or none, the answer is 412, but not where it is deleted already: this may be the same call again."`
}

// tag returns the etag that the record must have, 0 for any. There is exactly one that a
// caller can have seen, so that a list is refused, and so is *, the word for any.
func (in *deleteInput) tag() (uint64, error) {
	if in.IfMatch == "" {
		return 0, nil
	}
	text, quoted := unquote(in.IfMatch)
	tag, ok := codec.ParseETag(text)
	if !quoted || !ok {
		return 0, history.Invalid("header.If-Match", "want the etag of a record, in quotes")
	}
	return tag, nil
}

func unquote(s string) (text string, ok bool) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return "", false
	}
	return s[1 : len(s)-1], true
}

// known reports whether the caller has the record already. A cache on the way may have
// made the etag a weak one, which for reading is as good.
func (in *pointInput) known(r *codec.Record) bool {
	for tag := range strings.SplitSeq(in.IfNoneMatch, ",") {
		tag = strings.TrimSpace(tag)
		if text, ok := unquote(strings.TrimPrefix(tag, "W/")); tag == "*" || ok && text == r.ETag {
			return true
		}
	}
	return false
}

type taggedReply struct {
	Status int
	ETag   string `header:"ETag" doc:"That of the record, in quotes."`
	Body   *codec.Record
}

// tagged registers a handler that answers with one record under its etag, and with 304
// when the caller has it.
func tagged(a *api, h huma.API, op huma.Operation, fn func(context.Context, *pointInput) (*codec.Record, error)) {
	a.metrics.route(op.Method + " " + op.Path)
	op.Responses = map[string]*huma.Response{"304": {Description: "The caller has the record already"}, "default": failed()}
	huma.Register(h, op, func(ctx context.Context, in *pointInput) (*taggedReply, error) {
		r, err := fn(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		out := &taggedReply{Status: http.StatusOK, ETag: `"` + r.ETag + `"`, Body: r}
		if in.known(r) {
			out.Status, out.Body = http.StatusNotModified, nil
		}
		return out, nil
	})
}
