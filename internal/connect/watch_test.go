package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
)

// broken is what three engines fail with while err is set.
type broken struct {
	mu     sync.Mutex
	err    error
	probes int
}

func (b *broken) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *broken) get() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

type cache struct {
	history.Cache
	*broken
}

func (b cache) Load(context.Context, []history.Key) []history.Entry {
	return []history.Entry{{}, {Err: b.get()}}
}

type archive struct {
	history.Archive
	*broken
}

func (b archive) Put(context.Context, []history.Cell) []error { return []error{nil, b.get()} }

func (b *broken) Publish(context.Context, []history.Announcement) ([]history.Announcement, error) {
	return nil, b.get()
}

func (b *broken) probe(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes++
	return b.err
}

// watched is engines that have answered and are being watched.
type watched struct {
	*testing.T
	*connect.Engines
	broken
	log bytes.Buffer
	reg *prometheus.Registry
}

func watch(t *testing.T, fn func(w *watched)) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{T: t, reg: prometheus.NewRegistry()}
		w.Engines = &connect.Engines{Log: slog.New(slog.NewTextHandler(&w.log, nil))}
		for _, name := range []string{"redis", "kafka", "hbase"} {
			w.Add(name, "--"+name, away(0, nil))
			w.Probe(name, w.probe)
		}
		w.Register(w.reg)
		if err := w.First(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Watch(ctx) }() // ends with ctx
		fn(w)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pass lets time go by, and everybody do what is due then.
func pass(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// want asks health, metrics and log for one state of one engine.
func (w *watched) want(name string, up bool, lines int) {
	w.Helper()
	if err := w.Checks(name)[name](w.Context()); (err == nil) != up {
		w.Errorf("health of %s: %v, want up %v", name, err, up)
	}
	gauges, err := w.reg.Gather()
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range gauges[0].GetMetric() {
		if m.Label[0].GetValue() == name && (m.Gauge.GetValue() == 0) != up {
			w.Errorf("gauge of %s: %v, want up %v", name, m.Gauge.GetValue(), up)
		}
	}
	if n := strings.Count(w.log.String(), "engine="+name); n != lines {
		w.Errorf("%d lines about %s, want %d:\n%s", n, name, lines, w.log.String())
	}
}

func TestCallsTellOfAnEngine(t *testing.T) {
	tests := map[string]func(*watched){
		"redis": func(w *watched) { w.Engines.Cache(cache{broken: &w.broken}).Load(w.Context(), nil) },
		"hbase": func(w *watched) { w.Engines.Archive(archive{broken: &w.broken}).Put(w.Context(), nil) },
		"kafka": func(w *watched) { _, _ = w.Publisher(&w.broken).Publish(w.Context(), nil) },
	}
	for name, call := range tests {
		t.Run(name, func(t *testing.T) {
			watch(t, func(w *watched) {
				for _, step := range []struct {
					err   error
					up    bool
					lines int
				}{
					{nil, true, 0},
					{errAway, false, 1},
					{context.DeadlineExceeded, false, 1},
					{nil, true, 2},
					{fmt.Errorf("%w: %w", history.ErrUnavailable, context.Canceled), true, 2},
					{fmt.Errorf("put: %w", history.ErrPermanent), true, 2}, // it answered
				} {
					w.set(step.err)
					call(w)
					pass(1001 * time.Millisecond) // a look
					w.want(name, step.up, step.lines)
				}
			})
		})
	}
}

func TestOneLostAnswerIsNoOutage(t *testing.T) {
	watch(t, func(w *watched) {
		c := w.Cache(cache{broken: &w.broken})
		for i := range 20 {
			if w.set(nil); i == 7 {
				w.set(errAway)
			}
			c.Load(w.Context(), nil)
		}
		pass(time.Second) // a look
		w.want("redis", true, 0)
	})
}

// An engine that nobody calls is asked, seldom.
func TestAnIdleEngineIsProbed(t *testing.T) {
	watch(t, func(w *watched) {
		pass(time.Minute)
		if w.probes > 3*12 {
			t.Errorf("%d probes in a minute", w.probes)
		}
		w.set(errors.Join(history.ErrUnavailable, errors.New("connection refused")))
		pass(6 * time.Second)
		w.want("kafka", false, 1)
		w.set(nil)
		pass(6 * time.Second)
		w.want("kafka", true, 2)
		if !strings.Contains(w.log.String(), "away=5s") || !strings.Contains(w.log.String(), `effect="keys stay marked, the sweep archives them"`) {
			t.Errorf("the log does not tell what it meant, and for how long:\n%s", w.log.String())
		}
	})
}

// TestPartOfAnEngine has some servers of a cluster be away, and then all of them.
func TestPartOfAnEngine(t *testing.T) {
	watch(t, func(w *watched) {
		var whole broken
		w.Whole("redis", whole.probe)
		part := func() bool { return w.Part("redis")(w.Context()) != nil }
		call := func() { w.Engines.Cache(cache{broken: &w.broken}).Load(w.Context(), nil); pass(time.Second) }
		for _, step := range []struct {
			calls, whole error
			up, part     bool
		}{
			{nil, nil, true, false},
			{errAway, nil, true, true},
			{errAway, errAway, false, false},
			{errAway, nil, true, true},
			{nil, nil, true, false},
		} {
			w.set(step.calls)
			whole.set(step.whole)
			call()
			if err := w.Checks("redis")["redis"](w.Context()); (err == nil) != step.up || part() != step.part {
				t.Errorf("calls fail with %v, the whole with %v: health %v, part %v; want up %v, part %v", step.calls, step.whole, err, part(), step.up, step.part)
			}
		}
		if n := strings.Count(w.log.String(), "engine=redis"); n != 4 {
			t.Errorf("%d lines, want one for each change:\n%s", n, w.log.String())
		}
	})
}
