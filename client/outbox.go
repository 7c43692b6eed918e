package client

import (
	"slices"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The bounds of a message. The edge takes 128 KiB; on a link that is slow the room for a
// message shrinks, but one heartbeat always has room.
const (
	maxBatch  = 100      // heartbeats
	maxRoom   = 64 << 10 // bytes
	firstRoom = 16 << 10
	minRoom   = 1 << 10
	patient   = 5  // failures in a row before the edge may be the one that fails
	overhead  = 16 // bytes that a heartbeat needs in a message besides its own, at most, with an etag
)

// item is a heartbeat that the edge has not answered.
type item struct {
	*historyv1.Heartbeat
	size  int       // bytes
	zero  time.Time // what the clock that gave its times showed when nothing had elapsed
	guard uint64    // as it was sent
}

type object struct {
	id  string
	typ uint32
}

func (it *item) object() object { return object{it.ObjectId, it.ObjectType} }

// viewing names what is played once.
type viewing struct {
	object
	session, device string
}

func (it *item) viewing() viewing { return viewingOf(it.object(), it.Session, it.Device) }

// viewingOf follows the service: all that a device reports of an object without a session
// is one viewing.
func viewingOf(o object, session, device string) viewing {
	if session != "" {
		return viewing{o, session, ""}
	}
	return viewing{o, "", device}
}

// known is what the device knows of a record.
type known struct {
	etag  uint64
	doubt bool   // others may have changed it unseen
	noted uint64 // in the order of notes
}

// outbox holds the heartbeats that the edge has not answered, oldest first, and decides
// which of them make the next message. The first ones may be on their way. It is a state
// machine that is told of events and knows no time; its methods need a lock.
//
//	report  -> waiting
//	next    -> the first ones are on their way
//	settle  -> those that are answered go, the others wait
//	refuse  -> half of them is the next message, until one that is alone is dropped
//	fail    -> all wait, and the next message is smaller
type outbox struct {
	limit    int           // heartbeats, and records that are known
	patience time.Duration // for an answer

	items    []*item
	sent     int // of them, on their way
	size     int // of those, in bytes
	dropped  int
	room     int // bytes of a message
	ceiling  int // what room grows to
	suspects int // the first so many hold one that the edge does not take
	failures int // messages in a row that were not answered

	connected bool
	known     map[object]*known
	notes     uint64
}

func newOutbox(limit int, patience time.Duration) *outbox {
	return &outbox{limit: limit, patience: patience, room: firstRoom, ceiling: maxRoom, known: make(map[object]*known)}
}

// report takes a heartbeat in and returns the one that had to make room for it, if any.
func (o *outbox) report(it *item) (dropped []Answer) {
	switch k := o.known[it.object()]; {
	case it.IfMatch != 0: // the caller is in doubt, which holds for the reports that follow
		o.note(it.object(), it.IfMatch, true)
	case k != nil && k.doubt:
		it.IfMatch = k.etag
	}
	if len(o.items) >= o.limit {
		dropped = o.shed()
	}
	o.items = append(o.items, it)
	return dropped
}

// shed makes room for one. A progress tells nothing beside a later report of the same
// viewing that is not behind it. Its guard, if any, the later ones have too.
func (o *outbox) shed() []Answer {
	victim, status := o.sent, historyv1.Status_STATUS_UNSPECIFIED
	later := make(map[viewing]int64) // the furthest position
	for i := len(o.items) - 1; i >= o.sent; i-- {
		it := o.items[i]
		furthest, followed := later[it.viewing()]
		if followed && it.Kind == historyv1.Kind_KIND_PROGRESS && it.PositionMs <= furthest {
			victim, status = i, historyv1.Status_STATUS_STALE
		}
		later[it.viewing()] = max(furthest, it.PositionMs)
	}
	it := o.items[victim]
	o.items = slices.Delete(o.items, victim, victim+1)
	if victim < o.suspects {
		o.suspects--
	}
	if status == historyv1.Status_STATUS_UNSPECIFIED {
		o.dropped++
	}
	return []Answer{{Heartbeat: it.Heartbeat, Status: status}}
}

// next returns the heartbeats of the next message, none when nothing waits. They have been
// reported under the same setting of the clock, whose zero is returned.
func (o *outbox) next() (beats []*historyv1.Heartbeat, zero time.Time) {
	o.size = 0
	last := make(map[object]*item)
	for i, it := range o.items {
		if i > 0 && (i >= o.most() || o.size+it.size > o.room || reset(it.zero, o.items[0].zero) || clash(last[it.object()], it)) {
			break
		}
		last[it.object()], it.guard = it, it.IfMatch
		o.size += it.size
		beats = append(beats, it.Heartbeat)
	}
	if o.sent = len(beats); o.sent > 0 {
		zero = o.items[0].zero
	}
	return beats, zero
}

// most is how many heartbeats may go: half of those that hold one that the edge does not
// take, or as many as a message may have.
func (o *outbox) most() int {
	if o.suspects > 0 {
		return max(1, o.suspects/2)
	}
	return maxBatch
}

// reset reports whether somebody has set the clock between two zeros.
func reset(a, b time.Time) bool { return a.Sub(b).Abs() > time.Second }

// clash reports whether a heartbeat must wait for the answer to the one before it of the
// same object: its guard is the record as that one leaves it. In one message only those
// of the same viewing with the same guard follow each other.
func clash(before, it *item) bool {
	return before != nil && it.IfMatch != 0 && (before.IfMatch != it.IfMatch || before.viewing() != it.viewing())
}

// settle takes in the answer to the message that is on its way, which came after so long.
// It returns what to tell, and how many of the heartbeats are to be sent again.
func (o *outbox) settle(resp *historyv1.ApplyResponse, took time.Duration) (answers []Answer, again int) {
	sent, rest := o.items[:o.sent], o.items[o.sent:]
	var left []*item
	var mine []object // whose records are the player's own
	for i, it := range sent {
		a := answer(it, resp, i)
		if own(it, a) {
			o.follow(it.object(), a.Record.Etag)
			mine = append(mine, it.object())
		}
		if o.done(it, a) {
			answers = append(answers, a)
		} else {
			left = append(left, it)
		}
	}
	o.items, o.sent = slices.Concat(left, rest), 0
	o.suspects, o.failures = max(0, o.suspects-len(answers)), 0
	o.trust(mine)
	o.pace(took)
	return answers, len(left)
}

func answer(it *item, resp *historyv1.ApplyResponse, i int) Answer {
	a := Answer{Heartbeat: it.Heartbeat, Status: resp.Statuses[i]}
	if i < len(resp.Records) && resp.Records[i].GetObject() != nil {
		a.Record = resp.Records[i]
	}
	for _, r := range resp.Refusals {
		if int(r.Index) == i {
			a.Refusal = r
		}
	}
	return a
}

// own reports whether the viewing of a heartbeat made the record of its answer.
func own(it *item, a Answer) bool {
	return a.Record != nil && viewingOf(it.object(), a.Record.Session, a.Record.Device) == it.viewing()
}

// follow notes a record of the player's own, which is what the reports that wait go on
// from.
func (o *outbox) follow(obj object, etag uint64) {
	k := o.known[obj]
	o.note(obj, etag, k != nil && k.doubt)
	o.guard(obj, etag)
}

// guard changes the guards of an object's heartbeats, 0 for none.
func (o *outbox) guard(obj object, etag uint64) {
	for _, it := range o.items {
		if it.IfMatch != 0 && it.object() == obj {
			it.IfMatch = etag
		}
	}
}

// done reports whether a heartbeat is answered. One in conflict with a record of its own
// viewing goes again, guarded by that record: an answer was lost. One whose record is gone
// goes again without a guard.
func (o *outbox) done(it *item, a Answer) bool {
	switch {
	case a.Status == historyv1.Status_STATUS_UNAVAILABLE:
		return false
	case a.Status != historyv1.Status_STATUS_CONFLICT || it.guard == 0:
		return true
	case a.Record == nil:
		delete(o.known, it.object())
		o.guard(it.object(), 0)
		return false
	case own(it, a):
		return false
	}
	o.note(it.object(), it.guard, true) // until the player has seen the record
	return true
}

// trust ends the doubt about the player's own records, where no guarded report waits.
func (o *outbox) trust(mine []object) {
	for _, it := range o.items {
		if it.IfMatch != 0 {
			mine = slices.DeleteFunc(mine, func(obj object) bool { return obj == it.object() })
		}
	}
	for _, obj := range mine {
		o.known[obj].doubt = false
	}
}

// pace makes messages larger as long as they are answered quickly, and smaller before they
// are not answered in time.
func (o *outbox) pace(took time.Duration) {
	switch {
	case took > o.patience/2:
		o.shrink()
	case took < o.patience/4 && o.size >= o.room/2:
		o.room = min(2*o.room, o.ceiling)
	}
}

func (o *outbox) shrink() { o.room = max(minRoom, min(o.room, o.size)/2) }

// refuse is told that the edge will never take the message that is on its way. Half of it
// is next, and so on, until the heartbeat is found that is to blame.
func (o *outbox) refuse(reason string, tooLarge bool) []Answer {
	sent := o.items[:o.sent]
	o.sent = 0
	if len(sent) == 0 {
		return nil
	}
	if tooLarge {
		o.shrink()
		o.ceiling = o.room
	}
	if len(sent) > 1 {
		o.suspects = len(sent)
		return nil
	}
	it := sent[0]
	o.items, o.suspects = o.items[1:], 0
	return []Answer{{
		Heartbeat: it.Heartbeat, Status: historyv1.Status_STATUS_INVALID, Refusal: &historyv1.Refusal{Reason: reason},
	}}
}

// postpone is told that the message is to be sent again, as it is.
func (o *outbox) postpone() { o.sent = 0 }

// fail is told that the message that is on its way, if any, was not answered. A heartbeat
// that the edge fails on does not hold up the others: it is searched for, and goes last.
func (o *outbox) fail(broken bool) {
	n := o.sent
	o.sent = 0
	if n == 0 {
		return
	}
	o.shrink()
	o.failures++
	if !broken && o.failures < patient {
		return
	}
	o.suspects = n
	if n == 1 {
		o.items, o.suspects = append(o.items[1:], o.items[0]), 0
	}
}

// opened and closed are told of the connection.
func (o *outbox) opened() { o.connected = true }

func (o *outbox) closed() {
	o.connected, o.sent = false, 0
	o.doubt()
}

// doubt is told that others may have changed what is known.
func (o *outbox) doubt() {
	for _, k := range o.known {
		k.doubt = true
	}
}

// seen is told what record the player goes on from.
func (o *outbox) seen(record *historyv1.Item) {
	if record.GetEtag() != 0 {
		o.note(object{record.GetObject().GetId(), record.GetObject().GetType()}, record.Etag, !o.connected)
	}
}

// note keeps what is known of a record; of too many the one noted longest ago goes.
func (o *outbox) note(obj object, etag uint64, doubt bool) {
	o.notes++
	o.known[obj] = &known{etag, doubt, o.notes}
	if len(o.known) <= o.limit {
		return
	}
	for other, k := range o.known {
		if k.noted < o.known[obj].noted {
			obj = other
		}
	}
	delete(o.known, obj)
}
