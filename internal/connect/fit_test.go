package connect_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/connect"
)

var errEvicts = errors.New("redis may lose acknowledged writes: it has maxmemory-policy allkeys-lru")

// Settings that change while an engine runs are noticed, whether they are allowed or not.
func TestSettingsAreLookedAtAgain(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var b broken
			var log strings.Builder
			e := &connect.Engines{Log: slog.New(slog.NewTextHandler(&log, nil))}
			e.Add("redis", "--redis", away(0, nil))
			e.Fit("redis", b.probe, allowed)
			reg := prometheus.NewRegistry()
			e.Register(reg)
			if err := e.First(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- e.Watch(ctx) }() // ends with ctx
			for _, step := range []struct {
				err   error
				unfit float64
				lines int
			}{
				{nil, 0, 0},
				{errEvicts, 1, 1},
				{errEvicts, 1, 1},
				{errAway, 1, 1}, // which says nothing of its settings
				{nil, 0, 2},
				{errAway, 0, 2},
			} {
				b.set(step.err)
				pass(11 * time.Second)
				err := e.Checks("redis")["redis"](t.Context())
				if healthy := step.unfit == 0 || allowed; (err == nil) != healthy || err != nil && !errors.Is(err, errEvicts) {
					t.Errorf("allowed %v, settings %v: health %v", allowed, step.err, err)
				}
				if got := gauge(t, reg, "playhead_engine_unfit"); got != step.unfit {
					t.Errorf("allowed %v, settings %v: the gauge is %v, want %v", allowed, step.err, got, step.unfit)
				}
				if n := strings.Count(log.String(), "engine=redis"); n != step.lines {
					t.Errorf("allowed %v, settings %v: %d lines, want %d:\n%s", allowed, step.err, n, step.lines, log.String())
				}
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no gauge %s", name)
	return 0
}
