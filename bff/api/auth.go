package api

import (
	"context"
	"fmt"
	"net/url"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
)

type uidKey struct{}

// authenticate finds out who asks. Nothing else in a request says so.
func (a *api) authenticate(ctx huma.Context, next func(huma.Context)) {
	uid, err := a.caller(ctx.Header("Authorization"))
	if err != nil {
		_, w := humago.Unwrap(ctx)
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	next(huma.WithValue(ctx, uidKey{}, uid))
}

func (a *api) caller(authorization string) (string, error) {
	text, err := token.Bearer(authorization)
	if err != nil {
		return "", err
	}
	uid, _, err := a.cfg.Tokens.Verify(text)
	return uid, err
}

func uidOf(ctx context.Context) string { return ctx.Value(uidKey{}).(string) }

// checkURL refuses a query that could be read in two ways. A parameter without a
// value counts as absent further on, and where one bounds what is deleted, absent
// means everything.
func (a *api) checkURL(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if err := checkQuery(r.URL.RawQuery); err != nil {
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	next(ctx)
}

func checkQuery(raw string) error {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return history.Invalid("query", "malformed")
	}
	for name, v := range values {
		if len(v) != 1 || v[0] == "" || !utf8.ValidString(name+v[0]) {
			return history.Invalid(fmt.Sprintf("query.%.64s", name), "want one value")
		}
	}
	return nil
}
