package history

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
}

// ClearedAt returns the time at or before which nothing of the given type exists,
// 0 if it was never cleared.
func (u *User) ClearedAt(typ uint32) int64 {
	if u == nil || len(u.Cleared) == 0 {
		return 0
	}
	return max(u.Cleared[0], u.Cleared[typ])
}

// Cut returns what the clear marks leave of a record of a type. Of one that they remove it
// notes the cell time in CutTime, so that what is made without it comes after it.
func (u *User) Cut(r *Record, typ uint32) *Record {
	left := r.After(u.ClearedAt(typ))
	if r != nil && left == nil {
		u.CutTime = max(u.CutTime, r.CellTime)
	}
	return left
}

// Complete reports whether the cache holds everything that exists of the user, so
// that an object it lacks is new.
func (u *User) Complete() bool { return u.Warm && u.Floor == 0 }
