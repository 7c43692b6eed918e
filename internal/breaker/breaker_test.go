package breaker_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/breaker"
)

// server answers its calls and probes while up is set, after a delay.
type server struct {
	up     atomic.Bool
	takes  time.Duration
	probes atomic.Int64
}

func (s *server) probe() bool {
	s.probes.Add(1)
	time.Sleep(s.takes)
	return s.up.Load()
}

// call makes a call that gives up after the given time, and returns how long it took.
func (s *server) call(b *breaker.Breaker, within time.Duration) (time.Duration, error) {
	start := time.Now()
	silent, err := b.Enter()
	if err != nil {
		return time.Since(start), err
	}
	answered := s.up.Load() && s.takes <= within
	if answered {
		time.Sleep(s.takes)
	} else {
		select {
		case <-time.After(within):
		case <-silent.Done():
		}
	}
	b.Leave(start, answered)
	return time.Since(start), nil
}

// open returns a breaker with a patience of one second, and its log.
func open(cfg breaker.Config) (*breaker.Breaker, *strings.Builder) {
	log := new(strings.Builder)
	cfg.Name, cfg.Log, cfg.Patience = "shard 1", slog.New(slog.NewTextHandler(log, nil)), time.Second
	return breaker.New(cfg), log
}

// probed lets probes decide.
func probed(s *server) breaker.Config {
	return breaker.Config{Confirm: func() bool { return !s.probe() }, Probe: s.probe}
}

// wantLog wants one line for each change of state.
func wantLog(t *testing.T, log *strings.Builder, opened, closed int) {
	t.Helper()
	text := log.String()
	if got, back := strings.Count(text, "breaker opened"), strings.Count(text, "breaker closed"); got != opened || back != closed ||
		strings.Count(text, `server="shard 1"`) != opened+closed {
		t.Errorf("opened %d times and closed %d times, want %d and %d:\n%s", got, back, opened, closed, text)
	}
}

// A silent server's calls end after the patience, and later ones fail at once until a probe is answered.
func TestASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		opened := make(chan bool, 1)
		cfg := probed(s)
		cfg.Opened = func() { opened <- true }
		b, log := open(cfg)
		if took, err := s.call(b, time.Minute); err != nil || took != time.Second {
			t.Errorf("the first call: %v after %v, want it to end after 1s", err, took)
		}
		<-opened
		for range 100 {
			if took, err := s.call(b, time.Minute); !errors.Is(err, history.ErrUnavailable) || took > 0 {
				t.Fatalf("while it is silent: %v after %v, want %v at once", err, took, history.ErrUnavailable)
			}
			time.Sleep(100 * time.Millisecond)
		}
		wantLog(t, log, 1, 0)
		s.up.Store(true)
		time.Sleep(time.Second)
		if _, err := s.call(b, time.Minute); err != nil || b.Open() {
			t.Errorf("after its return: %v", err)
		}
		wantLog(t, log, 1, 1)
	})
}

// The breaker stays closed while a probe answers, while calls are few, and for calls that end soon.
func TestAServerThatAnswersSometimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.up.Store(true)
		b, log := open(probed(s))
		start := time.Now()
		if _, err := b.Enter(); err != nil { // a call that stays under way
			t.Fatal(err)
		}
		time.Sleep(5500 * time.Millisecond)
		if n := s.probes.Load(); n != 5 || b.Open() || b.Quiet() != time.Since(start) {
			t.Errorf("after %v without an answer: %d probes, open %v", b.Quiet(), n, b.Open())
		}
		b.Leave(start, true)
		time.Sleep(time.Hour)
		if n := s.probes.Load(); n > 6 || b.Quiet() != 0 {
			t.Errorf("idle: %d probes, quiet for %v", n, b.Quiet())
		}
		wantLog(t, log, 0, 0)
	})
}

// Calls with deadlines below the patience find a silent server, too.
func TestShortCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		b, log := open(probed(s))
		for range 12 {
			_, _ = s.call(b, 100*time.Millisecond)
		}
		if !b.Open() {
			t.Error("after 12 unanswered calls of 100ms it is closed")
		}
		wantLog(t, log, 1, 0)
	})
}

// Without probes three unanswered calls in a row open the breaker, and one call per second passes it.
func TestCallsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		b, log := open(breaker.Config{})
		for n := range 3 {
			if b.Open() {
				t.Errorf("open after %d unanswered calls", n)
			}
			_, _ = s.call(b, 500*time.Millisecond) // too short to count
			_, _ = s.call(b, time.Second)
		}
		passed := 0
		for range 100 {
			if _, err := s.call(b, 0); err == nil {
				passed++
			}
			time.Sleep(100 * time.Millisecond)
		}
		if passed < 9 || passed > 10 {
			t.Errorf("%d calls of 10 s passed the open breaker", passed)
		}
		s.up.Store(true)
		time.Sleep(time.Second)
		if _, err := s.call(b, time.Second); err != nil || b.Open() {
			t.Errorf("after its return: %v, open %v", err, b.Open())
		}
		wantLog(t, log, 1, 1)
	})
}

// A server that answers the first probe is slow, not silent: it gets more time.
func TestASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{takes: 1500 * time.Millisecond}
		s.up.Store(true)
		b, log := open(breaker.Config{MaxPatience: 4 * time.Second, Confirm: func() bool { return true }, Probe: s.probe})
		for range 10 {
			_, _ = s.call(b, time.Minute)
			time.Sleep(2 * time.Second)
		}
		wantLog(t, log, 1, 1)
	})
}
