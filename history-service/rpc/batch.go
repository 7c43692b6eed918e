package rpc

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// batch is one request: its events by key, and a status for each.
type batch struct {
	rules    *history.Rulebook
	events   []history.Event
	statuses []historyv1.Status // of the events; anything but unspecified is decided
	matches  []uint64           // the etags that the events name, 0 for none; nil when none does
	groups   []*group
	// latest gives each event the time of the record that it meets, if that is later: a
	// delete without a time of its own covers what its user sees, whatever the clocks.
	latest bool
}

// group is the events of one key on their way into one record.
type group struct {
	batch  *batch
	key    history.Key
	events []int          // indexes into batch.events
	held   aggregate.Held // what the service last wrote of the key

	base     *history.Record // what the cache holds
	archived *history.Record // what the archive holds instead, where that was asked
	older    *history.Record // what was held when another writer was first
	user     history.User
	next     *history.Record // base and events, nil when there is nothing
	mark     bool            // the next write begins a hold
	done     bool            // stored, needless, or failed
	failed   bool            // a store did not answer
	lost     bool            // a write lost against another writer
	visible  bool            // the key had a record that readers saw
	granted  grant           // what an event of the batch has matched

	written *history.Record // what the cache holds since; nil when nothing was written
	ended   bool            // an event ended the viewing
}

// prepare groups the events that are not yet decided and folds them into what is held.
func (s *Server) prepare(b *batch) {
	b.rules, b.groups = s.cfg.Rules, make([]*group, 0, len(b.events))
	byKey := make(map[history.Key]*group, len(b.events))
	for i := range b.events {
		if b.statuses[i] != historyv1.Status_STATUS_UNSPECIFIED {
			continue
		}
		g := byKey[b.events[i].Key]
		if g == nil {
			g = &group{batch: b, key: b.events[i].Key}
			byKey[g.key] = g
			b.groups = append(b.groups, g)
		}
		g.events = append(g.events, i)
	}
	for _, g := range b.groups {
		g.sort()
		held, open, ok := s.cfg.Aggregate.Get(g.key)
		if g.held, g.mark = held, !open; ok && !b.latest {
			g.hold()
		}
	}
}

// hold decides about the events by what is held. The user may have cleared the history
// since, or wants nothing recorded any more, and another service may have written the
// record: a write finds out. Where none is to be made, the cache is asked.
func (g *group) hold() {
	g.base, g.next = g.held.Record, g.held.Record
	g.user.Pause = g.held.Pause
	g.fold()
	if g.done {
		g.base, g.done = nil, false
	}
}

// sort orders the events by time. A record remembers a bounded number of completed
// viewings and counts no older ones, so that a long history sent newest first would
// lose plays.
func (g *group) sort() {
	slices.SortStableFunc(g.events, func(i, j int) int {
		return cmp.Compare(g.batch.events[i].At, g.batch.events[j].At)
	})
}

// missing returns the keys, and their groups, that must be loaded.
func (b *batch) missing() (keys []history.Key, groups []*group) {
	for _, g := range b.groups {
		if g.base == nil {
			keys = append(keys, g.key)
			groups = append(groups, g)
		}
	}
	return keys, groups
}

// writes returns what is still to be written, and the groups it belongs to.
func (b *batch) writes() (writes []history.Write, groups []*group) {
	for _, g := range b.groups {
		if g.done {
			continue
		}
		w := history.Write{Key: g.key, Record: g.next.Successor(&g.user), Pause: g.user.Pause, Mark: g.mark}
		if g.base != nil {
			w.Base = g.base.Revision
		}
		writes = append(writes, w)
		groups = append(groups, g)
	}
	return writes, groups
}

// release gives what was written to the aggregator.
func (b *batch) release(a *aggregate.Aggregator) {
	for _, g := range b.groups {
		if !g.done { // other writers won every time
			g.fail()
		}
		if g.written != nil {
			a.Put(g.key, aggregate.Held{Record: g.written, Pause: g.user.Pause}, g.ended)
		}
	}
}

// items returns the records as they now stand, one for each event, or only for those in
// conflict.
func (b *batch) items(all bool) []*historyv1.Item {
	items := make([]*historyv1.Item, len(b.statuses))
	for i := range items {
		items[i] = &historyv1.Item{}
	}
	for _, g := range b.groups {
		for _, i := range g.events {
			if !all && b.statuses[i] != historyv1.Status_STATUS_CONFLICT {
				continue
			}
			if r := g.current().Visible(g.key.Object, &g.user); r != nil {
				items[i] = view.Item(g.key.Object, r)
			}
		}
	}
	return items
}

// current is the record as it stands after the batch.
func (g *group) current() *history.Record {
	if g.written != nil {
		return g.written
	}
	return g.before()
}

// before is the record as it stood before the batch.
func (g *group) before() *history.Record {
	if g.base != nil {
		return g.base
	}
	return g.archived
}
