package count

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// Counters keeps the totals of objects, and what was counted of their users. Its methods are safe for concurrent use,
// also by several processes.
type Counters interface {
	// Count counts statements and returns a result for each, in order. A statement changes nothing if it or a later one
	// was counted, if its record has expired, or if its user was erased since. The mark and the totals change in one step.
	Count(ctx context.Context, statements []Statement) []Result
	// Totals returns the totals of objects, in order, the zero value for unknown ones. It reads at most [MaxRows] rows
	// for each object, whatever the number of users.
	Totals(ctx context.Context, objects []history.Object) ([]Totals, error)
	// Marks returns what was counted of users and objects, in order, the zero Mark for nothing.
	Marks(ctx context.Context, keys []history.Key) ([]Mark, error)
	// Held counts a user's marks by place; those of statements up to a time in Unix milliseconds, or all for 0.
	Held(ctx context.Context, uid string, until int64) (map[string]int, error)
	// Erase removes a user's marks of statements up to a time, in Unix milliseconds. The totals stay. Statements up to
	// then that arrive later are not counted.
	Erase(ctx context.Context, uid string, until int64) error
}

// Publisher takes statements.
type Publisher interface {
	// Publish sends statements to the counters, durably. It returns those that may not have been sent, with the cause; a
	// repeat is harmless.
	Publish(ctx context.Context, statements []Statement) (unsent []Statement, err error)
}

// MaxRows bounds the rows of an object.
const MaxRows = 64

// MarksPlace is the place of marks in [Counters.Held].
const MarksPlace = "counts: marks"

// Result is the result of a statement.
type Result struct {
	// Counted means that the statement was counted now.
	Counted bool
	// Negative means that a total of the object is below 0, which is a fault.
	Negative bool
	// Rows is the number of rows that the object is known to have.
	Rows int
	// Err wraps [history.ErrUnavailable], or [history.ErrPermanent] for a mark or row that cannot be decoded.
	Err error
}

// Memory keeps counters in memory, for tests.
type Memory struct {
	rules *history.Rulebook
	now   func() time.Time

	mu     sync.Mutex
	marks  map[history.Key]Mark
	totals map[history.Object]Totals
	erased map[string]int64
}

var _ Counters = (*Memory)(nil)

// NewMemory returns empty counters.
func NewMemory(rules *history.Rulebook, now func() time.Time) *Memory {
	return &Memory{
		rules: rules, now: now,
		marks: make(map[history.Key]Mark), totals: make(map[history.Object]Totals), erased: make(map[string]int64),
	}
}

// Count implements [Counters].
func (m *Memory) Count(_ context.Context, statements []Statement) []Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]Result, len(statements))
	now := m.now().UnixMilli()
	for i := range statements {
		s := &statements[i]
		t := m.totals[s.Object]
		mark := m.marks[s.Key()]
		if !mark.Ignores(s, m.rules, now, m.erased[s.UID]) {
			closed := Closed(s.Object, m.rules, now)
			next, change := mark.Count(s, closed)
			t.Days = slices.Clone(t.Days)
			t.Add(change)
			t.Close(closed)
			m.marks[s.Key()], m.totals[s.Object] = next, t
			results[i].Counted = true
		}
		results[i].Negative, results[i].Rows = t.Negative(), 1
	}
	return results
}

// Totals implements [Counters].
func (m *Memory) Totals(_ context.Context, objects []history.Object) ([]Totals, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Totals, len(objects))
	now := m.now().UnixMilli()
	for i, o := range objects {
		t := m.totals[o]
		t.Days = slices.Clone(t.Days)
		t.Close(Closed(o, m.rules, now))
		t.Through = now
		all[i] = t
	}
	return all, nil
}

// Marks implements [Counters].
func (m *Memory) Marks(_ context.Context, keys []history.Key) ([]Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Mark, len(keys))
	for i, k := range keys {
		all[i] = m.marks[k]
	}
	return all, nil
}

// Held implements [Counters].
func (m *Memory) Held(_ context.Context, uid string, until int64) (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := map[string]int{MarksPlace: 0}
	for k, mark := range m.marks {
		if k.UID == uid && (until == 0 || mark.CellTime <= until) {
			held[MarksPlace]++
		}
	}
	return held, nil
}

// Erase implements [Counters].
func (m *Memory) Erase(_ context.Context, uid string, until int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, mark := range m.marks {
		if k.UID == uid && mark.CellTime <= until {
			delete(m.marks, k)
		}
	}
	m.erased[uid] = max(m.erased[uid], until)
	return nil
}

// Following returns counters whose totals say up to which time everything archived is in them.
func Following(c Counters, through func() int64) Counters { return following{c, through} }

type following struct {
	Counters

	through func() int64
}

// Totals implements [Counters]. The totals are read after the time, so that they include what it promises.
func (f following) Totals(ctx context.Context, objects []history.Object) ([]Totals, error) {
	through := f.through()
	all, err := f.Counters.Totals(ctx, objects)
	for i := range all {
		all[i].Through = through
	}
	return all, err
}

// Delivery is some messages of history.counts.
type Delivery struct {
	Statements []Statement
	Poison     []history.Poison // undecodable messages
	Messages   int
}
