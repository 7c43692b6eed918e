package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
)

// state is what a record may be. The zero value is none.
type state struct {
	position int64 // another one for each report
	plays    uint64
}

// valid is a state with the time in which it may have been the current one.
type valid struct {
	state
	ended time.Time // zero if it may be now
}

// object is the model of a record.
type object struct {
	history.Object
	states  []valid
	changed time.Time // time of the latest acknowledgement
	right   []bool    // by place: it had the current state
	told    []bool    // by place: a difference was reported
}

// kind is that of an operation.
type kind uint8

const (
	reports kind = iota
	deletes
	clears
)

// operation is what a user does next, or again until it is acknowledged.
type operation struct {
	kind  kind
	event history.Event // of a delete the key, of a clear the time
}

// user is a synthetic user with the model of the history.
type user struct {
	uid, session string
	objects      []*object
	pending      *operation
	at           int64 // of the latest operation, Unix milliseconds
	count        int
}

func newUser(uid, session string, typ uint32, places int) *user {
	u := &user{uid: uid, session: session}
	for n := range objects {
		u.objects = append(u.objects, &object{
			Object: history.Object{ID: "audit-" + session + "-" + strconv.Itoa(n), Type: typ}, states: []valid{{}},
			right: make([]bool, places), told: make([]bool, places),
		})
	}
	// What an earlier audit left goes first.
	u.pending = &operation{kind: clears, event: history.Event{Key: history.UserKey(uid), At: u.next()}}
	return u
}

// next returns a time that is later than that of all operations before.
func (u *user) next() int64 {
	u.at = max(time.Now().UnixMilli(), u.at+1)
	return u.at
}

// duration of all objects, in milliseconds.
const duration = 3_600_000

// propose decides what the user does next. From now on both what was and what it makes are right.
func (u *user) propose() {
	u.count++
	o := u.objects[rand.IntN(len(u.objects))] //nolint:gosec // no secret
	op := &operation{event: history.Event{Key: history.Key{UID: u.uid, Object: o.Object}, At: u.next()}}
	switch n := between(0, 20); {
	case n == 0:
		op.kind = clears
	case n < 5:
		op.kind = deletes
	default:
		op.event.Duration, op.event.Session, op.event.Device = duration, u.session+"-"+strconv.Itoa(u.count), "audit"
		op.event.Kind, op.event.Position = history.KindStop, between(duration/10, duration/2)
		if n >= 12 {
			op.event.Kind, op.event.Position = history.KindFinish, between(duration*95/100, duration)
		}
	}
	u.pending = op
	for _, o := range u.objects {
		if op.concerns(o) {
			o.may(op)
		}
	}
}

func (op *operation) concerns(o *object) bool {
	return op.kind == clears || op.event.Key.Object == o.Object
}

// after returns what the operation makes of a state.
func (op *operation) after(s state) state {
	if op.kind != reports {
		return state{}
	}
	s.position = op.event.Position
	if op.event.Kind == history.KindFinish {
		s.plays++
	}
	return s
}

// may adds what an operation makes of the current state.
func (o *object) may(op *operation) {
	if now := o.current(); op.after(now) != now {
		o.states = append(o.states, valid{state: op.after(now)})
		clear(o.right)
	}
}

// current returns the state before a pending operation.
func (o *object) current() state {
	return o.states[slices.IndexFunc(o.states, func(v valid) bool { return v.ended.IsZero() })].state
}

// acknowledged ends the states before the operation.
func (u *user) acknowledged() {
	for _, o := range u.objects {
		if !u.pending.concerns(o) {
			continue
		}
		for i := range o.states[:len(o.states)-1] {
			if o.states[i].ended.IsZero() {
				o.states[i].ended = time.Now()
			}
		}
		o.changed = time.Now()
		clear(o.told)
	}
	u.pending = nil
}

// refused drops the state that the report would have made.
func (u *user) refused() {
	for _, o := range u.objects {
		if u.pending.concerns(o) {
			o.states = o.states[:len(o.states)-1]
		}
	}
	u.pending = nil
}

// forget drops states that ended before a time.
func (u *user) forget(before time.Time) {
	for _, o := range u.objects {
		o.states = slices.DeleteFunc(o.states, func(v valid) bool { return !v.ended.IsZero() && v.ended.Before(before) })
	}
}

// settled reports whether every place has had the current states, or was reported.
func (u *user) settled() bool {
	for _, o := range u.objects {
		for i := range o.right {
			if !o.right[i] && !o.told[i] {
				return false
			}
		}
	}
	return true
}

// difference is a record that is not what it may be.
type difference struct {
	object *object
	kind   string
	got    *Seen // nil for none
}

// differences compares the records of a place, which may be those of any time since. What was reported is none.
func (u *user) differences(place int, all map[history.Object]Seen, since time.Time) (wrong []difference) {
	for _, o := range u.objects {
		d := difference{object: o, kind: lost}
		if s, ok := all[o.Object]; ok {
			d.got = &s
		}
		possible := false
		for _, v := range o.states {
			switch {
			case !v.is(d.got):
			case v.ended.IsZero():
				possible, o.right[place] = true, true
			case v.ended.After(since):
				possible = true
			}
		}
		if possible || o.told[place] {
			continue
		}
		switch {
		case !o.right[place] && place > 0:
			d.kind = late
		case d.got != nil && o.gone():
			d.kind = resurrected
		}
		wrong = append(wrong, d)
	}
	return wrong
}

// gone reports whether the object has no record now, whatever a pending operation does.
func (o *object) gone() bool {
	return !slices.ContainsFunc(o.states, func(v valid) bool { return v.ended.IsZero() && v.position > 0 })
}

// is reports whether a place has the state.
func (s state) is(got *Seen) bool {
	if got == nil {
		return s == state{}
	}
	return got.Position == s.position && (got.Partial || got.Plays == s.plays)
}

// String says what the object may be now.
func (o *object) String() string {
	var text string
	for _, v := range o.states {
		if v.ended.IsZero() && text != "" {
			text += " or "
		}
		if v.ended.IsZero() {
			text += v.String()
		}
	}
	return text
}

// String says what the state is.
func (s state) String() string {
	if s == (state{}) {
		return "no record"
	}
	return fmt.Sprintf("position %d, %d plays", s.position, s.plays)
}

func describe(got *Seen) string {
	if got == nil {
		return state{}.String()
	}
	return state{got.Position, got.Plays}.String()
}
