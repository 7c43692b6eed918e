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

var states = []recovery.State{recovery.Unknown, recovery.Comparing, recovery.Joining, recovery.Rereading, recovery.Suspect, recovery.Trusted}

// TestTransitions: the end of a state leads to the next one, if it is the present state. Another epoch alone ends the
// first and the last.
func TestTransitions(t *testing.T) {
	for _, present := range states {
		for _, ended := range states {
			m := recovery.NewMachine(recovery.MachineConfig{Epoch: named(new(string))})
			if present > recovery.Unknown {
				m.Observe("a")
			}
			for s := recovery.Comparing; s < present; s++ {
				m.Done(s)
			}
			want := present
			if ended == present && present != recovery.Unknown && present != recovery.Trusted {
				want++
			}
			if m.Done(ended); m.State() != want {
				t.Errorf("%s, end of %s: got %s, want %s", present, ended, m.State(), want)
			}
			if m.Observe("b"); m.State() != recovery.Comparing {
				t.Errorf("%s, another epoch: got %s, want %s", present, m.State(), recovery.Comparing)
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

// end expects the end of each state to lead to the next one.
func end(t *testing.T, m *recovery.Machine, all ...recovery.State) {
	t.Helper()
	for _, s := range all {
		if m.Done(s); m.State() != s+1 {
			t.Fatalf("after the end of %s: got %s", s, m.State())
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
		end(t, m, recovery.Comparing, recovery.Joining, recovery.Rereading)
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
		end(t, m, recovery.Comparing, recovery.Joining, recovery.Rereading)
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
			m.Done(recovery.Comparing)
			m.Join(tt.metadata)
			m.Done(recovery.Joining)
			if got := m.Since(0); slices.Contains(tt.metadata, settled) && !got.Equal(began) {
				t.Errorf("%s: changes since %v may be unarchived, want %v", name, got, began)
			}
			m.Done(recovery.Rereading)
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
