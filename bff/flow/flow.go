// Package flow serves the page /flow: a stream of the process's metrics, once a second, and of the viewer's own
// records. It is idle without viewers.
package flow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Config configures the page. Metrics is required; other zero values take the defaults.
type Config struct {
	Metrics prometheus.Gatherer
	// Inside returns figures from the stores, without user data, for all viewers. Viewer returns a user's data
	// in the stores. Both results become JSON; both are nil in a standalone edge.
	Inside func(context.Context) (any, error)
	Viewer func(ctx context.Context, uid string) (any, error)
	// Faults are the components that any viewer may stop, by name. Only the demo has them.
	Faults map[string]*Fault
	// While is called when the first viewer comes. It returns once its context ends, when the last one leaves.
	While func(context.Context)
	// Every is the period of the stream (default 1 s). Max limits concurrent viewers (default 16).
	Every  time.Duration
	Max    int
	Logger *slog.Logger
}

// Fault stops and resumes a component. It is safe for concurrent use. The zero value is a running component.
type Fault struct {
	mu      sync.Mutex
	stopped bool
	changed chan struct{} // closed when stopped changes; nil without a waiter
}

// Stopped reports whether the component must pause.
func (f *Fault) Stopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// Await waits until the component's state equals stopped, or ctx is done.
func (f *Fault) Await(ctx context.Context, stopped bool) {
	for {
		f.mu.Lock()
		if f.stopped == stopped {
			f.mu.Unlock()
			return
		}
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// set stops or resumes the component and reports whether that is a change.
func (f *Fault) set(stopped bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.stopped
	f.stopped = stopped
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
	return was != stopped
}

// Flow streams to the viewers. It is safe for concurrent use.
type Flow struct {
	cfg   Config
	began int64         // start, Unix milliseconds; tells processes apart
	wake  chan struct{} // capacity 1; a viewer joined
	over  chan struct{} // closed when Run ends

	mu      sync.Mutex
	lookers map[chan []byte]struct{} // each of capacity 1: a slow viewer misses events
}

// New returns a flow. It sends nothing before Run.
func New(cfg Config) *Flow {
	cfg.Every = cmp.Or(cfg.Every, time.Second)
	cfg.Max = cmp.Or(cfg.Max, 16)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Flow{cfg: cfg, began: time.Now().UnixMilli(), wake: make(chan struct{}, 1), over: make(chan struct{}), lookers: make(map[chan []byte]struct{})}
}

// Operation answers a request of the token's user, or returns an error before the response.
type Operation = func(w http.ResponseWriter, r *http.Request, uid string) error

// Operations returns the page's endpoints by pattern.
func (f *Flow) Operations() map[string]Operation {
	all := map[string]Operation{"GET /flow/stream": f.stream}
	if len(f.cfg.Faults) > 0 {
		all["PUT /flow/faults/{part}"] = f.fault
	}
	return all
}

// Run serves the viewers until ctx is done, and then ends their streams. It may be called once.
func (f *Flow) Run(ctx context.Context) error {
	defer close(f.over)
	for {
		select {
		case <-f.wake:
			f.watched(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// watched sends totals while there are viewers.
func (f *Flow) watched(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer end()
	if f.cfg.While != nil {
		beside.Go(func() { f.cfg.While(ctx) })
	}
	t := time.NewTicker(f.cfg.Every)
	defer t.Stop()
	for f.looking() > 0 {
		f.tell(f.totals(ctx))
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Flow) looking() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lookers)
}

func (f *Flow) tell(totals []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for looker := range f.lookers {
		select {
		case looker <- totals:
		default:
		}
	}
}

// totals is the payload broadcast to every viewer.
type totals struct {
	At    int64 `json:"at"`    // Unix milliseconds
	Began int64 `json:"began"` // start of the process and its counters
	// Metrics are sums over all labels, by name.
	Metrics map[string]float64 `json:"metrics"`
	Inside  any                `json:"inside,omitempty"`
	// Faults reports which components are stopped.
	Faults map[string]bool `json:"faults,omitempty"`
}

func (f *Flow) totals(ctx context.Context) []byte {
	now := totals{At: time.Now().UnixMilli(), Began: f.began, Metrics: f.metrics(ctx)}
	if f.cfg.Inside != nil {
		inside, err := f.cfg.Inside(ctx)
		f.complain(ctx, err)
		now.Inside = inside
	}
	for part, fault := range f.cfg.Faults {
		if now.Faults == nil {
			now.Faults = make(map[string]bool)
		}
		now.Faults[part] = fault.Stopped()
	}
	return f.event(ctx, "totals", now)
}

// shown are the metrics that the page needs. Their labels never identify a user.
var shown = map[string]bool{
	"playhead_ws_connections":                   true,
	"playhead_ws_heartbeats_total":              true,
	"playhead_api_heartbeats_total":             true,
	"playhead_uplink_batches_total":             true,
	"playhead_uplink_batched_heartbeats_total":  true,
	"playhead_uplink_instances":                 true,
	"playhead_write_heartbeats_total":           true,
	"playhead_aggregate_announced_keys_total":   true,
	"playhead_aggregate_failed_publishes_total": true,
	"playhead_job_messages_total":               true,
	"playhead_job_puts_total":                   true,
	"playhead_job_retries_total":                true,
}

func (f *Flow) metrics(ctx context.Context) map[string]float64 {
	families, err := f.cfg.Metrics.Gather() // partial results come with an error
	f.complain(ctx, err)
	sums := make(map[string]float64, len(shown))
	for _, family := range families {
		if shown[family.GetName()] {
			sums[family.GetName()] = sum(family)
		}
	}
	return sums
}

func sum(family *dto.MetricFamily) (total float64) {
	for _, m := range family.GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}

// event encodes a server-sent event, nil after an error.
func (f *Flow) event(ctx context.Context, name string, content any) []byte {
	text, err := json.Marshal(content)
	if err != nil {
		f.complain(ctx, err)
		return nil
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, text)
}

func (f *Flow) complain(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		f.cfg.Logger.WarnContext(ctx, "flow data unavailable", "error", err)
	}
}

// stream sends server-sent events: "totals" for everyone, and "viewer" with the user's own records. It ends
// with the request, the token or the process.
func (f *Flow) stream(w http.ResponseWriter, r *http.Request, uid string) error {
	looker, err := f.join()
	if err != nil {
		return err
	}
	defer f.leave(looker)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies
	rc := http.NewResponseController(w)       // errors only mean that the viewer is gone
	_ = rc.SetReadDeadline(time.Time{})       // it would end the request
	for more := f.send(rc, w, nil); more; {
		select {
		case totals := <-looker:
			more = f.send(rc, w, totals, f.viewer(r.Context(), uid))
		case <-r.Context().Done():
			return nil
		case <-f.over:
			return nil
		}
	}
	return nil
}

func (f *Flow) viewer(ctx context.Context, uid string) []byte {
	if f.cfg.Viewer == nil {
		return nil
	}
	records, err := f.cfg.Viewer(ctx, uid)
	if err != nil {
		f.complain(ctx, err)
		return nil
	}
	return f.event(ctx, "viewer", records)
}

const patience = 5 * time.Second

func (f *Flow) send(rc *http.ResponseController, w http.ResponseWriter, events ...[]byte) bool {
	_ = rc.SetWriteDeadline(time.Now().Add(patience))
	_, err := w.Write(bytes.Join(events, nil))
	return err == nil && rc.Flush() == nil
}

func (f *Flow) join() (chan []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lookers) >= f.cfg.Max {
		return nil, fmt.Errorf("%w: %d look already", history.ErrUnavailable, f.cfg.Max)
	}
	looker := make(chan []byte, 1)
	f.lookers[looker] = struct{}{}
	run.Wake(f.wake)
	return looker, nil
}

func (f *Flow) leave(looker chan []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.lookers, looker)
}

func (f *Flow) fault(w http.ResponseWriter, r *http.Request, _ string) error {
	part := r.PathValue("part")
	fault := f.cfg.Faults[part]
	if fault == nil {
		return history.Invalid("path.part", "there is no such part")
	}
	var body struct {
		Stopped *bool `json:"stopped"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body); err != nil || body.Stopped == nil {
		return history.Invalid("body", `want {"stopped":true} or {"stopped":false}`)
	}
	if fault.set(*body.Stopped) {
		f.cfg.Logger.InfoContext(r.Context(), "component stopped or resumed", "part", part, "stopped", *body.Stopped)
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(body)
}
