// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"sync"
	"time"
)

// longSleep exceeds any sleep, and is below the step of a clock that restarts at its epoch. Events before such
// a sleep are too old to report.
const longSleep = 90 * 24 * time.Hour

// wakeful returns a clock for systems whose steady time stops during sleep. A displayed time that runs ahead of
// the steady one counts as sleep, any other difference as a set clock.
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

// steadily returns the displayed time, and the awake time since began.
func steadily(began time.Time) (time.Time, time.Duration) {
	now := time.Now()
	return now.Round(0), now.Sub(began)
}

// serviceClock estimates the history's time: the time in a response plus the elapsed time since. It is never
// ahead, and lags by at most the fastest response's way back. Overestimated elapsed time could put it ahead;
// the next round trip corrects that.
type serviceClock struct {
	known  bool          // a response told the time since the last possible sleep.
	silent bool          // a response on this connection had no time, and none will.
	since  time.Duration // responses to earlier messages do not count.
	offset time.Duration // from elapsed time to the time since 1970.

	last   moment // last dated report
	newest moment // latest dated report; others of the device may be older
}

type moment struct {
	at    time.Duration // elapsed time
	shown int64         // by the device's clock, Unix milliseconds
	ms    int64         // corrected time, Unix milliseconds; 0 for no report
}

// compare orders two reports as [cmp.Compare] does. It uses the displayed times, unless the clock was set in between.
func (m moment) compare(other moment) int {
	switch {
	case other.ms == 0:
		return 1
	case m.shown >= other.shown && m.at > other.at-apart: // else the clock may have been set
		return cmp.Compare(m.shown, other.shown)
	}
	return cmp.Compare(m.at, other.at)
}

// apart bounds the gap between two readings of an unset clock. The two clocks are read one after the other, and
// the reader may be interrupted.
const apart = time.Second

// doubt resets the estimate after a sleep of unknown length.
func (s *serviceClock) doubt(elapsed time.Duration) {
	s.known, s.silent, s.since = false, false, elapsed
}

// answered corrects the estimate by the time in a response, 0 for none, and the times of sending and receipt.
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

// date converts a heartbeat's times from the device's clock to the history's. It keeps the order of two events,
// even if the estimate changed in between.
func (s *serviceClock) date(it *item) {
	shown, zero := it.EventTimeMs, it.zero
	it.zero = time.Time{}
	if shown == 0 || max(shown, -shown) > maxTime {
		return // invalid
	}
	m := moment{at: time.Duration(shown)*time.Millisecond - time.Duration(zero.UnixNano()), shown: shown}
	m.ms = (m.at + s.offset + time.Millisecond - 1).Milliseconds() // both times are truncated to milliseconds
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

// maxTime exceeds all reported times, in milliseconds around 1970.
const maxTime = 1 << 43

// date converts all heartbeats that have the device's times.
func (o *outbox) date(clock *serviceClock) {
	for _, it := range o.items {
		if !it.dated() {
			clock.date(it)
		}
	}
}
