package client

import (
	"cmp"
	"math"
	"slices"
	"time"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The bounds of a message. The edge takes 1 MiB; on a link that is slow the room for a
// message shrinks, but one heartbeat always has room.
const (
	maxBatch  = 100      // heartbeats
	maxRoom   = 64 << 10 // bytes
	firstRoom = 16 << 10
	maxTries  = 3  // messages that a heartbeat was alone in, before the others go first
	overhead  = 16 // bytes that a heartbeat needs in a message besides its own, at most, with an etag
)

// noRecord is the etag of no record.
const noRecord = math.MaxUint64

// Answer is what became of a heartbeat.
type Answer struct {
	// Heartbeat is what was reported, with a device, and with an IfMatch if it was guarded. Its
	// times are those of the history, and not what the device's clock showed.
	Heartbeat *historyv1.Heartbeat
	// Status is the edge's, and never unavailable: those are sent again. It is stale also
	// for a progress that gave its place in a full queue to a later report of the same
	// viewing, and unspecified for another report that a full queue had no room for.
	Status historyv1.Status
	// Record is the record as it now stands; nil where there is none, or it is not known.
	Record *historyv1.Item
	// Refusal says why a heartbeat is invalid, nil for any other.
	Refusal *historyv1.Refusal
}

// item is a heartbeat that the edge has not answered.
type item struct {
	*historyv1.Heartbeat
	size  int       // bytes
	zero  time.Time // what the clock that gave its times showed when nothing had elapsed; none for those of the history
	guard uint64    // as it was sent
	asked bool      // it was sent
	tries int       // messages that it was alone in and that were not answered
}

// dated reports whether the times are those of the history.
func (it *item) dated() bool { return it.zero.IsZero() }

func (it *item) shift(ms int64) {
	it.EventTimeMs += ms
	if it.StartedAtMs != 0 {
		it.StartedAtMs = max(it.StartedAtMs+ms, 1)
	}
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
	doubt int    // since which loss of sight others may have changed the record, 0 for none
	order uint64 // in which records were noted
}

// outbox holds the heartbeats that the edge has not answered, oldest first, and decides
// which of them make the next message. The first ones may be on their way. It is a state
// machine that is told of events and knows no time; its methods need a lock.
//
//	report     -> waiting
//	next       -> the first ones are on their way
//	takeAnswer -> those that are answered go, the others wait behind the rest
//	postpone   -> all wait
//	fail       -> all wait, and the next message has half the bytes
//	refuse     -> the same, until one that is alone is dropped
//
// The guard of a heartbeat is its IfMatch, the etag of the record that it goes on from. One
// that is reported in doubt is guarded by the known etag. Doubt begins with each loss of
// sight: when a connection ends, or the device slept. An answer to a message that was sent
// after that ends it, where the device is told of what happens from then on.
type outbox struct {
	limit    int           // heartbeats, and records that are known
	patience time.Duration // for an answer
	guarding bool          // also what the caller says nothing of

	items   []*item
	sent    int              // of them, on their way
	size    int              // of those, in bytes
	losses  int              // of sight, as many as there were when they were sent
	seenAt  map[object]int64 // the times of the records that were seen since, Unix milliseconds
	dropped int
	room    int // bytes of a message
	ceiling int // what room grows to

	watching bool // the edge has begun to tell what happens elsewhere
	lost     int  // how often it lost sight of that
	known    map[object]*known
	notes    uint64

	unanswered []viewing // of heartbeats that were sent and told of without an answer, each with its device, the last ones
	begun      []beginning
}

// beginning is when a viewing began.
type beginning struct {
	viewing
	shown int64     // by the device's clock, Unix milliseconds
	zero  time.Time // of that clock then
}

func newOutbox(limit int, patience time.Duration, guarding bool) *outbox {
	return &outbox{
		limit: limit, patience: patience, guarding: guarding, room: firstRoom, ceiling: maxRoom, lost: 1,
		known: make(map[object]*known), seenAt: make(map[object]int64),
	}
}

// report takes a heartbeat in and returns the one that had to make room for it, if any.
func (o *outbox) report(it *item) (dropped []Answer) {
	obj := it.object()
	switch k := o.known[obj]; {
	case it.IfMatch != 0: // the caller is in doubt, which holds for the reports that follow
		o.note(obj, it.IfMatch, o.lost)
	case k != nil && (k.doubt != 0 || o.guarded(obj)):
		it.IfMatch = k.etag
	}
	if len(o.items) >= o.limit {
		dropped = o.shed()
	}
	o.items = append(o.items, it)
	if !o.watching {
		o.unknown(obj)
	}
	return dropped
}

// guarded reports whether a guarded heartbeat of an object waits. Those behind it need a
// guard as well.
func (o *outbox) guarded(obj object) bool {
	return slices.ContainsFunc(o.items, func(it *item) bool { return it.IfMatch != 0 && it.object() == obj })
}

// unknown is told that an object was reported and its record is not in sight. If none is
// known, the reports that follow go on from none.
func (o *outbox) unknown(obj object) {
	if o.guarding && o.known[obj] == nil {
		o.note(obj, noRecord, o.lost)
	}
}

// restate brings the beginning of a viewing to what the device's clock shows now, which may have been set since.
func (o *outbox) restate(it *item) {
	if it.StartedAtMs == 0 {
		return
	}
	b := beginning{it.viewing(), it.StartedAtMs, it.zero}
	mine := func(other beginning) bool { return other.viewing == b.viewing }
	if i := slices.IndexFunc(o.begun, mine); i >= 0 {
		if o.begun[i].shown == b.shown {
			b = o.begun[i]
		}
		o.begun = slices.Delete(o.begun, i, i+1)
	} else if len(o.begun) >= o.limit {
		o.begun = o.begun[1:]
	}
	o.begun = append(o.begun, b)
	it.StartedAtMs = max(it.StartedAtMs+it.zero.Sub(b.zero).Milliseconds(), 1)
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
	o.giveUp(it)
	if !it.asked {
		o.passOn(it)
	}
	if status == historyv1.Status_STATUS_UNSPECIFIED {
		o.dropped++
	}
	return []Answer{{Heartbeat: it.Heartbeat, Status: status}}
}

// next returns the heartbeats of the next message, none when nothing waits, and whether their
// times are those of the history.
func (o *outbox) next() (beats []*historyv1.Heartbeat, dated bool) {
	o.size, o.losses, o.seenAt = 0, o.lost, make(map[object]int64)
	last := make(map[object]*item)
	for i, it := range o.items {
		if i > 0 && (i >= maxBatch || o.size+it.size > o.room || it.dated() != o.items[0].dated() || clash(last[it.object()], it)) {
			break
		}
		last[it.object()], it.guard, it.asked = it, it.IfMatch, true
		o.size += it.size
		beats = append(beats, it.Heartbeat)
	}
	o.sent = len(beats)
	return beats, o.sent > 0 && o.items[0].dated()
}

// set brings the times that are the device's to what its clock shows now, with this zero.
func (o *outbox) set(zero time.Time) {
	for _, it := range o.items {
		if !it.dated() {
			it.shift(zero.Sub(it.zero).Milliseconds())
			it.zero = zero
		}
	}
}

// clash reports whether a heartbeat must wait for the answer to the one before it of the
// same object. The edge looks at all guards with the record as it was before the message,
// and so a message has of one object those of one viewing with one guard, or without any.
func clash(before, it *item) bool {
	return before != nil && (before.IfMatch != it.IfMatch || it.IfMatch != 0 && before.viewing() != it.viewing())
}

// takeAnswer takes in the answer to the message that is on its way, which came after so long.
// It returns what to tell, and how many of the heartbeats are to be sent again.
func (o *outbox) takeAnswer(resp *historyv1.ApplyResponse, took time.Duration) (answers []Answer, again int) {
	sent, rest := o.items[:o.sent], o.items[o.sent:]
	var left, gone []*item
	for i, it := range sent {
		a := answer(it, resp, i)
		if !o.done(it, a) {
			left = append(left, it)
			continue
		}
		if answers = append(answers, a); a.Status != historyv1.Status_STATUS_STORED && a.Status != historyv1.Status_STATUS_STALE {
			gone = append(gone, it)
		}
	}
	o.items, o.sent = behind(rest, left), 0
	for _, it := range gone {
		o.passOn(it)
	}
	if took <= o.patience/4 {
		o.room = min(max(o.room, 2*o.size), o.ceiling)
	}
	return answers, len(left)
}

// behind lets the heartbeats of other objects go before some, and keeps the order of each object: what
// follows may be guarded by the record that these are to leave.
func behind(rest, some []*item) []*item {
	mates := func(it *item) bool {
		return slices.ContainsFunc(some, func(other *item) bool { return other.object() == it.object() })
	}
	others, last := make([]*item, 0, len(rest)+len(some)), slices.Clone(some)
	for _, it := range rest {
		if mates(it) {
			last = append(last, it)
		} else {
			others = append(others, it)
		}
	}
	return append(others, last...)
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

// done reports whether a heartbeat is answered. One in conflict with a record of its own
// viewing goes again, guarded by that record: an answer was lost. One whose record is gone
// goes again without a guard.
func (o *outbox) done(it *item, a Answer) bool {
	own := o.own(it, a.Record) || glanced(it, a)
	if own {
		o.follow(it, a.Record)
	}
	switch {
	case a.Status == historyv1.Status_STATUS_UNAVAILABLE:
		return false
	case a.Status != historyv1.Status_STATUS_CONFLICT || it.guard == 0:
		return true
	case a.Record == nil:
		o.removed(it.object())
		return false
	case own:
		return false
	}
	if k := o.known[it.object()]; k == nil || k.etag == it.guard {
		o.note(it.object(), it.guard, o.lost) // until the player has seen the record
	}
	return true
}

// glanced reports whether another device has only just begun where a heartbeat has left the user.
func glanced(it *item, a Answer) bool {
	kept := a.Status == historyv1.Status_STATUS_STORED || a.Status == historyv1.Status_STATUS_UNCHANGED
	stored := a.Status == historyv1.Status_STATUS_STORED && it.guard != 0
	return a.Record.GetEarly() && (stored || kept && a.Record.PositionMs == it.PositionMs)
}

// own reports whether the device of a heartbeat made a record: with the same viewing, or with one that was
// not answered.
func (o *outbox) own(it *item, r *historyv1.Item) bool {
	if r == nil || r.Device != it.Device {
		return false
	}
	made := viewing{it.object(), r.Session, r.Device}
	return slices.Contains(o.unanswered, made) || slices.ContainsFunc(o.items, func(other *item) bool {
		return viewing{other.object(), other.Session, other.Device} == made
	})
}

// giveUp is told that a heartbeat will have no answer. If it was sent it may be stored.
func (o *outbox) giveUp(it *item) {
	made := viewing{it.object(), it.Session, it.Device}
	if it.asked && !slices.Contains(o.unanswered, made) {
		o.unanswered = append(o.unanswered, made)
	}
	if len(o.unanswered) > o.limit {
		o.unanswered = o.unanswered[1:]
	}
}

// follow takes note of the record that a heartbeat has left. Its viewing goes on from that record, and so does every viewing
// that went on from the record before. A viewing that goes on from a newer record, seen since, keeps to that one.
func (o *outbox) follow(it *item, record *historyv1.Item) {
	obj, k := it.object(), known{doubt: o.lost}
	if before := o.known[obj]; before != nil {
		k = *before
	}
	from, overtaken := cmp.Or(it.guard, noRecord), o.overtaken(obj, record)
	o.renew(obj, record.Etag, func(other *item) bool {
		if other.IfMatch == k.etag {
			return !overtaken
		}
		return other.viewing() == it.viewing() || other.IfMatch == from
	})
	switch {
	case overtaken:
		return
	case !o.watching:
		k.doubt = o.lost
	case k.doubt <= o.losses:
		k.doubt = 0
	}
	o.note(obj, record.Etag, k.doubt)
}

// removed takes note that there is no record, which takes guards away.
func (o *outbox) removed(obj object) {
	k := o.known[obj]
	overtaken := k != nil && o.overtaken(obj, nil)
	o.renew(obj, 0, func(other *item) bool { return !overtaken || other.IfMatch != k.etag })
	if !overtaken {
		o.note(obj, noRecord, o.lost)
	}
}

// overtaken reports whether the player has seen a newer record since the message left: than the one in its
// answer, or, as far as anybody knows, than none.
func (o *outbox) overtaken(obj object, record *historyv1.Item) bool {
	at, seen := o.seenAt[obj]
	return seen && (record == nil || record.EventTimeMs < at)
}

// passOn is told that a heartbeat has left without a record of it. Where it was the first of an object of which
// no record was known, the next one is the first.
func (o *outbox) passOn(gone *item) {
	obj := gone.object()
	k := o.known[obj]
	if gone.IfMatch != 0 || k == nil || k.etag != noRecord {
		return
	}
	mine := func(it *item) bool { return it.object() == obj }
	next := slices.IndexFunc(o.items, mine)
	if next < o.sent || o.items[next].IfMatch != noRecord {
		return
	}
	if !slices.ContainsFunc(o.items, func(it *item) bool { return mine(it) && it.IfMatch == 0 }) {
		o.items[next].IfMatch = 0
	}
}

// renew changes the guards of some of an object's guarded heartbeats, 0 for none.
func (o *outbox) renew(obj object, etag uint64, which func(*item) bool) {
	for _, it := range o.items {
		if it.IfMatch != 0 && it.object() == obj && which(it) {
			it.IfMatch = etag
		}
	}
}

// halve makes the next message smaller than the one that was on its way, and returns what
// that had.
func (o *outbox) halve() []*item {
	sent := o.items[:o.sent]
	if o.sent > 0 {
		o.room = min(o.room, (o.size+1)/2)
	}
	o.sent = 0
	return sent
}

// refuse is told that the edge will never take the message that is on its way. Half of it
// is next, and so on, until the heartbeat is found that is to blame.
func (o *outbox) refuse(field, reason string, tooLarge bool) []Answer {
	sent := o.halve()
	if tooLarge && len(sent) > 0 {
		o.ceiling = o.room
	}
	if len(sent) != 1 {
		return nil
	}
	o.giveUp(sent[0])
	o.items, o.room, o.ceiling = o.items[1:], firstRoom, maxRoom
	return []Answer{{
		Heartbeat: sent[0].Heartbeat, Status: historyv1.Status_STATUS_INVALID, Refusal: &historyv1.Refusal{Field: field, Reason: reason},
	}}
}

// postpone is told that the message is to be sent again, as it is.
func (o *outbox) postpone() { o.sent = 0 }

// fail is told that the message that is on its way, if any, was not answered. A heartbeat
// that is alone, again and again, does not hold up other objects.
func (o *outbox) fail() {
	sent := o.halve()
	if len(sent) != 1 {
		return
	}
	if it := sent[0]; it.tries+1 < maxTries {
		it.tries++
	} else {
		it.tries = 0
		o.items = behind(o.items[1:], sent)
	}
}

// resync is told that from now on the device learns on its connection what happens
// elsewhere. It may have missed what happened before.
func (o *outbox) resync() {
	o.watching = true
	o.loseSight()
}

// closed is told that the connection ended.
func (o *outbox) closed() {
	o.watching, o.sent = false, 0
	o.loseSight()
}

// loseSight is told that others may have changed unseen what is known.
func (o *outbox) loseSight() {
	o.lost++
	for _, it := range o.items {
		o.unknown(it.object())
	}
	for _, k := range o.known {
		k.doubt = o.lost
	}
}

// seen is told what record the player goes on from.
func (o *outbox) seen(record *historyv1.Item) {
	if record.GetEtag() == 0 {
		return
	}
	doubt := o.lost
	if o.watching {
		doubt = 0
	}
	obj := object{record.GetObject().GetId(), record.GetObject().GetType()}
	o.note(obj, record.Etag, doubt)
	o.seenAt[obj] = record.EventTimeMs
}

// note keeps what is known of a record; of too many the one noted longest ago goes.
func (o *outbox) note(obj object, etag uint64, doubt int) {
	o.notes++
	o.known[obj] = &known{etag, doubt, o.notes}
	if len(o.known) <= o.limit {
		return
	}
	for other, k := range o.known {
		if k.order < o.known[obj].order {
			obj = other
		}
	}
	delete(o.known, obj)
}
