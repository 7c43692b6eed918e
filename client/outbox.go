// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"math"
	"slices"
	"time"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Limits of a message. The edge accepts 1 MiB. Failures on a slow link halve the limit, but one heartbeat always fits.
const (
	maxBatch  = 100      // heartbeats
	maxRoom   = 64 << 10 // bytes
	firstRoom = 16 << 10
	maxTries  = 3  // attempts of a heartbeat alone in a message before others go first
	overhead  = 16 // upper bound of a heartbeat's framing, with an etag
)

// noRecord is the etag of a missing record.
const noRecord = math.MaxUint64

// Answer is the outcome of a heartbeat.
type Answer struct {
	// Heartbeat is the report, with its device, its IfMatch if guarded, and its times by the history's clock.
	Heartbeat *messagev1.Heartbeat
	// Status is the edge's, except unavailable, which is retried. A full queue drops superseded progress as
	// stale and other reports as unspecified.
	Status messagev1.Status
	// Record is the current record; nil if missing or unknown.
	Record *messagev1.Item
	// Refusal explains an invalid heartbeat; else nil.
	Refusal *messagev1.Refusal
}

type item struct {
	*messagev1.Heartbeat
	size  int       // bytes.
	zero  time.Time // displayed time at elapsed time 0, by the clock of its times; zero if dated.
	guard uint64    // IfMatch as sent.
	asked bool      // was sent.
	tries int       // unanswered messages with it alone.
}

// dated reports whether the times are by the history's clock.
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

// viewing identifies one playback.
type viewing struct {
	object
	session, device string
}

func (it *item) viewing() viewing { return viewingOf(it.object(), it.Session, it.Device) }

// viewingOf follows the service: a device's reports of an object without a session are one viewing.
func viewingOf(o object, session, device string) viewing {
	if session != "" {
		return viewing{o, session, ""}
	}
	return viewing{o, "", device}
}

// known is the device's knowledge of a record.
type known struct {
	etag  uint64
	doubt int    // last loss of sight since which others may have changed the record; 0 for none
	order uint64 // order of notes
}

// outbox holds the unanswered heartbeats, oldest first, and chooses the next message. It is a state machine
// without clock or network; its methods need a lock.
//
//	report     -> waiting
//	next       -> the first ones are sent
//	takeAnswer -> answered ones leave, the others wait behind the rest
//	postpone   -> all wait
//	fail       -> all wait, and the next message has half the bytes
//	refuse     -> the same, until a heartbeat alone in its message is dropped
//
// A heartbeat's guard is its IfMatch, the etag of the record that it continues from. Reports made in doubt are
// guarded by the known etag. Doubt begins with each loss of sight: an ended connection or a sleep. The answer
// to a later message ends it if the device receives changes from then on.
type outbox struct {
	limit    int           // of heartbeats and of known records
	patience time.Duration // for a response
	guarding bool          // also guards reports without the caller's IfMatch or Seen

	items   []*item
	sent    int              // number of sent items, the first ones.
	size    int              // bytes of the sent items.
	losses  int              // value of lost when they were sent.
	seenAt  map[object]int64 // event times of records seen since, Unix milliseconds.
	dropped int
	room    int // byte limit of a message
	ceiling int // upper limit of room

	watching bool // the edge sends changes from elsewhere
	lost     int  // losses of sight
	known    map[object]*known
	notes    uint64

	unanswered []viewing // viewings, with devices, of sent heartbeats that left without an answer, newest last
	begun      []beginning
}

// beginning is the start time of a viewing.
type beginning struct {
	viewing
	shown int64     // by the device's clock, Unix milliseconds
	zero  time.Time // that clock's zero at the time
}

func newOutbox(limit int, patience time.Duration, guarding bool) *outbox {
	return &outbox{
		limit: limit, patience: patience, guarding: guarding, room: firstRoom, ceiling: maxRoom, lost: 1,
		known: make(map[object]*known), seenAt: make(map[object]int64),
	}
}

