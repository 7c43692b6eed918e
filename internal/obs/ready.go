package obs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// checkTimeout lies under the second that a Kubernetes probe waits by default.
const checkTimeout = 900 * time.Millisecond

type readiness struct {
	checks, degraded map[string]func(context.Context) error
	log              *slog.Logger
	was              atomic.Bool
}

// report is the body of /readyz.
type report struct {
	Ready   bool              `json:"ready"`
	Failing map[string]string `json:"failing,omitempty"` // error texts by the name of the check
	// Degraded is the same of what the process goes on without.
	Degraded map[string]string `json:"degraded,omitempty"`
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), checkTimeout)
	defer cancel()
	bad := failing(ctx, r.checks)
	degraded := failing(ctx, r.degraded)
	ready := len(bad) == 0
	if req.Context().Err() == nil && r.was.Swap(ready) != ready { // a prober that hung up has seen nothing
		r.log.Info("readiness changed", "ready", ready, "failing", bad)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report{Ready: ready, Failing: bad, Degraded: degraded})
}

// failing runs the checks side by side. One that has not answered in time has failed.
func failing(ctx context.Context, checks map[string]func(context.Context) error) map[string]string {
	failing := make(map[string]string)
	answers := make(chan answer, len(checks)) // room for all: late ones go nowhere
	for name, check := range checks {
		failing[name] = fmt.Sprintf("no answer within %v", checkTimeout)
		go func() { answers <- answer{name, ask(ctx, check)} }()
	}
	for range checks {
		select {
		case a := <-answers:
			delete(failing, a.name)
			if a.err != nil {
				failing[a.name] = a.err.Error()
			}
		case <-ctx.Done():
			return failing
		}
	}
	return failing
}

type answer struct {
	name string
	err  error
}

// ask keeps a check that panics from ending the process.
func ask(ctx context.Context, check func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return check(ctx)
}
