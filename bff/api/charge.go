package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/playhead/playhead/bff/limit"
)

// charge takes a request from the user's budget, and says in every answer what is left.
func (a *api) charge(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	budget, err := a.cfg.Limit.Take(uidOf(ctx.Context()), 1)
	announce(w.Header(), budget)
	if err != nil {
		a.problem(ctx.Context(), err).serve(w)
		return
	}
	next(ctx)
}

// spend takes what a request is worth beyond the one that it is: another for each
// hundred entries.
func (a *api) spend(ctx context.Context, entries int) {
	if extra := float64(entries)/100 - 1; extra > 0 {
		a.cfg.Limit.Spend(uidOf(ctx), extra)
	}
}

func announce(h http.Header, b limit.Budget) {
	h.Set("RateLimit-Limit", strconv.Itoa(b.Limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(b.Left))
	h.Set("RateLimit-Reset", seconds(b.Reset))
}

// seconds rounds up: who comes back too early would be refused again.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