// report adds a heartbeat and returns the one dropped for it, if any.
func (o *outbox) report(it *item) (dropped []Answer) {
	obj := it.object()
	switch k := o.known[obj]; {
	case it.IfMatch != 0: // the caller's doubt also covers later reports
		o.note(obj, it.IfMatch, o.lost)
	case k != nil && (k.doubt != 0 || o.guarded(obj)):
		it.IfMatch = k.etag
	}
	o.items = append(o.items, it)
	if len(o.items) > o.limit {
		dropped = o.shed()
	}
	if !o.watching {
		o.unknown(obj)
	}
	return dropped
}

// guarded reports whether a guarded heartbeat of the object waits. Later ones then need a guard as well.
func (o *outbox) guarded(obj object) bool {
	return slices.ContainsFunc(o.items, func(it *item) bool { return it.IfMatch != 0 && it.object() == obj })
}

// unknown notes a report of an object out of sight. Without a known record, later reports continue from none.
func (o *outbox) unknown(obj object) {
	if o.guarding && o.known[obj] == nil {
		o.note(obj, noRecord, o.lost)
	}
}

// restate adjusts the start of a viewing if the device's clock was set since.
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

// shed drops one heartbeat. A progress is superseded by a later report of its viewing at the same position or
// further, which has the same guard, if any.
func (o *outbox) shed() []Answer {
	victim, status := o.sent, messagev1.Status_STATUS_UNSPECIFIED
	later := make(map[viewing]int64) // furthest position
	for i := len(o.items) - 1; i >= o.sent; i-- {
		it := o.items[i]
		furthest, followed := later[it.viewing()]
		if followed && it.Kind == messagev1.Kind_KIND_PROGRESS && it.PositionMs <= furthest {
			victim, status = i, messagev1.Status_STATUS_STALE
		}
		later[it.viewing()] = max(furthest, it.PositionMs)
	}
	it := o.items[victim]
	o.items = slices.Delete(o.items, victim, victim+1)
	o.giveUp(it)
	if !it.asked {
		o.passOn(it)
	}
	if status == messagev1.Status_STATUS_UNSPECIFIED {
		o.dropped++
	}
	return []Answer{{Heartbeat: it.Heartbeat, Status: status}}
}

