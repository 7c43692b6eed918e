package history

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"strconv"
	"strings"
)

// User is the state that applies to all of a user's records.
type User struct {
	// Warm means that the cache is authoritative for the user above the low watermark. A cold user's list may be
	// incomplete.
	Warm bool
	// LowWatermark is the lower bound of the cache's complete range: it has every record of a warm user from
	// this version on. 0 is the whole history.
	LowWatermark Version
	// Cleared holds the clear marks by object type, 0 for all types: nothing at or before that time exists.
	Cleared map[uint32]int64
	// CutTime is the latest cell time of cleared content, 0 without any. A content made from none of it needs a
	// later cell time.
	CutTime int64
	// Pause is the time without recording.
	Pause Pause
	// Revision identifies the clear marks and the pause in the cache, 0 if never set: [Applier.Clear] and
	// [Applier.Pause] draw a new one.
	Revision uint64
	// Segments is the version of the user's segments in the archive, 0 for none. Only the archive uses it.
	Segments uint64
}

// ClearedAt returns the time up to which nothing of the type exists, 0 if never cleared.
func (u *User) ClearedAt(typ uint32) int64 {
	if u == nil || len(u.Cleared) == 0 {
		return 0
	}
	return max(u.Cleared[0], u.Cleared[typ])
}

// MergeCleared adds the clear marks of another store. It allocates a new map, since users are shared.
func (u *User) MergeCleared(marks map[uint32]int64) {
	if len(marks) == 0 {
		return
	}
	all := maps.Clone(marks)
	for typ, until := range u.Cleared {
		all[typ] = max(all[typ], until)
	}
	u.Cleared = all
}

// Complete reports whether the cache has the user's whole history, so that a missing object is new.
func (u *User) Complete() bool { return u.Warm && u.LowWatermark == 0 }

// Pause is a user's time without recording. Events after Since are dropped, up to Until if that is later. The
// zero value is no pause.
type Pause struct {
	Since, Until int64 // Unix milliseconds
	// Earlier are the finished pauses before.
	Earlier Pauses
}

// Pauses are a user's finished pauses, newest first and without overlap: pairs of begin and end. They are
// decimal Unix milliseconds, separated by spaces.
type Pauses string

// MaxPauses is the number of earlier pauses kept.
const MaxPauses = 15

func (ps Pauses) all() iter.Seq2[int64, int64] {
	return func(yield func(since, until int64) bool) {
		for rest := string(ps); rest != ""; {
			since, until := int64(0), int64(0)
			if since, rest = nextTime(rest); rest == "" {
				return
			}
			if until, rest = nextTime(rest); !yield(since, until) {
				return
			}
		}
	}
}

// nextTime splits off the first number, 0 if invalid.
func nextTime(text string) (at int64, rest string) {
	text, rest, _ = strings.Cut(text, " ")
	at, _ = strconv.ParseInt(text, 10, 64)
	return at, rest
}

// Valid reports whether the text is a canonical encoding.
func (ps Pauses) Valid() bool {
	var again Pauses
	after := int64(math.MaxInt64)
	for since, until := range ps.all() {
		if since < 0 || until < since || until >= after {
			return false
		}
		after = since
		again += Pauses(fmt.Sprintf(" %d %d", since, until))
	}
	return ps == "" || again == " "+ps
}

// with adds a pause and drops excess pauses.
func (ps Pauses) with(since, until int64) Pauses {
	all, n := fmt.Sprintf("%d %d", since, until), 1
	for since, until := range ps.all() {
		if n++; n > MaxPauses {
			break
		}
		all += fmt.Sprintf(" %d %d", since, until)
	}
	return Pauses(all)
}

// On reports whether recording is off.
func (p Pause) On() bool { return p.Since > p.Until }

// Covers reports whether an event at a time is dropped.
func (p Pause) Covers(at int64) bool {
	if at > p.Since {
		return p.Since > 0 && (p.On() || at <= p.Until)
	}
	for since, until := range p.Earlier.all() {
		if at > since {
			return at <= until
		}
	}
	return false
}

// ClockError is the maximum clock skew between services, in milliseconds.
const ClockError = 2000

// Refuses reports whether a service must drop an event from at to at+late milliseconds that arrives at now.
// While recording is off it drops all events that may be later than the switch. If the clock stepped back
// behind the switch, it drops all events.
func (p Pause) Refuses(at, late, now int64) bool {
	if p.On() {
		return at+late > p.Since || now < p.Since && (now < p.Since-ClockError || at > now-ClockError) || p.Covers(at)
	}
	return p.Covers(at)
}

// Within returns the paused time in an interval, in milliseconds.
func (p Pause) Within(from, to int64) (ms int64) {
	if p.Since == 0 {
		return 0
	}
	until := p.Until
	if p.On() {
		until = to
	}
	ms = max(min(to, until)-max(from, p.Since), 0)
	for since, until := range p.Earlier.all() {
		if until <= from {
			break
		}
		ms += max(min(to, until)-max(from, since), 0)
	}
	return ms
}

// Meets reports whether recording was off, or may have been, at some time in the interval. The time before the
// oldest pause counts as paused if the list is full.
func (p Pause) Meets(from, to int64) bool {
	n, oldest := 0, p.Since
	for since := range p.Earlier.all() {
		n, oldest = n+1, since
	}
	return p.Within(from, to) > 0 || n == MaxPauses && from < oldest
}

// Switched returns the pause after a switch of recording at a time; a switch to the current state changes
// nothing. A pause begins after the newest record, whose time is given, since clocks of services differ. A
// record more than [ClockError] ahead does not count. Every change is later than the one before, which orders
// the pauses of a user. Earlier pauses are kept, up to [MaxPauses].
func (p Pause) Switched(recording bool, at, newest int64) Pause {
	if newest > at+ClockError {
		newest = 0
	}
	switch {
	case recording == !p.On():
		return p
	case recording:
		return Pause{Since: p.Since, Until: max(at, p.Since+1), Earlier: p.Earlier}
	case p.Since == 0:
		return Pause{Since: max(at, newest)}
	default:
		next := max(at, newest, p.Until+1)
		return Pause{Since: next, Earlier: p.Earlier.with(p.Since, p.Until)}
	}
}

// Changed returns the time of the last switch.
func (p Pause) Changed() int64 { return max(p.Since, p.Until) }

// Newer returns the newer of two pauses of a user. For equal times it prefers an active pause, then the larger
// one, then the longer history. The order is total: the result does not depend on the order of comparisons.
func (p Pause) Newer(q Pause) Pause {
	by := cmp.Compare(q.Changed(), p.Changed())
	switch {
	case by > 0:
	case by < 0, p.On() && !q.On():
		return p
	case q.On() && !p.On():
	case cmp.Or(cmp.Compare(q.Since+q.Until, p.Since+p.Until), cmp.Compare(len(p.Earlier), len(q.Earlier)), cmp.Compare(p.Earlier, q.Earlier)) >= 0:
		return p
	}
	return q
}

// StatePlace is the place under which an erasure counts the dirty mark of the user's own state. While it exists,
// the latest clear may not have reached a job.
const StatePlace = "cache: state to be archived"
