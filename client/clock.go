package client

import (
	"cmp"
	"sync"
	"time"
)

// longSleep is longer than any sleep, and shorter than what a clock is off that starts
// anew: events from before such a sleep are too old to be reported.
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

	last   moment // the report that was dated last
	newest moment // and the newest one, which others of the device may be older than
}

// moment is when something was reported.
type moment struct {
	at    time.Duration // in what has elapsed
	shown int64         // by the device's clock, Unix milliseconds
	ms    int64         // its date, Unix milliseconds; 0 for no report
}

// compare says whether m was reported after another one, as [cmp.Compare]. It goes by what the device's clock showed,
// unless the clock was set in between.
func (m moment) compare(other moment) int {
	switch {
	case other.ms == 0:
		return 1
	case m.shown >= other.shown && m.at > other.at-apart: // else it may have been set
		return cmp.Compare(m.shown, other.shown)
	}
	return cmp.Compare(m.at, other.at)
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
// reported in their order stay in it, whatever was learned about the time in between.
func (s *serviceClock) date(it *item) {
	shown, zero := it.EventTimeMs, it.zero
	it.zero = time.Time{}
	if shown == 0 || max(shown, -shown) > maxTime {
		return // which is not valid
	}
	m := moment{at: time.Duration(shown)*time.Millisecond - time.Duration(zero.UnixNano()), shown: shown}
	m.ms = (m.at + s.offset + time.Millisecond - 1).Milliseconds() // both times have lost some of a millisecond
	for _, other := range []moment{s.last, s.newest} {
		if order := m.compare(other); order >= 0 {
			m.ms = max(m.ms, other.ms+int64(order))
		}
	}
	s.last = m
	if m.compare(s.newest) >= 0 {
		s.newest, s.newest.at = m, max(m.at, s.newest.at)
	}
	it.shift(m.ms - shown)
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
