package recovery_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/recovery"
)

var (
	states = []recovery.State{recovery.Unknown, recovery.Comparing, recovery.Joining, recovery.Rereading, recovery.Suspect, recovery.Trusted}
	events = []recovery.Event{recovery.Changed, recovery.Compared, recovery.Joined, recovery.Reread, recovery.Settled}
)

// TestTransitions enumerates the states and events.
func TestTransitions(t *testing.T) {
	for i, s := range states {
		for _, e := range events {
			want, fires := recovery.Comparing, e == recovery.Changed
			if i > 0 && e == recovery.Event(i) { // each state but the first has one event that ends it
				want, fires = recovery.State(i+1), true
			}
			if got, ok := s.Next(e); ok != fires || fires && got != want {
				t.Errorf("%s, event %d: got %s, %v, want %s, %v", s, e, got, ok, want, fires)
			}
		}
	}
}

// TestRights are the columns of the package comment.
func TestRights(t *testing.T) {
	type rights struct{ puts, merges, consumes bool }
	for s, want := range map[recovery.State]rights{
		recovery.Unknown:   {false, true, false},
		recovery.Comparing: {false, true, false},
		recovery.Joining:   {true, true, false},
		recovery.Rereading: {true, true, true},
		recovery.Suspect:   {true, true, true},
		recovery.Trusted:   {true, false, true},
	} {
		if got := (rights{s.Puts(), s.Merges(), s.Consumes()}); got != want {
			t.Errorf("%s: got %+v, want %+v", s, got, want)
		}
	}
}

func named(name *string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return *name, nil }
}

// fire expects each event to lead to the next state.
func fire(t *testing.T, m *recovery.Machine, all ...recovery.Event) {
	t.Helper()
	for _, e := range all {
		before := m.State()
		m.Fire(e)
		if got, want := m.State(), before+1; got != want {
			t.Fatalf("%s, event %d: got %s, want %s", before, e, got, want)
		}
	}
}

// TestMachine passes through an epoch and the next one.
func TestMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := "a"
		m := recovery.NewMachine(recovery.MachineConfig{Epoch: named(&name), Suspect: time.Minute})
		if _, err := m.Compared(); !errors.Is(err, archive.ErrEpoch) {
			t.Errorf("before an epoch is known: %v, want %v", err, archive.ErrEpoch)
		}
		if m.Observe("a") {
			t.Error("the first epoch was taken for a change")
		}
		fire(t, m, recovery.Compared, recovery.Joined, recovery.Reread)
		if m.Settle(); m.State() != recovery.Trusted {
			t.Errorf("without a change: %s, want trusted", m.State())
		}
		name = "b"
		if err := m.Verify(t.Context(), "a"); !errors.Is(err, archive.ErrEpoch) {
			t.Errorf("verify another epoch: %v, want %v", err, archive.ErrEpoch)
		}
		if !m.Observe("b") || m.State() != recovery.Comparing {
			t.Errorf("after a change: %s, want comparing", m.State())
		}
		fire(t, m, recovery.Compared, recovery.Joined, recovery.Reread)
		for _, want := range []recovery.State{recovery.Suspect, recovery.Trusted} {
			if m.Settle(); m.State() != want {
				t.Errorf("got %s, want %s", m.State(), want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestJoin: the epoch is trusted only if a job knew it, and no sooner after its begin than after one seen here.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		other := recovery.NewMachine(recovery.MachineConfig{Epoch: named(new(string))})
		other.Observe("a")
		time.Sleep(time.Hour)
		settled := other.Metadata()
		other.Observe("b")
		young := other.Metadata()
		for name, tt := range map[string]struct {
			metadata []string
			want     recovery.State
		}{
			"nothing was committed": {nil, recovery.Trusted},
			"another epoch":         {[]string{settled}, recovery.Suspect},
			"a young epoch":         {[]string{settled, young}, recovery.Suspect},
			"damaged":               {[]string{"1 2"}, recovery.Suspect},
		} {
			m := recovery.NewMachine(recovery.MachineConfig{Epoch: named(new(string))})
			m.Observe("b")
			m.Fire(recovery.Compared)
			m.Join(tt.metadata)
			m.Fire(recovery.Joined)
			if got := m.Since(0); slices.Contains(tt.metadata, settled) && !got.Equal(began) {
				t.Errorf("%s: changes since %v may be unarchived, want %v", name, got, began)
			}
			m.Fire(recovery.Reread)
			if m.Settle(); m.State() != tt.want {
				t.Errorf("%s: got %s, want %s", name, m.State(), tt.want)
			}
		}
	})
}

// TestDurable is always trusted.
func TestDurable(t *testing.T) {
	m := recovery.NewMachine(recovery.MachineConfig{})
	m.Remember([]history.Key{{UID: "ann"}}, make([]history.Entry, 1))
	if _, err := m.Compared(); err != nil || m.Suspect() || m.Verify(t.Context(), "") != nil || m.Metadata() != "" {
		t.Errorf("state %s, %v, want trusted", m.State(), err)
	}
}
