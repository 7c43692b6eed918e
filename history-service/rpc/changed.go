package rpc

import (
	"iter"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// changes are the records that a batch has changed. The heartbeats are those that its
// events were made of, nil where no connection is to be spared.
func (b *batch) changes(hbs []*historyv1.Heartbeat) iter.Seq[history.Change] {
	return func(yield func(history.Change) bool) {
		for _, g := range b.groups {
			if g.written != nil && !history.Same(g.written, g.before()) && !yield(history.Change{Key: g.key, Origin: g.origin(hbs)}) {
				return
			}
		}
	}
}

// origin is the connection that all of the group's events came over, 0 when there is no
// such one.
func (g *group) origin(hbs []*historyv1.Heartbeat) (origin uint64) {
	for n, i := range g.events {
		switch {
		case hbs == nil:
			return 0
		case n == 0:
			origin = hbs[i].GetOrigin()
		case origin != hbs[i].GetOrigin():
			return 0
		}
	}
	return origin
}
