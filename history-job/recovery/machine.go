// Package recovery deals with a cache that comes back older than it was: after a restart, a failover or a loss. It
// gives back what the cache lost, and says meanwhile which contents may be put into the archive.
//
// A [Machine] knows the state. The cache servers name their epoch; another name means that the cache may be older.
//
//	state      until                                        puts          queue
//	Unknown    the epoch is read                            none          waits
//	Comparing  the contents archived last are compared      none          waits
//	Joining    the commit metadata of the jobs is read      merged first  waits
//	Rereading  the queue is read again                      merged first  consumed
//	Suspect    other jobs had time to compare theirs        merged first  consumed
//	Trusted    the epoch changes                            as cached     consumed
//
// Each state leads to the next one, and another epoch from any to Comparing. "Merged first" means that each record is merged with the archive's
// before its put. A cache that is as durable as this process is always Trusted.
package recovery

import (
	"context"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/internal/run"
)

// State is the state of the cache, as known to this job.
type State uint8

// States in their order. The package comment says what each allows.
const (
	Unknown State = iota
	Comparing
	Joining
	Rereading
	Suspect
	Trusted
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"unknown", "comparing", "joining", "rereading", "suspect", "trusted"}[s]
}

// Puts reports whether contents of the cache may be put.
func (s State) Puts() bool { return s >= Joining }

// Merges reports whether each record is merged with the archive's before its put, because the cache may be older.
func (s State) Merges() bool { return s < Trusted }

// Consumes reports whether messages may be consumed. The first commit replaces metadata that must be read before.
func (s State) Consumes() bool { return s >= Rereading }

// MachineConfig configures a [Machine]. Zero values select the defaults.
type MachineConfig struct {
	// Epoch names the epoch of the cache servers. Without it the cache is as durable as this process.
	Epoch func(context.Context) (string, error)
	// Remember is the number of recently archived contents to compare after a change (default 100,000, about 15 MB).
	Remember int
	// Suspect is the time of suspicion after a change (default 10 min). Other jobs may still be comparing.
	Suspect time.Duration
	// Deadline bounds a read of the epoch (default 10 s).
	Deadline time.Duration
}

// Machine is the state of the cache, as known to this job. It implements [archive.Epochs]. Its methods are safe for
// concurrent use.
type Machine struct {
	cfg MachineConfig

	mu         sync.Mutex
	state      State
	left       chan struct{} // closed when the state is left
	epoch      string
	changed    time.Time // last sign, to any job, that the cache may be older; zero for none
	recent     recent
	unverified unverified
	mark       watermark
}

// NewMachine returns the machine of a starting job.
func NewMachine(cfg MachineConfig) *Machine {
	cfg.Remember = run.Default(cfg.Remember, 100_000)
	cfg.Suspect = run.Default(cfg.Suspect, 10*time.Minute)
	cfg.Deadline = run.Default(cfg.Deadline, 10*time.Second)
	m := &Machine{cfg: cfg, left: make(chan struct{}), recent: recent{max: cfg.Remember}, mark: watermark{since: time.Now()}}
	if cfg.Epoch == nil {
		m.state = Trusted
	}
	return m
}

// State returns the current state.
func (m *Machine) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// Done ends a state once its work is done, unless it has ended.
func (m *Machine) Done(s State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done(s)
}

func (m *Machine) done(s State) {
	if m.state != s || s == Unknown || s == Trusted { // another epoch begins and ends these
		return
	}
	if s == Rereading {
		m.mark.restart()
	}
	m.enter(s + 1)
}

func (m *Machine) enter(s State) {
	m.state = s
	close(m.left)
	m.left = make(chan struct{})
}

// consumes waits until messages may be consumed.
func (m *Machine) consumes(ctx context.Context) error {
	for {
		m.mu.Lock()
		state, left := m.state, m.left
		m.mu.Unlock()
		if state.Consumes() {
			return nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Observe notes the name of the current epoch. It reports whether a known epoch ended.
func (m *Machine) Observe(epoch string) (ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch == m.epoch {
		return false
	}
	if ended = m.state != Unknown; ended {
		m.changed = time.Now()
	}
	m.epoch = epoch
	m.enter(Comparing)
	return ended
}

// Doubt restarts the time of suspicion, because another job may not have compared its contents.
func (m *Machine) Doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = time.Now()
}

// Settle ends a suspicion whose time is over.
func (m *Machine) Settle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if over := m.changed.IsZero() || time.Since(m.changed) >= m.cfg.Suspect; over && len(m.unverified.all) == 0 {
		m.done(Suspect)
	}
}

// Ask returns the name of the cache's epoch.
func (m *Machine) Ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Deadline)
	defer cancel()
	return m.cfg.Epoch(ctx)
}

// Compared implements [archive.Epochs].
func (m *Machine) Compared() (epoch string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.Puts() {
		return "", archive.ErrEpoch
	}
	return m.epoch, nil
}

// Verify implements [archive.Epochs].
func (m *Machine) Verify(ctx context.Context, epoch string) error {
	if m.cfg.Epoch == nil {
		return nil
	}
	if name, err := m.Ask(ctx); err != nil || name != epoch {
		return archive.ErrEpoch
	}
	return nil
}

// Suspect implements [archive.Epochs].
func (m *Machine) Suspect() bool { return m.State().Merges() }

// Verified implements [archive.Epochs].
func (m *Machine) Verified(keys []history.Key) []history.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unverified.without(keys)
}

// Remember implements [archive.Epochs].
func (m *Machine) Remember(keys []history.Key, entries []history.Entry) {
	if m.cfg.Epoch == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, k := range keys {
		m.recent.add(k, entries[i].Record)
	}
}

// Measured implements [archive.Epochs].
func (m *Machine) Measured(at time.Time, found []history.Backlog) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark.last = marks{at, found}
}
