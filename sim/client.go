package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (c *client) nowMS() int64 {
	return time.Now().Add(c.offset).UnixMilli() / c.w.traits.grain * c.w.traits.grain // many events share a millisecond
}

func (c *client) anyObject(d *dice) history.Object {
	n := d.n(c.w.narrow)
	return history.Object{ID: string(rune('a' + n)), Type: uint32(1 + n%2)} //nolint:gosec // small
}

func (c *client) act(d *dice) {
	if m := c.w.moods[d.n(2)]; m < moods && d.one(3) {
		c.indulge(m, d)
		return
	}
	switch n := d.n(100); {
	case n < 52:
		c.report(d)
		c.send(d)
	case n < 54:
		c.offline = !c.offline
	case n < 55:
		c.repeat(d)
		c.send(d)
	case n < 59:
		c.importOld(d)
		c.send(d)
	case n < 64:
		c.remove(d)
	case n < 67:
		c.clear(d)
	case n < 70:
		c.pause(d)
	case n < 72:
		c.mark(d)
	case n < 74:
		c.w.dismiss(c, c.anyObject(d), d.one(3))
	case n < 76:
		c.w.takeBackup(c)
	case n < 85:
		c.points(d)
	case n < 93:
		c.list(d)
	case n < 96:
		c.w.sync(c)
	case n < 98:
		c.settings()
	default:
		c.outbox = nil // somebody closed the tab for good
	}
}

// indulge acts in the mood of the storm.
func (c *client) indulge(m mood, d *dice) {
	switch m {
	case deciding:
		if d.one(3) {
			c.clear(d)
		} else {
			c.pause(d)
		}
	case deleting:
		c.remove(d)
	case reading:
		if d.one(2) {
			c.list(d)
		} else {
			c.points(d)
		}
	case uploading:
		c.importOld(d)
		c.send(d)
	case beginning:
		c.begin(d)
	}
}

// wake does what devices do first in the morning.
func (c *client) wake(d *dice) {
	switch d.n(4) {
	case 0:
		c.importOld(d) // from the night
		c.send(d)
	case 1:
		c.begin(d)
	case 2:
		c.list(d)
	}
}

// begin clears everything the client has reported, and reports a millisecond later.
func (c *client) begin(d *dice) {
	if c.last == 0 {
		return
	}
	cleared := &historyv1.ClearRequest{Uid: c.uid, UntilMs: c.last}
	c.outbox = append(c.outbox, c.heartbeat(d))
	c.outbox[0].EventTimeMs, c.last = cleared.UntilMs+1, cleared.UntilMs+1
	c.send(d)
	c.w.clear(c, cleared)
}

// report adds one or two reports of the current viewing.
func (c *client) report(d *dice) {
	if c.session == "" || d.one(c.w.traits.session) {
		c.sessions++
		c.session, c.object = fmt.Sprintf("%s-%d", c.device, c.sessions), c.anyObject(d)
		if d.one(4) { // a page that keeps its session
			c.session = c.device
		}
		c.started, c.position, c.watched = c.nowMS()-int64(d.n(40))*1000, d.n(3), 0
	}
	for range 1 + d.n(2) {
		c.outbox = append(c.outbox, c.heartbeat(d))
	}
}

func (c *client) heartbeat(d *dice) *historyv1.Heartbeat {
	now := c.nowMS()
	if c.last > 0 && d.one(3) { // a millisecond after the last one
		now = c.last + 1
	}
	c.last = now
	hb := &historyv1.Heartbeat{
		Uid: c.uid, ObjectId: c.object.ID, ObjectType: c.object.Type, Kind: historyv1.Kind_KIND_PROGRESS,
		EventTimeMs: now, Session: c.session, Device: c.device,
	}
	switch d.n(6) {
	case 0:
		c.position = d.n(len(positions)) // a seek, perhaps back
		hb.Kind = historyv1.Kind_KIND_SEEK
	case 1, 2:
	default:
		c.position = min(c.position+1, len(positions)-1)
	}
	hb.PositionMs = positions[c.position]
	if !d.one(3) {
		hb.DurationMs = duration
	}
	if !d.one(3) {
		c.watched += int64(1+d.n(4)) * 1000
		hb.StartedAtMs, hb.WatchedMs = c.started, c.watched
	}
	if d.one(3) {
		c.describe(d, hb)
	}
	if d.one(5) {
		hb.SentAtMs = now
	}
	if d.one(c.w.traits.knowing) {
		hb.IfMatch = c.etags[c.object]
	}
	switch d.n(9) {
	case 8:
		hb.Kind = historyv1.Kind_KIND_START
	case 0:
		hb.Kind = historyv1.Kind_KIND_STOP
		c.session = ""
	case 1:
		if c.position == len(positions)-1 {
			hb.Kind, c.session = historyv1.Kind_KIND_FINISH, ""
		}
	case 2:
		hb.Kind = historyv1.Kind_KIND_PAUSE
	}
	return hb
}

