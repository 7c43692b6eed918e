package history

// Rules say, for one type of objects, what of a viewing counts as what. A song is not
// begun, done and short where a film is.
type Rules struct {
	// Begun and Done are percents of the duration: from the one on a viewing is worth
	// going on with, from the other on it has reached the end.
	Begun, Done int64
	// Short is the duration, in milliseconds, below which nobody goes on with an object.
	Short int64
	// Grace is for how many milliseconds a session is too young to take away where the
	// user stopped before.
	Grace int64
}

var standard = Rules{Begun: 5, Done: 90, Short: 300_000, Grace: 10_000}

// Completes reports whether the event says that the viewing reached the end: it
// finished, or got that much of a known duration behind it.
func (r Rules) Completes(e *Event) bool {
	return e.Kind == KindFinish ||
		e.Kind != KindDelete && e.Duration > 0 && e.Position*100 >= e.Duration*r.Done
}

// Unfinished reports whether a visible record invites to go on: it is from the middle
// of something long enough, as far as that is known.
func (r Rules) Unfinished(rec *Record) bool {
	at := rec.Resume()
	if at == 0 || rec.State == StateFinished {
		return false
	}
	return rec.Duration == 0 ||
		rec.Duration >= r.Short && at*100 >= rec.Duration*r.Begun && at*100 < rec.Duration*r.Done
}

// early reports whether an event is of the first seconds of its session, as far as it
// tells: from where it starts one may have started by mistake. What the user sought, and
// what is finished, is meant.
func (r Rules) early(e *Event) bool {
	switch {
	case e.Kind == KindSeek || e.Kind == KindFinish || e.Kind == KindDelete:
		return false
	case e.Kind == KindStart:
		return true
	case e.StartedAt > 0:
		return e.At-e.StartedAt < r.Grace
	}
	return e.Position < r.Grace
}

// Record returns what the event alone says. It is partial: it knows nothing of
// what came before.
func (r Rules) Record(e *Event) *Record {
	rec := &Record{Version: VersionOf(e.At, e.Kind.rank()), State: e.Kind.state(), Session: e.Session, Device: e.Device, Partial: true}
	if e.Kind == KindDelete {
		rec.Reset = e.At
		return rec
	}
	rec.Position, rec.Early = e.Position, r.early(e)
	if e.Duration > 0 {
		rec.Duration, rec.DurationVersion = e.Duration, rec.Version
	}
	if len(e.Meta) > 0 {
		rec.Meta, rec.MetaVersion = e.Meta, rec.Version
	}
	if r.Completes(e) {
		rec.Completions = []Completion{{At: e.At, Viewing: e.Viewing()}}
	}
	if e.Watched > 0 {
		rec.Watches = []Watch{{At: e.At, Viewing: e.Viewing(), Watched: e.Watched}}
	}
	return rec
}
