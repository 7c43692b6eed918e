package history

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"strconv"
	"strings"
)

// User is what holds for all of a user's records.
type User struct {
	// Warm means that the cache knows the user. Of a cold one it can say what it
	// has, not what there is.
	Warm bool
	// LowWatermark bounds what the cache is sure of: every record of a warm user whose
	// version is at or above it is in the cache. 0 means all of them.
	LowWatermark Version
	// Cleared holds the clear marks by object type, 0 for all types: nothing at or
	// before that time exists.
	Cleared map[uint32]int64
	// CutTime is the latest cell time among the contents that clear marks removed, 0
	// without any: a content that is made from none of them must come after it.
	CutTime int64
	// Pause is when the user did not want to be recorded.
	Pause Pause
	// Revision names the clear marks and the pause in the cache, 0 where there never
	// were any: [Applier.Clear] and [Applier.Pause] draw a new one.
	Revision uint64
	// Segments is the version of the segments that the archive has of the user, 0 for none. It is of no
	// concern to anybody but the archive.
	Segments uint64
}

// ClearedAt returns the time at or before which nothing of the given type exists,
// 0 if it was never cleared.
func (u *User) ClearedAt(typ uint32) int64 {
	if u == nil || len(u.Cleared) == 0 {
		return 0
	}
	return max(u.Cleared[0], u.Cleared[typ])
}

// MergeCleared adds the clear marks of another store. The map is a new one, since users are shared.
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

// Complete reports whether the cache holds everything that exists of the user, so
// that an object it lacks is new.
func (u *User) Complete() bool { return u.Warm && u.LowWatermark == 0 }

// Pause says when a user did not want to be recorded: nothing is kept of what
// happened after Since, and up to Until where that is later. The zero value is never.
type Pause struct {
	Since, Until int64 // Unix milliseconds
	// Earlier are the pauses before, which are over.
	Earlier Pauses
}

// Pauses are the pauses of a user that are over, newest first: since when and until when nothing is recorded, in Unix
// milliseconds, as decimal numbers with a space between two of them. No two of them overlap.
type Pauses string

// MaxPauses is how many earlier pauses are remembered.
const MaxPauses = 15

// all returns the pauses, newest first.
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

// nextTime returns the first of the numbers in a text, 0 where it is none, and the others.
func nextTime(text string) (at int64, rest string) {
	text, rest, _ = strings.Cut(text, " ")
	at, _ = strconv.ParseInt(text, 10, 64)
	return at, rest
}

// Valid reports whether the text is one that pauses have.
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

// with adds a pause, and drops those that ended at or before a time or are too many.
func (ps Pauses) with(since, until, oldest int64) Pauses {
	all, n := fmt.Sprintf("%d %d", since, until), 1
	for since, until := range ps.all() {
		if n++; n > MaxPauses || until <= oldest {
			break
		}
		all += fmt.Sprintf(" %d %d", since, until)
	}
	return Pauses(all)
}

// On reports whether recording is switched off.
func (p Pause) On() bool { return p.Since > p.Until }

// Covers reports whether nothing is kept of what happened at a time.
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

// ClockError is by how many milliseconds clocks of services may differ.
const ClockError = 2000

// Refuses reports whether what happened at a time, or up to late milliseconds after it, is not to be stored where it arrives now.
// While recording is off, what may be later than the switch is refused: all, where the clock has stepped back behind the
// switch.
func (p Pause) Refuses(at, late, now int64) bool {
	if p.On() {
		return at+late > p.Since || now < p.Since && (now < p.Since-ClockError || at > now-ClockError) || p.Covers(at)
	}
	return p.Covers(at)
}

// Within returns for how many milliseconds of a interval recording was switched off.
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

// Meets reports whether recording was or may have been off at some time between. Before the oldest pause that is remembered, it may have
// been if as many are remembered as can be.
func (p Pause) Meets(from, to int64) bool {
	n, oldest := 0, p.Since
	for since := range p.Earlier.all() {
		n, oldest = n+1, since
	}
	return p.Within(from, to) > 0 || n == MaxPauses && from < oldest
}

// Switched returns what is remembered after recording was switched on or off at a time.
// Switching it to what it already is changes nothing. A pause begins after the newest record,
// whose time is given: the clocks of services differ a little. A record further ahead is of a wrong clock, and does not count. Every change is
// later than the one before, so that of two pauses of a user the newer one is known. Earlier pauses are remembered as long
// as records are.
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
		return Pause{Since: next, Earlier: p.Earlier.with(p.Since, p.Until, next-ArchiveTTL)}
	}
}

// Changed returns when recording was last switched on or off.
func (p Pause) Changed() int64 { return max(p.Since, p.Until) }

// Newer returns the newer of two pauses of a user. Of two that were changed at one moment it is the one that lasts, or else the
// one that covers more, or else that which knows more earlier ones: in whatever order pauses are compared, the same one stays.
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

// StatePlace is where [Eraser.Held] counts the dirty mark of the user's own state: until that has gone, no job knows of the latest clear.
const StatePlace = "cache: state to be archived"

// Eraser is a store that can remove everything that it has of a user, at once and not in its own time.
type Eraser interface {
	// Held says by place how much the store has of a user of a time or before, in Unix milliseconds; 0 is of all
	// times. Records that are no longer visible, but still stored, are counted.
	Held(ctx context.Context, uid string, until int64) (map[string]int, error)
	// Erase removes that. The user was cleared up to that time in the cache, and the store keeps the clear mark: what
	// comes late of what was erased does not exist. It also keeps the pause. It may be called again, with the same
	// time or a later one.
	Erase(ctx context.Context, uid string, until int64) error
	// Remains says in sentences where bytes of what was erased are until something else removes them.
	Remains(ctx context.Context) []string
}

// Sectioner is an [Eraser] that has namespaces of users, see [Class].
type Sectioner interface {
	// Namespaces returns the uids of all namespaces of classes that the store may have anything of, also of classes that
	// nobody knows any more.
	Namespaces(ctx context.Context, uid string) ([]string, error)
}
