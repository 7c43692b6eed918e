package replay

import (
	"strings"
	"sync/atomic"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// answers counts what became of heartbeats. Its methods may be called from many
// goroutines.
type answers struct {
	acked    atomic.Int64
	statuses [16]atomic.Int64
}

// Acked returns how many heartbeats were acknowledged so far.
func (a *answers) Acked() int64 { return a.acked.Load() }

// Statuses returns how many heartbeats were answered with each status.
func (a *answers) Statuses() map[historyv1.Status]int64 {
	m := make(map[historyv1.Status]int64)
	for i := range a.statuses {
		if n := a.statuses[i].Load(); n > 0 {
			m[historyv1.Status(i)] = n //nolint:gosec // a small constant range
		}
	}
	return m
}

// known reports whether a status is one that a service gives.
func (a *answers) known(s historyv1.Status) bool { return s > 0 && int(s) < len(a.statuses) }

// note counts a heartbeat.
func (a *answers) note(s historyv1.Status) {
	a.statuses[s].Add(1)
	a.acked.Add(1)
}

// StatusName returns a status as interfaces write it: "stored".
func StatusName(s historyv1.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}
