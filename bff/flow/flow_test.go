package flow_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/history"
)

type gathered struct {
	*prometheus.Registry

	mu sync.Mutex
	n  int
}

func (g *gathered) Gather() ([]*dto.MetricFamily, error) {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
	return g.Registry.Gather()
}

func (g *gathered) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

type screen struct {
	mu     sync.Mutex
	header http.Header
	text   bytes.Buffer
}

func (s *screen) Header() http.Header              { return s.header }
func (s *screen) WriteHeader(int)                  {}
func (s *screen) Flush()                           {}
func (s *screen) SetReadDeadline(time.Time) error  { return nil }
func (s *screen) SetWriteDeadline(time.Time) error { return nil }

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

type world struct {
	*flow.Flow
	metrics *gathered
	end     context.CancelFunc
	done    chan error
}

func inBubble(t *testing.T, cfg flow.Config, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		w := &world{metrics: &gathered{Registry: prometheus.NewRegistry()}, end: end, done: make(chan error, 1)}
		cfg.Metrics = w.metrics
		w.Flow = flow.New(cfg)
		go func() { w.done <- w.Run(ctx) }()
		test(t, w)
		end()
		if err := <-w.done; err != nil {
			t.Error(err)
		}
	})
}

// look opens a stream. leave ends it and returns its error.
func (w *world) look(t *testing.T, uid string) (s *screen, leave func() error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	s = &screen{header: make(http.Header)}
	done := make(chan error, 1)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/flow/stream", nil)
	go func() { done <- w.Operations()["GET /flow/stream"](s, r, uid) }()
	synctest.Wait()
	return s, func() error { end(); return <-done }
}

// TestNobodyLooks checks that nothing runs without viewers.
func TestNobodyLooks(t *testing.T) {
	var playing bool
	cfg := flow.Config{While: func(ctx context.Context) {
		playing = true
		<-ctx.Done()
		playing = false
	}}
	inBubble(t, cfg, func(t *testing.T, w *world) {
		for range 2 {
			before := w.metrics.count()
			time.Sleep(time.Hour) // bubble time
			synctest.Wait()
			if n := w.metrics.count(); n != before || playing {
				t.Fatalf("nobody looks: metrics gathered %d times, playing %v", n-before, playing)
			}
			_, first := w.look(t, "ann")
			_, second := w.look(t, "bob")
			time.Sleep(9500 * time.Millisecond) // bubble time
			if n := w.metrics.count() - before; n != 10 || !playing {
				t.Errorf("two look for 9.5 s: metrics gathered %d times, want 10; playing %v", n, playing)
			}
			if err := errors.Join(first(), second()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // bubble time
			synctest.Wait()
		}
	})
}

// TestStream checks that viewers get the same totals, and only their own records.
func TestStream(t *testing.T) {
	cfg := flow.Config{
		Inside: func(context.Context) (any, error) { return map[string]int{"marks": 7}, nil },
		Viewer: func(_ context.Context, uid string) (any, error) { return []string{"record of " + uid}, nil },
		Faults: map[string]*flow.Fault{"job": {}},
	}
	inBubble(t, cfg, func(t *testing.T, w *world) {
		beats := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "playhead_ws_heartbeats_total"}, []string{"status"})
		w.metrics.MustRegister(beats, prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_other_total"}))
		beats.WithLabelValues("stored").Add(3)
		beats.WithLabelValues("unchanged").Add(4)
		ann, leave := w.look(t, "ann")
		bob, leaveToo := w.look(t, "bob")
		time.Sleep(1500 * time.Millisecond)
		if err := errors.Join(leave(), leaveToo()); err != nil {
			t.Error(err)
		}
		const totals = `"metrics":{"playhead_ws_heartbeats_total":7},"inside":{"marks":7},"faults":{"job":false}}` + "\n\n"
		for uid, s := range map[string]*screen{"ann": ann, "bob": bob} {
			text := s.String()
			want := totals + "event: viewer\ndata: [\"record of " + uid + "\"]\n\n"
			if !strings.HasPrefix(text, "event: totals\ndata: {\"at\":") || !strings.Contains(text, want) || strings.Count(text, "record of ") != strings.Count(text, "record of "+uid) {
				t.Errorf("%s is told %q", uid, text)
			}
			if kind := s.header.Get("Content-Type"); kind != "text/event-stream" {
				t.Errorf("the kind is %q", kind)
			}
		}
	})
}