// next returns the heartbeats of the next message, and whether their times are by the history's clock.
func (o *outbox) next() (beats []*messagev1.Heartbeat, dated bool) {
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

// set converts the device's times to its current clock with the given zero.
func (o *outbox) set(zero time.Time) {
	for _, it := range o.items {
		if !it.dated() {
			it.shift(zero.Sub(it.zero).Milliseconds())
			it.zero = zero
		}
	}
}

// clash reports whether a heartbeat must wait for the answer to its object's previous one. The edge checks all
// guards against the record before the message. So a message has, per object, one viewing with one guard, or no guards.
func clash(before, it *item) bool {
	return before != nil && (before.IfMatch != it.IfMatch || it.IfMatch != 0 && before.viewing() != it.viewing())
}

// takeAnswer processes the answer to the sent message after took. It returns the outcomes and the number of
// heartbeats to retry.
func (o *outbox) takeAnswer(resp *messagev1.ApplyResponse, took time.Duration) (answers []Answer, again int) {
	sent, rest := o.items[:o.sent], o.items[o.sent:]
	var left, gone []*item
	for i, it := range sent {
		a := answer(it, resp, i)
		if !o.done(it, a) {
			left = append(left, it)
			continue
		}
		if answers = append(answers, a); a.Status != messagev1.Status_STATUS_STORED && a.Status != messagev1.Status_STATUS_STALE {
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

// behind moves some heartbeats behind those of other objects. It keeps the order within each object: later ones
// may be guarded by the record of earlier ones.
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

func answer(it *item, resp *messagev1.ApplyResponse, i int) Answer {
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

// done reports whether a heartbeat is finished. A conflict with a record of its own viewing means a lost
// answer: the heartbeat is retried with that record as its guard. If the record is gone, it is retried without a guard.
func (o *outbox) done(it *item, a Answer) bool {
	own := o.own(it, a.Record) || glanced(it, a)
	if own {
		o.follow(it, a.Record)
	}
	switch {
	case a.Status == messagev1.Status_STATUS_UNAVAILABLE:
		return false
	case a.Status != messagev1.Status_STATUS_CONFLICT || it.guard == 0:
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

// glanced reports whether another device has only just started at the heartbeat's position.
func glanced(it *item, a Answer) bool {
	kept := a.Status == messagev1.Status_STATUS_STORED || a.Status == messagev1.Status_STATUS_UNCHANGED
	stored := a.Status == messagev1.Status_STATUS_STORED && it.guard != 0
	return a.Record.GetEarly() && (stored || kept && a.Record.PositionMs == it.PositionMs)
}

// own reports whether the heartbeat's device made the record, with a waiting or unanswered viewing.
func (o *outbox) own(it *item, r *messagev1.Item) bool {
	if r == nil || r.Device != it.Device {
		return false
	}
	made := viewing{it.object(), r.Session, r.Device}
	return slices.Contains(o.unanswered, made) || slices.ContainsFunc(o.items, func(other *item) bool {
		return viewing{other.object(), other.Session, other.Device} == made
	})
}

// giveUp notes a heartbeat that leaves without an answer. If sent, it may be stored.
func (o *outbox) giveUp(it *item) {
	made := viewing{it.object(), it.Session, it.Device}
	if it.asked && !slices.Contains(o.unanswered, made) {
		o.unanswered = append(o.unanswered, made)
	}
	if len(o.unanswered) > o.limit {
		o.unanswered = o.unanswered[1:]
	}
}

// follow notes the record that a heartbeat left. Its viewing continues from there, like every viewing guarded
// by the previous record. A viewing guarded by a newer record, seen since, keeps that guard.
func (o *outbox) follow(it *item, record *messagev1.Item) {
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

// removed notes a missing record and clears its guards.
func (o *outbox) removed(obj object) {
	k := o.known[obj]
	overtaken := k != nil && o.overtaken(obj, nil)
	o.renew(obj, 0, func(other *item) bool { return !overtaken || other.IfMatch != k.etag })
	if !overtaken {
		o.note(obj, noRecord, o.lost)
	}
}

// overtaken reports whether the player has seen a newer record since the message left: newer than the answer's,
// or any if that is nil.
func (o *outbox) overtaken(obj object, record *messagev1.Item) bool {
	at, seen := o.seenAt[obj]
	return seen && (record == nil || record.EventTimeMs < at)
}

// passOn handles a heartbeat that left no record. If it was the first of an object without a known record, the
// next one becomes the first.
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

// renew sets the guards of an object's guarded heartbeats that match which; 0 clears them.
func (o *outbox) renew(obj object, etag uint64, which func(*item) bool) {
	for _, it := range o.items {
		if it.IfMatch != 0 && it.object() == obj && which(it) {
			it.IfMatch = etag
		}
	}
}

// halve halves the size of the next message and returns the sent heartbeats.
func (o *outbox) halve() []*item {
	sent := o.items[:o.sent]
	if o.sent > 0 {
		o.room = min(o.room, (o.size+1)/2)
	}
	o.sent = 0
	return sent
}

// refuse handles a permanently refused message. It halves the next message until the invalid heartbeat is
// alone, and drops it.
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
		Heartbeat: sent[0].Heartbeat, Status: messagev1.Status_STATUS_INVALID, Refusal: &messagev1.Refusal{Field: field, Reason: reason},
	}}
}

// postpone retries the message unchanged.
func (o *outbox) postpone() { o.sent = 0 }

// fail handles an unanswered message. A heartbeat that repeatedly fails alone goes behind other objects.
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

// resync notes that the device receives all changes from now on. It may have missed earlier ones.
func (o *outbox) resync() {
	o.watching = true
	o.loseSight()
}

// closed notes the end of the connection.
func (o *outbox) closed() {
	o.watching, o.sent = false, 0
	o.loseSight()
}

// loseSight notes that others may have changed the known records unseen.
func (o *outbox) loseSight() {
	o.lost++
	for _, it := range o.items {
		o.unknown(it.object())
	}
	for _, k := range o.known {
		k.doubt = o.lost
	}
}

// seen sets the record that the player continues from.
func (o *outbox) seen(record *messagev1.Item) {
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

// note stores the knowledge of a record. Above the limit the oldest note goes.
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
