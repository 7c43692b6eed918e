package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/audit"
)

// audited are the operations that are logged each time. Those for another user are, too.
var audited = map[string]bool{
	"deleteObject": true, "deleteObjects": true, "clearHistory": true, "exportHistory": true, "importHistory": true,
}

type auditKey struct{}

// audit runs an operation, which counts into its entry of the audit log.
func (a *api) audit(ctx huma.Context, caller token.Token, next func(huma.Context)) {
	uid := uidOf(ctx.Context())
	e := &audit.Entry{
		Action: ctx.Operation().OperationID, By: caller.UID, Scopes: strings.Join(caller.Scopes, " "), UID: uid,
		Request: requestID(ctx.Context()), Err: errors.New("cut off"), // stands if next panics
	}
	if caller.UID == uid {
		e.By, e.Scopes = history.Pseudonym(uid), ""
	}
	defer func() { audit.Log(ctx.Context(), a.cfg.Logger, *e) }()
	next(huma.WithValue(ctx, auditKey{}, e))
	e.Err = nil
	_, w := humago.Unwrap(ctx)
	if r, ok := w.(*recorder); ok && r.status >= http.StatusBadRequest {
		e.Err = errors.New(strings.ToLower(http.StatusText(r.status)))
	}
}

// counts adds objects to the request's entry of the audit log, if it has one.
func counts(ctx context.Context, n int) {
	if e, ok := ctx.Value(auditKey{}).(*audit.Entry); ok {
		e.Count += n
	}
}
