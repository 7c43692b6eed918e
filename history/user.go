package history

import (
	"cmp"
	"context"
	"maps"
)

// User is what holds for all of a user's records.
type User struct {
	// Warm means that the cache knows the user. Of a cold one it can say what it
	// has, not what there is.
	Warm bool
	// Floor bounds what the cache is sure of: every record of a warm user whose
	// version is at or above it is in the cache. 0 means all of them.
	Floor Version
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
	// Parts is the version of the parts that the archive has of the user, 0 for none. It is of no
	// concern to anybody but the archive.
	Parts uint64
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
func (u *User) Complete() bool { return u.Warm && u.Floor == 0 }

// Pause is a time in which a user did not want to be recorded: nothing is kept of what
// happened after Since, and up to Until where that is later. Of all pauses of a user
// only the newest is remembered. The zero value is none.
type Pause struct {
	Since, Until int64 // Unix milliseconds
}

// On reports whether recording is switched off.
func (p Pause) On() bool { return p.Since > p.Until }

// Covers reports whether nothing is kept of what happened at a time.
func (p Pause) Covers(at int64) bool {
	return p.Since > 0 && at > p.Since && (p.On() || at <= p.Until)
}

// Within returns for how many milliseconds of a stretch of time recording was switched off.
func (p Pause) Within(from, to int64) int64 {
	if p.Since == 0 {
		return 0
	}
	if !p.On() {
		to = min(to, p.Until)
	}
	return max(to-max(from, p.Since), 0)
}

// Switched returns what is remembered after recording was switched on or off at a time.
// Switching it to what it already is changes nothing. A pause begins after the newest record,
// whose time is given: the clocks of services differ a little. Every change is
// later than the one before, so that of two pauses of a user the newer one is known.
func (p Pause) Switched(recording bool, at, newest int64) Pause {
	switch {
	case recording == !p.On():
		return p
	case recording:
		return Pause{Since: p.Since, Until: max(at, p.Since+1)}
	default:
		return Pause{Since: max(at, newest, p.Until+1)}
	}
}

// Changed returns when recording was last switched on or off.
func (p Pause) Changed() int64 { return max(p.Since, p.Until) }

// Newer returns the newer of two pauses of a user. Of two that were changed at one moment it is the one that lasts, or else the
// one that covers more: in whatever order pauses are compared, the same one stays.
func (p Pause) Newer(q Pause) Pause {
	by := cmp.Compare(q.Changed(), p.Changed())
	switch {
	case by > 0:
	case by < 0, p.On() && !q.On():
		return p
	case p.On() == q.On() && q.Since+q.Until >= p.Since+p.Until: // one of the two is the same
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

// Sectioner is an [Eraser] that has sections of users, see [Class].
type Sectioner interface {
	// Sections returns the uids of all sections of classes that the store may have anything of, also of classes that
	// nobody knows any more.
	Sections(ctx context.Context, uid string) ([]string, error)
}
