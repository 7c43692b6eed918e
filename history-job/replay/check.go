package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// Report is the result of a check: keys missing from a store, and records that differ from the model.
type Report struct {
	Records, Users int // in the model
	Missing, Wrong int
	// Examples describe up to five differences.
	Examples []string
}

// OK reports whether every record matched.
func (r Report) OK() bool { return r.Missing == 0 && r.Wrong == 0 }

const maxExamples = 5

const checkBatch = 500

// Reader reads records in bulk: nil for an absent record.
type Reader func(ctx context.Context, keys []history.Key) ([]*history.Record, error)

// FromCache returns a Reader of a cache.
func FromCache(c interface {
	Load(ctx context.Context, keys []history.Key) []history.Entry
},
) Reader {
	return func(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
		rs := make([]*history.Record, len(keys))
		for i, e := range c.Load(ctx, keys) {
			if e.Err != nil {
				return nil, e.Err
			}
			rs[i] = e.Record
		}
		return rs, nil
	}
}

// FromArchive returns a Reader of an archive.
func FromArchive(a history.Archive) Reader {
	return func(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
		entries, err := a.Get(ctx, keys)
		rs := make([]*history.Record, len(entries))
		for i, e := range entries {
			if e.Err != nil {
				return nil, e.Err
			}
			rs[i] = e.Record
		}
		return rs, err
	}
}

// Check compares every record of the model with each store.
func Check(ctx context.Context, model map[history.Key]*Expected, stores map[string]Reader) (Report, error) {
	keys := slices.Collect(maps.Keys(model))
	rep := Report{Records: len(keys), Users: users(keys)}
	for name, read := range stores {
		for batch := range slices.Chunk(keys, checkBatch) {
			rs, err := read(ctx, batch)
			if err != nil {
				return rep, fmt.Errorf("check %s: %w", name, err)
			}
			if len(rs) != len(batch) { // an unread key must not pass
				return rep, fmt.Errorf("check %s: %d answers for %d keys", name, len(rs), len(batch))
			}
			for i, r := range rs {
				rep.compare(name, batch[i], model[batch[i]], r)
			}
		}
	}
	return rep, nil
}

func (r *Report) compare(store string, k history.Key, want *Expected, got *history.Record) {
	switch {
	case got == nil:
		r.Missing++
		r.example("%s: %s is missing", store, k)
	case !want.Matches(got):
		r.Wrong++
		r.example("%s: %s is %+v, want %+v with %d plays", store, k, *got, *want, want.Plays())
	}
}

func (r *Report) example(format string, args ...any) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// CheckCounts compares the plays and viewers of each object with the model, and returns how many objects it has and how
// many differ. read returns totals in the order of the objects.
func CheckCounts(ctx context.Context, model map[history.Key]*Expected, read func(context.Context, []history.Object) ([]count.Totals, error)) (all, wrong int, err error) {
	want := make(map[history.Object]count.Sum)
	for k, e := range model {
		s := want[k.Object]
		if n := e.Plays(); n > 0 {
			s.Plays += int64(n) //nolint:gosec // of one trace
			s.Viewers++
		}
		want[k.Object] = s
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(want)), checkBatch) {
		totals, err := read(ctx, some)
		if err != nil {
			return 0, 0, fmt.Errorf("check counts: %w", err)
		}
		for i, t := range totals {
			t.All.Watched = 0
			if t.All != want[some[i]] {
				wrong++
			}
		}
	}
	return len(want), wrong, nil
}

func users(keys []history.Key) int {
	seen := make(map[string]struct{})
	for _, k := range keys {
		seen[k.UID] = struct{}{}
	}
	return len(seen)
}

// Expected is the expected state of one record. It is computed without the product's merge. It has the latest
// event by time and rank, the last known duration, the maximum of the positions, and the finished sessions.
type Expected struct {
	At       int64
	Kind     history.Kind
	Position int64
	Session  string
	Duration int64

	furthest      int64
	known         moment // of the event that last reported Duration
	nonEarly      moment // of the latest event past the first seconds of its viewing
	resumePointAt int64  // position of that event
	longest       int64  // longest reported duration
	sessions      map[string]*session
}