// TestBound checks the limit of viewers, and that one who leaves makes room.
func TestBound(t *testing.T) {
	inBubble(t, flow.Config{Max: 2}, func(t *testing.T, w *world) {
		_, first := w.look(t, "ann")
		_, second := w.look(t, "ann")
		_, third := w.look(t, "ann")
		if err := third(); !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("the third: %v", err)
		}
		if err := first(); err != nil {
			t.Error(err)
		}
		_, fourth := w.look(t, "ann")
		if err := errors.Join(second(), fourth()); err != nil {
			t.Error(err)
		}
	})
}

func TestStop(t *testing.T) {
	inBubble(t, flow.Config{}, func(t *testing.T, w *world) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/flow/stream", nil)
		done := make(chan error, 1)
		go func() { done <- w.Operations()["GET /flow/stream"](&screen{header: make(http.Header)}, r, "ann") }()
		synctest.Wait()
		w.end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFaults(t *testing.T) {
	if n := len(flow.New(flow.Config{}).Operations()); n != 1 {
		t.Errorf("without faults there are %d operations, want the stream alone", n)
	}
	job := new(flow.Fault)
	f := flow.New(flow.Config{Faults: map[string]*flow.Fault{"job": job}})
	for _, tt := range []struct {
		part, body    string
		ok, isStopped bool
	}{
		{"job", `{"stopped":true}`, true, true},
		{"job", `{"stopped":true}`, true, true},
		{"queue", `{"stopped":false}`, false, true},
		{"job", `{}`, false, true},
		{"job", `stopped`, false, true},
		{"job", "{\"stopped\":" + strings.Repeat(" ", 2000) + "false}", false, true},
		{"job", `{"stopped":false}`, true, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", strings.NewReader(tt.body))
		r.SetPathValue("part", tt.part)
		err := f.Operations()["PUT /flow/faults/{part}"](httptest.NewRecorder(), r, "ann")
		if (err == nil) != tt.ok || job.Stopped() != tt.isStopped || err != nil && !errors.Is(err, history.ErrInvalid) {
			t.Errorf("%s %.40s: %v, stopped %v", tt.part, tt.body, err, job.Stopped())
		}
	}
}

// TestAwait checks that a change wakes the waiters once.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := new(flow.Fault)
		set := flow.New(flow.Config{Faults: map[string]*flow.Fault{"job": job}}).Operations()["PUT /flow/faults/{part}"]
		ctx, end := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, stopped := range []bool{false, true, false, true} {
				job.Await(ctx, stopped)
				seen = append(seen, fmt.Sprint(stopped))
			}
		}()
		for _, stopped := range []bool{true, true, false} {
			synctest.Wait()
			r := httptest.NewRequestWithContext(ctx, http.MethodPut, "/", strings.NewReader(fmt.Sprintf(`{"stopped":%v}`, stopped)))
			r.SetPathValue("part", "job")
			if err := set(httptest.NewRecorder(), r, "ann"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if got := strings.Join(seen, " "); got != "false true false" {
			t.Errorf("seen %s", got)
		}
		end()
		<-done
	})
}

// BenchmarkStopped measures the cost of the check in a call.
func BenchmarkStopped(b *testing.B) {
	var f flow.Fault
	for b.Loop() {
		if f.Stopped() {
			b.Fatal("it is stopped")
		}
	}
}
