package connect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
)

var (
	errAway    = fmt.Errorf("open: %w", history.ErrUnavailable)
	errRefused = errors.New("wrong password")
)

// away answers with an error so many times, and then with last.
func away(times int, last error) func(context.Context) error {
	return func(context.Context) error {
		if times--; times >= 0 {
			return errAway
		}
		return last
	}
}

func TestEnginesAwayAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := connect.Engines{Log: slog.New(slog.NewTextHandler(&log, nil))}
		e.Add("redis", "--redis", away(0, nil))
		e.Add("hbase", "--hbase", away(20, nil))
		hung := false
		e.Add("kafka", "--kafka", func(ctx context.Context) error { // hangs once
			if hung {
				return nil
			}
			hung = true
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		if err := e.First(t.Context()); err != nil {
			t.Fatalf("First = %v, want the process to start", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("First took %v, want 5s at most", took)
		}
		checks := e.Checks("redis", "hbase")
		if err := checks["redis"](t.Context()); err != nil {
			t.Errorf("redis is not ready: %v", err)
		}
		if err := checks["hbase"](t.Context()); err == nil || !strings.Contains(err.Error(), "(set --hbase)") {
			t.Errorf("hbase: %v, want it not ready, and how to help", err)
		}
		if err := e.Run(t.Context()); err != nil {
			t.Fatalf("Run = %v", err)
		}
		if err := checks["hbase"](t.Context()); err != nil {
			t.Errorf("hbase is not ready: %v", err)
		}
		if n := strings.Count(log.String(), "engine=hbase"); n != 2 {
			t.Errorf("%d lines about hbase, want one when it was away and one when it was back:\n%s", n, log.String())
		}
	})
}

func TestEnginesThatRefuseEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("redis", "--redis", away(0, errRefused))
		if err := e.First(t.Context()); !errors.Is(err, errRefused) || strings.Contains(err.Error(), "\n") {
			t.Errorf("First = %v, want one line that says %q", err, errRefused)
		}
		e = connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("redis", "--redis", away(3, errRefused))
		if err := errors.Join(e.First(t.Context()), e.Run(t.Context())); !errors.Is(err, errRefused) {
			t.Errorf("Run = %v, want %v", err, errRefused)
		}
	})
}

func TestEnginesAllAreNeeded(t *testing.T) {
	e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
	e.Add("redis", "--redis", away(0, nil))
	e.Add("hbase", "--hbase", away(1, nil))
	if err := e.All(t.Context()); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("All = %v, want hbase missed", err)
	}
}

func TestEnginesStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := connect.Engines{Log: slog.New(slog.DiscardHandler)}
		e.Add("hbase", "--hbase", away(1<<30, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := e.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run = %v, want it to end with its context", err)
		}
	})
}