// session is one viewing: its longest reported duration and its reports.
type session struct {
	longest int64
	reports []history.Event
}

// completedAt returns when the session last reported the end of its longest duration, or 0.
func (s *session) completedAt() (at int64) {
	for _, ev := range s.reports {
		if ev.Duration > 0 && min(ev.Position, ev.Duration)*10 >= s.longest*9 {
			at = max(at, ev.At)
		}
	}
	return at
}

// moment orders events: at equal times a stop is later.
type moment struct {
	at   int64
	stop bool
}

func momentOf(at int64, k history.Kind) moment { return moment{at, k == history.KindStop} }

func (m moment) compare(o moment) int {
	switch c := cmp.Compare(m.at, o.at); {
	case c != 0 || m.stop == o.stop:
		return c
	case m.stop:
		return 1
	}
	return -1
}

// Plays returns the number of viewings that reached the end.
func (e *Expected) Plays() (n uint64) {
	for _, s := range e.sessions {
		if s.completedAt() > 0 {
			n++
		}
	}
	return n
}

// CompletedAt returns when a viewing last reported its end.
func (e *Expected) CompletedAt() (at int64) {
	for _, s := range e.sessions {
		at = max(at, s.completedAt())
	}
	return at
}

// Resume returns the resume point.
func (e *Expected) Resume() int64 {
	if e.nonEarly == (moment{}) {
		return e.within(e.Position)
	}
	return e.within(e.resumePointAt)
}

// Furthest returns the furthest position of all viewings.
func (e *Expected) Furthest() int64 { return e.within(e.furthest) }

// within clamps a position to the longest duration of any viewing.
func (e *Expected) within(position int64) int64 {
	if e.longest > 0 {
		return min(position, e.longest)
	}
	return position
}

// grace is the time, in milliseconds, in which a new viewing does not replace the resume point.
const grace = 10_000

// Model merges the plan in memory.
func Model(p *Plan) map[history.Key]*Expected {
	m := make(map[history.Key]*Expected)
	for i := range p.beats {
		ev := p.Event(i)
		e := m[ev.Key]
		if e == nil {
			e = &Expected{}
			m[ev.Key] = e
		}
		e.add(&ev)
	}
	return m
}

func (e *Expected) add(ev *history.Event) {
	now, position := momentOf(ev.At, ev.Kind), ev.Position
	if ev.Duration > 0 {
		position = min(position, ev.Duration)
		e.longest = max(e.longest, ev.Duration)
		if c := now.compare(e.known); c > 0 || c == 0 && ev.Duration > e.Duration {
			e.known, e.Duration = now, ev.Duration
		}
	}
	e.note(ev)
	e.furthest = max(e.furthest, position)
	if ev.Kind != history.KindStart && position >= grace && cmp.Or(now.compare(e.nonEarly), cmp.Compare(position, e.resumePointAt)) > 0 {
		e.nonEarly, e.resumePointAt = now, position
	}
	if cmp.Or(now.compare(momentOf(e.At, e.Kind)), cmp.Compare(position, e.Position), cmp.Compare(ev.Session, e.Session)) > 0 {
		e.At, e.Kind, e.Position, e.Session = ev.At, ev.Kind, position, ev.Session
	}
}

func (e *Expected) note(ev *history.Event) {
	if e.sessions == nil {
		e.sessions = make(map[string]*session)
	}
	s := e.sessions[ev.Session]
	if s == nil {
		s = &session{}
		e.sessions[ev.Session] = s
	}
	s.longest = max(s.longest, ev.Duration)
	s.reports = append(s.reports, *ev)
}

// Matches reports whether a record shows the expected state. A start and a heartbeat produce the same state.
func (e *Expected) Matches(r *history.Record) bool {
	state := history.StatePlaying
	if e.Kind == history.KindStop {
		state = history.StateStopped
	}
	return r != nil && r.Version.Time() == e.At && r.State == state && r.Position == e.Position && r.Resume() == e.Resume() &&
		r.Session == e.Session && r.Duration == e.Duration && r.Furthest() == e.Furthest() &&
		r.Plays() == e.Plays() && r.CompletedAt() == e.CompletedAt()
}
