package history

// Activity tells when a record was played. Its slices are reused by [Record.Activity].
type Activity struct {
	// Viewings are those of [Record.Sessions], without its limit, in no order.
	Viewings []ActiveViewing
	// Plays are the times of the completed plays, in Unix milliseconds.
	Plays []int64
}

// ActiveViewing is when one viewing was played.
type ActiveViewing struct {
	viewing uint64
	// End is the time of the last report, in Unix milliseconds. Device is empty unless the record lists the viewing.
	End    int64
	Device string
	// Watched is the part of the object played from Began to Until, in milliseconds, at most the time between them.
	// All are 0 for a player that reports none.
	Began, Until, Watched int64
}

// Activity stores the activity of a visible record in a.
func (r *Record) Activity(a *Activity) {
	a.Viewings, a.Plays = a.Viewings[:0], a.Plays[:0]
	for v := range r.all {
		a.Viewings = append(a.Viewings, ActiveViewing{viewing: v.Viewing, End: v.Version.Time(), Device: v.Device})
	}
	for _, w := range r.watches() {
		v := a.at(w.Viewing, w.At)
		if w.Began <= 0 {
			w.Began = w.At - w.Watched
		}
		if watched := min(w.Watched, w.At-w.Began); watched > v.Watched {
			v.Began, v.Until, v.Watched = w.Began, w.At, watched
		}
	}
	for _, p := range r.plays() {
		a.Plays = append(a.Plays, p.At)
		if p.Viewing != markViewing {
			a.at(p.Viewing, p.At)
		}
	}
}

// at returns a viewing that reported at a time.
func (a *Activity) at(viewing uint64, at int64) *ActiveViewing {
	for i := range a.Viewings {
		if v := &a.Viewings[i]; v.viewing == viewing {
			v.End = max(v.End, at)
			return v
		}
	}
	a.Viewings = append(a.Viewings, ActiveViewing{viewing: viewing, End: at})
	return &a.Viewings[len(a.Viewings)-1]
}
