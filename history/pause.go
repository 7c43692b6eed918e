package history

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

// Switched returns what is remembered after recording was switched on or off at a time.
// To switch it to what it is changes nothing. What was recorded before, the newest of it
// at the given time, stays outside: clocks of services differ a little. Every change is
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

// Newer returns the newer of two pauses of a user.
func (p Pause) Newer(q Pause) Pause {
	if q.Changed() > p.Changed() {
		return q
	}
	return p
}