// describe adds metadata. Apps of different devices name different keys.
func (c *client) describe(d *dice, hb *historyv1.Heartbeat) {
	hb.Meta = make(map[string]string)
	for _, key := range metaKeys {
		switch d.n(5) {
		case 0:
			hb.RemovedMeta = append(hb.RemovedMeta, key)
		case 1, 2:
			hb.Meta[key] = fmt.Sprintf("%s at %d", c.device, hb.EventTimeMs)
		}
	}
}

// repeat resends an answered report, like a device that lost the answer in a crash.
func (c *client) repeat(d *dice) {
	if len(c.done) > 0 {
		c.outbox = append(c.outbox, c.done[d.n(len(c.done))])
	}
}

// importOld adds reports from long ago, or from another player's last minute.
func (c *client) importOld(d *dice) {
	unit := [...]int64{10, 100, 100_000}[d.n(3)]
	for range 1 + d.n(3) {
		o, at := c.anyObject(d), c.nowMS()-int64(d.n(600))*unit
		c.sessions++
		c.outbox = append(c.outbox, &historyv1.Heartbeat{
			Uid: c.uid, ObjectId: o.ID, ObjectType: o.Type, Kind: [...]historyv1.Kind{historyv1.Kind_KIND_STOP, historyv1.Kind_KIND_PROGRESS}[d.n(2)], EventTimeMs: at,
			PositionMs: positions[d.n(len(positions))], DurationMs: duration, StartedAtMs: at - 10_000, WatchedMs: int64(d.n(5)) * 1000,
			Session: fmt.Sprintf("%s-%d", c.device, c.sessions), Device: "import",
		})
	}
}

// send gives some of the outbox to the client's edge.
func (c *client) send(d *dice) {
	if c.busy > 0 || c.offline || len(c.outbox) == 0 || time.Now().Before(c.after) {
		return
	}
	n := min(len(c.outbox), 1+d.n(5))
	some := slices.Clone(c.outbox[:n])
	if d.one(4) { // the newest first, as from a closing tab
		some = slices.Clone(c.outbox[len(c.outbox)-n:])
	}
	if d.one(10) { // twice in one message
		some = append(some, some[0])
	}
	s := &submission{client: c, heartbeats: some, received: time.Now().UnixMilli()}
	if d.one(c.w.traits.queued) {
		s.ack = historyv1.Ack_ACK_QUEUED
	}
	c.busy++
	e := c.w.edges[c.number%len(c.w.edges)]
	e.waiting = append(e.waiting, s)
}

func (c *client) remove(d *dice) {
	if d.one(8) { // all of them
		for _, o := range c.w.objects() {
			c.w.remove(c, o, &historyv1.DeleteRequest{Uid: c.uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}})
		}
		return
	}
	o := c.anyObject(d)
	req := &historyv1.DeleteRequest{Uid: c.uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}}
	if d.one(4) {
		req.AtMs = c.nowMS() - int64(d.n(3000))
	} else if d.one(4) {
		req.IfMatch = c.etags[o]
	}
	c.w.remove(c, o, req)
}

func (c *client) mark(d *dice) {
	at := c.nowMS() - [...]int64{0, 1, 1000}[d.n(3)]
	req := &historyv1.MarkRequest{Mark: historyv1.Mark(1 + d.n(3)), AtMs: at, OnlyRecorded: d.one(3)} //nolint:gosec // small
	req.UnlessCompleted = req.Mark == historyv1.Mark_MARK_WATCHED && d.one(2)
	c.w.mark(c, c.anyObject(d), req)
}

func (c *client) clear(d *dice) {
	req := &historyv1.ClearRequest{Uid: c.uid, Type: uint32(d.n(3))} //nolint:gosec // small
	switch d.n(6) {
	case 0:
		req.UntilMs = c.nowMS() - int64(d.n(60))*1000
	case 1:
		req.UntilMs = c.last // the next report is a millisecond later
	}
	c.w.clear(c, req)
}

func (c *client) pause(d *dice) {
	c.w.pause(c, &historyv1.PutSettingsRequest{Uid: c.uid, Recording: !d.one(3)})
}

func (c *client) settings() { c.w.settings(c) }

func (c *client) points(d *dice) {
	objects := []history.Object{c.anyObject(d)}
	if d.one(3) {
		objects = c.w.objects()
	}
	c.w.points(c, objects)
}

func (c *client) list(d *dice) {
	req := &historyv1.ListRequest{Uid: c.uid, Limit: uint32(1 + d.n(4))} //nolint:gosec // small
	if d.one(3) {
		req.Type = uint32(1 + d.n(2)) //nolint:gosec // small
	}
	if d.one(6) {
		req.SinceMs = c.nowMS() - int64(d.n(100))*100
	}
	if d.one(6) {
		req.UntilMs = c.nowMS() - int64(d.n(100))*100
	}
	c.w.list(c, req)
}
