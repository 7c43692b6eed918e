package api

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// pagePatience is how long a reader may take for one page of an export, which as a whole
// may take as long as it likes.
const pagePatience = 30 * time.Second

const ndjson = "application/x-ndjson"

type exportInput struct {
	Type  uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since string `query:"since" format:"date-time" doc:"Nothing before it. In a query a + is written as %2B."`
	Until string `query:"until" format:"date-time" doc:"Nothing after it."`
}

// exports registers the export, which is no value but a stream.
func (a *api) exports(h huma.API) {
	op := operation(http.MethodGet, "/v1/export", "All of a user's history, newest first, a record in each line", nil)
	op.Description = "What changes meanwhile may be missing. An answer that is cut off is not whole."
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		ndjson: {Schema: &huma.Schema{Ref: "#/components/schemas/Record"}},
	}}}
	a.metrics.route(op.Method + " " + op.Path)
	huma.Register(h, op, func(ctx context.Context, in *exportInput) (*huma.StreamResponse, error) {
		body, err := a.export(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, err)
		}
		return &huma.StreamResponse{Body: body}, nil
	})
}

// export reads the first page before it answers: until then an error can be said.
func (a *api) export(ctx context.Context, in *exportInput) (func(huma.Context), error) {
	req, err := listRequest(ctx, in.Type, in.Since, in.Until)
	if err != nil {
		return nil, err
	}
	req.Limit = pageSize
	first, err := a.page(ctx, req)
	if err != nil {
		return nil, err
	}
	return func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		w.Header().Set("Content-Type", ndjson)
		w.Header().Set("Content-Disposition", `attachment; filename="history.ndjson"`)
		if err := sendPages(w, first, a.rest(ctx, req, first)); err != nil {
			a.cfg.Logger.WarnContext(ctx, "export cut off", "err", err, "request_id", requestID(ctx))
			panic(http.ErrAbortHandler)
		}
	}, nil
}

// rest are the pages after the first one.
func (a *api) rest(ctx context.Context, req *historyv1.ListRequest, first *historyv1.ListResponse) iter.Seq2[[]*historyv1.Item, error] {
	if !first.HasMore {
		return func(func([]*historyv1.Item, error) bool) {}
	}
	req.Cursor = first.Cursor
	return a.pages(ctx, req)
}

func sendPages(w http.ResponseWriter, first *historyv1.ListResponse, rest iter.Seq2[[]*historyv1.Item, error]) error {
	if err := sendLines(w, first.Items); err != nil {
		return err
	}
	for items, err := range rest {
		if err == nil {
			err = sendLines(w, items)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sendLines(w http.ResponseWriter, items []*historyv1.Item) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, it := range items {
		if err := lines.Encode(codec.NewRecord(it)); err != nil {
			return err
		}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(pagePatience)) // a writer without deadlines needs none
	if _, err := w.Write(text.Bytes()); err != nil {
		return err
	}
	return rc.Flush()
}
