package rpc

import (
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// An event may say which record its device knows, by the etag, and then contributes only
// to that one. In a batch, the events of a key are looked at one after another in the
// order of their times. The later ones of a viewing that name the same etag follow the
// first: what it has changed is no surprise to its own device. So do those behind an event
// that is stored already and still the latest, so that an upload may be sent again with
// more in it. What contributes nothing is never in conflict, and neither is what was done
// already, if at another time: an answer may have been lost. A record is the same one as
// long as its latest event is.

// grant is an etag that was the record's, and the viewing that knew it.
type grant struct{ etag, viewing uint64 }

// match is the etag that an event names, 0 when it does not care.
func (b *batch) match(i int) uint64 {
	if b.matches == nil {
		return 0
	}
	return b.matches[i]
}

// allows reports whether an event may change the record as it is by now.
func (g *group) allows(i int, said *history.Record) bool {
	want := g.batch.match(i)
	own := grant{want, g.batch.events[i].Viewing()}
	if want == 0 || g.granted == own {
		return true
	}
	r := g.next.Visible(g.key.Object, &g.user)
	if r == nil || !view.Names(want, r) && !repeats(r, said) {
		return false
	}
	g.granted = own
	return true
}

// repeats reports whether a session says of itself what it has said. The times of a clock
// that is wrong are corrected by when an upload comes, so that sent again it has others.
func repeats(r, said *history.Record) bool {
	return said.Session != "" && r.Session == said.Session && r.Device == said.Device &&
		r.State == said.State && r.Position == said.Position
}

// gone reports whether an event is to delete the record that it names, which somebody has
// done: most likely the same call, whose answer was lost. Later than that it must not
// delete, for it would take away what came in between.
func (g *group) gone(i int, said *history.Record) bool {
	return g.batch.match(i) != 0 && said.Deleted() && g.next != nil && g.next.Deleted()
}

// again takes note of an event that the record had already.
func (g *group) again(i int, said *history.Record) {
	n := g.next
	if n.Version == said.Version && n.Position == said.Position && n.Session == said.Session && n.Device == said.Device {
		g.granted = grant{g.batch.match(i), g.batch.events[i].Viewing()}
	}
}

// matched reports whether any of the events says which record it knows.
func (g *group) matched() bool {
	return slices.ContainsFunc(g.events, func(i int) bool { return g.batch.match(i) != 0 })
}

// matches returns what the heartbeats name, nil when none does.
func matches(hbs []*historyv1.Heartbeat) []uint64 {
	var tags []uint64
	for i, hb := range hbs {
		if hb.GetIfMatch() != 0 {
			if tags == nil {
				tags = make([]uint64, len(hbs))
			}
			tags[i] = hb.GetIfMatch()
		}
	}
	return tags
}
