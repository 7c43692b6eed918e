package client

import (
	"cmp"
	"sync"
	"time"
)

// longSleep is longer than any sleep, and shorter than what a clock is off that starts
// anew: what happened before it is too old to be reported.
const longSleep = 90 * 24 * time.Hour

// wakeful returns a clock for systems whose steady time stands still while the device
// sleeps. There a shown time that has run ahead is taken for a sleep, and any other
// difference for a clock that was set.
func wakeful(now func() (shown time.Time, steady time.Duration)) func() (time.Time, time.Duration) {
	var mu sync.Mutex
	var elapsed time.Duration
	lastShown, lastSteady := now()
	return func() (time.Time, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		shown, steady := now()
		passed := steady - lastSteady
		if seen := shown.Sub(lastShown); seen > passed && seen < longSleep {
			passed = seen
		}
		lastShown, lastSteady, elapsed = shown, steady, elapsed+passed
		return shown, elapsed
	}
}

// steadily returns the shown time, and the time since began as far as the device was awake.
func steadily(began time.Time) (time.Time, time.Duration) {
	now := time.Now()
	return now.Round(0), now.Sub(began)
}

// serviceClock tells the time by which the history judges events. It is what an answer said,
// and what has elapsed since the answer came: never ahead, and behind by no more than the
// quickest answer was on its way back. The round trip of an answer bounds it, too: where it is
// ahead after all, because what has elapsed was taken for more, it is put back.
type serviceClock struct {
	known  bool          // an answer has told the time since the device may last have slept
	silent bool          // an answer on this connection has not, and will not
	since  time.Duration // answers to what was sent before this moment do not count
	offset time.Duration // of the time since 1970 to what has elapsed

	lastAt time.Duration // when the event was that was dated last, in what has elapsed
	last   int64         // its date, Unix milliseconds
	shown  int64         // what the device's clock showed then, Unix milliseconds
	zero   time.Time     // and when nothing had elapsed
}

// apart is how far two looks at a clock that nobody has set may be apart: the two clocks are not read at one
// moment, and whoever reads them may be interrupted.
const apart = time.Second

// doubt is told that the device may have slept, and that nobody knows for how long.
func (s *serviceClock) doubt(elapsed time.Duration) {
	s.known, s.silent, s.since = false, false, elapsed
}

// answered is told of the time in an answer, 0 for none, and when the message was sent and the
// answer came.
func (s *serviceClock) answered(ms int64, sent, came time.Duration) {
	if s.silent = s.silent || ms == 0; sent < s.since || ms == 0 {
		return
	}
	now := time.Duration(ms) * time.Millisecond
	if !s.known {
		s.known, s.offset = true, now-came
	}
	s.offset = min(max(s.offset, now-came), now-sent)
}

// date gives a heartbeat the times of the history for those of the device. Two events that were
// reported in their order stay in it, whatever was learned about the time in between. What the device's clock
// showed says what that is, unless somebody has set it.
func (s *serviceClock) date(it *item) {
	shown, zero := it.EventTimeMs, it.zero
	at := time.Duration(shown)*time.Millisecond - time.Duration(zero.UnixNano())
	it.zero = time.Time{}
	if shown == 0 || max(shown, -shown) > maxTime {
		return // which is not valid
	}
	ms := (at + s.offset + time.Millisecond - 1).Milliseconds() // both times have lost some of a millisecond
	order := cmp.Compare(at, s.lastAt)
	switch {
	case s.last == 0:
		order = 1
	case zero.Sub(s.zero).Abs() < apart && shown >= s.shown: // else it may have been set back
		order = cmp.Compare(shown, s.shown)
	}
	if order >= 0 {
		ms = max(ms, s.last+int64(order))
		s.lastAt, s.last, s.shown, s.zero = max(at, s.lastAt), ms, shown, zero
	}
	it.shift(ms - shown)
}

// maxTime is beyond all times that are reported, in milliseconds before and after 1970.
const maxTime = 1 << 43

// date gives those heartbeats the times of the history that have the device's.
func (o *outbox) date(clock *serviceClock) {
	for _, it := range o.items {
		if !it.dated() {
			clock.date(it)
		}
	}
}
