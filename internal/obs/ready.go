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
	checks map[string]func(context.Context) error
	log    *slog.Logger
	was    atomic.Bool
}

// report is the body of /readyz.
type report struct {
	Ready   bool              `json:"ready"`
	Failing map[string]string `json:"failing,omitempty"` // error texts by the name of the check
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	failing := r.failing(req.Context())
	ready := len(failing) == 0
	if req.Context().Err() == nil && r.was.Swap(ready) != ready { // a prober that hung up has seen nothing
		r.log.Info("readiness changed", "ready", ready, "failing", failing)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(report{Ready: ready, Failing: failing})
}

// failing runs the checks side by side. One that has not answered in time has failed.
func (r *readiness) failing(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	failing := make(map[string]string)
	answers := make(chan answer, len(r.checks)) // room for all: late ones go nowhere
	for name, check := range r.checks {
		failing[name] = fmt.Sprintf("no answer within %v", checkTimeout)
		go func() { answers <- answer{name, ask(ctx, check)} }()
	}
	for range r.checks {
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
