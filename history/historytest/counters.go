package historytest

import (
	"crypto/rand"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// CounterStore is a store of counters under test.
type CounterStore struct {
	count.Counters
	// Now is the store's clock. Pass advances it; it is nil if unsupported.
	Now  func() time.Time
	Pass func(time.Duration)
}

// Counters tests the contract of [count.Counters] under the standard rules. Stores may share data: the suite uses new
// users and objects.
func Counters(t *testing.T, open func(t *testing.T) CounterStore) {
	for _, part := range []struct {
		name  string
		waits bool // needs Pass
		test  func(*counters)
	}{
		{"Once", false, countedOnce},
		{"TakenBack", false, countedBack},
		{"Removed", false, countedRemoved},
		{"RemovedBefore", false, countedRemovedBefore},
		{"Nothing", false, countedNothing},
		{"ManyUsers", false, countedMany},
		{"Concurrently", false, countedConcurrently},
		{"Erased", false, countedErased},
		{"Expired", true, countedExpired},
		{"Model", false, countedModel},
	} {
		t.Run(part.name, func(t *testing.T) {
			c := &counters{T: t, CounterStore: open(t), uid: freshUID(), object: history.Object{ID: "count/" + rand.Text(), Type: 2}}
			if part.waits && c.Pass == nil {
				return
			}
			c.begin()
			part.test(c)
		})
	}
}

type counters struct {
	*testing.T
	CounterStore
	uid    string
	object history.Object
	began  int64 // Unix milliseconds
	today  history.Day
}

// begin makes statements of now on.
func (c *counters) begin() {
	c.began = c.Now().UnixMilli()
	c.today = history.Day(c.began / day)
}

// says returns a statement of the test's user and object: plays and minutes of each day ago.
func (c *counters) says(cell, removed int64, played ...[3]int64) count.Statement {
	s := count.Statement{UID: c.uid, Object: c.object, CellTime: c.began - 1000 + cell}
	if removed > 0 {
		s.RemovedAt = c.began - 1000 + removed
	}
	for _, p := range played {
		s.Played = append(s.Played, history.Played{At: c.began - p[0]*day, Plays: uint64(p[1]), Watched: p[2] * 60_000}) //nolint:gosec // small
	}
	return s
}

// viewed is the sum of one user's plays, with minutes.
func viewed(plays, watched int64) count.Sum {
	return count.Sum{Plays: plays, Viewers: min(plays, 1), Watched: watched * minutes}
}

// count counts statements one by one, or all at once, and returns how many changed anything.
func (c *counters) count(statements ...count.Statement) (counted int) {
	c.Helper()
	for i, r := range c.Count(c.Context(), statements) {
		if r.Err != nil || r.Negative || r.Rows < 1 || r.Rows > count.MaxRows {
			c.Fatalf("count %+v: %+v", statements[i], r)
		}
		if r.Counted {
			counted++
		}
	}
	return counted
}

func (c *counters) total(o history.Object) count.Totals {
	c.Helper()
	all, err := c.Totals(c.Context(), []history.Object{o})
	if err != nil || len(all) != 1 {
		c.Fatalf("totals of %s: %v, %v", o, all, err)
	}
	return all[0]
}

// wants compares the totals of the test's object: all, then each day with its age.
func (c *counters) wants(what string, all count.Sum, days map[int64]count.Sum) {
	c.Helper()
	got := c.total(c.object)
	if got.All != all {
		c.Errorf("%s: got %+v in all, want %+v", what, got.All, all)
	}
	ages := make(map[int64]count.Sum)
	for _, d := range got.Days {
		ages[int64(c.today-d.Day)] = d.Sum
	}
	if !maps.Equal(ages, days) {
		c.Errorf("%s: got %+v by age, want %+v", what, ages, days)
	}
	if !slices.IsSortedFunc(got.Days, func(a, b count.DaySum) int { return int(a.Day - b.Day) }) {
		c.Errorf("%s: days out of order: %+v", what, got.Days)
	}
}

const minutes = 60_000

// countedOnce: a statement repeated, overtaken, or in one call with others counts once.
func countedOnce(c *counters) {
	first, second := c.says(1, 0, [3]int64{3, 1, 10}), c.says(2, 0, [3]int64{3, 1, 10}, [3]int64{0, 2, 25})
	for i, want := range []int{1, 0} {
		if got := c.count(first); got != want {
			c.Errorf("first statement, time %d: counted %d, want %d", i+1, got, want)
		}
	}
	c.wants("first", count.Sum{Plays: 1, Viewers: 1, Watched: 10 * minutes}, map[int64]count.Sum{3: {Plays: 1, Viewers: 1, Watched: 10 * minutes}})
	if got := c.count(second, first, second); got != 1 {
		c.Errorf("second, first, second at once: counted %d, want 1", got)
	}
	want := map[int64]count.Sum{3: {Plays: 1, Viewers: 1, Watched: 10 * minutes}, 0: {Plays: 2, Viewers: 1, Watched: 25 * minutes}}
	c.wants("second", count.Sum{Plays: 3, Viewers: 1, Watched: 35 * minutes}, want)
	if got := c.count(first); got != 0 {
		c.Errorf("overtaken statement: counted %d, want 0", got)
	}
	c.wants("overtaken", count.Sum{Plays: 3, Viewers: 1, Watched: 35 * minutes}, want)
	class := c.says(9, 9) // a tombstone beside the record
	class.UID = history.NamespaceUID(c.uid, "clips")
	c.count(class)
	c.wants("deleted in a class", count.Sum{Plays: 3, Viewers: 1, Watched: 35 * minutes}, want)
	marks, err := c.Marks(c.Context(), []history.Key{second.Key(), {UID: freshUID(), Object: c.object}})
	if err != nil || len(marks) != 2 || marks[0].CellTime != second.CellTime || !slices.Equal(marks[0].Played, second.Played) || marks[1].CellTime != 0 {
		c.Errorf("marks of a counted user and another: got %+v, %v", marks, err)
	}
}

// countedBack: a completion that is taken back leaves nothing, the viewer neither.
func countedBack(c *counters) {
	c.count(c.says(1, 0, [3]int64{1, 2, 5}))
	c.count(c.says(2, 0, [3]int64{0, 0, 5}))
	c.wants("taken back", count.Sum{Watched: 5 * minutes}, map[int64]count.Sum{0: {Watched: 5 * minutes}})
	c.count(c.says(3, 0))
	c.wants("everything", count.Sum{}, map[int64]count.Sum{})
	if got := c.count(c.says(1, 0, [3]int64{1, 2, 5})); got != 0 {
		c.Errorf("the first statement again: counted %d, want 0", got)
	}
}

// countedRemoved: a removal takes nothing away. What comes after counts too, the viewer once.
func countedRemoved(c *counters) {
	c.count(c.says(1, 0, [3]int64{2, 1, 10}))
	c.count(c.says(2, 2))
	c.wants("deleted", count.Sum{Plays: 1, Viewers: 1, Watched: 10 * minutes}, map[int64]count.Sum{2: {Plays: 1, Viewers: 1, Watched: 10 * minutes}})
	if got := c.count(c.says(5, 0, [3]int64{2, 4, 10})); got != 0 {
		c.Errorf("a statement from before the removal: counted %d, want 0", got)
	}
	c.count(c.says(3, 2, [3]int64{0, 1, 1}))
	want := map[int64]count.Sum{2: viewed(1, 10), 0: viewed(1, 1)}
	c.wants("played again", viewed(2, 11), want)
	again := c.says(4, 0, [3]int64{0, 1, 0})
	again.RemovedAt, again.Played[0].At = c.began, c.began+1
	c.count(again)
	want[0] = viewed(2, 1)
	c.wants("deleted twice, played", viewed(3, 11), want)
	again.CellTime, again.Played = again.CellTime+1, nil
	c.count(again)
	want[0] = viewed(1, 1)
	c.wants("taken back", viewed(2, 11), want)
}

// countedRemovedBefore: a removal up to a past time is known after later plays were counted. They stay counted once, and
// may still be taken back.
func countedRemovedBefore(c *counters) {
	c.count(c.says(1, 0, [3]int64{3, 1, 10}, [3]int64{1, 2, 20}, [3]int64{0, 1, 30}))
	removed := func(cell, ago int64, played ...[3]int64) count.Statement {
		s := c.says(cell, 0, played...)
		s.RemovedAt = c.began - ago*day - day/24
		return s
	}
	for i, s := range []count.Statement{
		removed(2, 1, [3]int64{1, 2, 20}, [3]int64{0, 1, 30}),
		removed(3, 0, [3]int64{0, 1, 30}),
	} {
		if got := c.count(s, s); got != 1 {
			c.Errorf("removal %d: counted %d, want 1", i+1, got)
		}
		c.wants("removed up to a past time", count.Sum{Plays: 4, Viewers: 1, Watched: 60 * minutes}, map[int64]count.Sum{
			3: viewed(1, 10), 1: viewed(2, 20), 0: viewed(1, 30),
		})
	}
	c.count(removed(4, 0))
	c.wants("taken back", viewed(3, 30), map[int64]count.Sum{3: viewed(1, 10), 1: viewed(2, 20)})
}

// countedNothing: unknown objects have zero totals, in order.
func countedNothing(c *counters) {
	if got := c.count(); got != 0 {
		c.Errorf("no statements: counted %d", got)
	}
	c.count(c.says(1, 0, [3]int64{0, 1, 0}))
	other := history.Object{ID: c.object.ID, Type: c.object.Type + 1}
	all, err := c.Totals(c.Context(), []history.Object{other, c.object, other})
	if err != nil || len(all) != 3 || all[0].All != (count.Sum{}) || all[1].All.Plays != 1 || all[2].All != (count.Sum{}) {
		c.Errorf("totals of an unknown object, a counted one and the first: %+v, %v", all, err)
	}
	if all, err := c.Totals(c.Context(), nil); err != nil || len(all) != 0 {
		c.Errorf("totals of nothing: %v, %v", all, err)
	}
}

// users returns a statement of each of n users.
func (c *counters) users(n int, cell int64) (all []count.Statement) {
	for i := range n {
		s := c.says(cell, 0, [3]int64{int64(i % 3), 1, 1})
		s.UID = fmt.Sprintf("%s-%d", c.uid, i)
		all = append(all, s)
	}
	return all
}

// countedMany: users of one object in one call.
func countedMany(c *counters) {
	const n = 300
	all := c.users(n, 1)
	if got := c.count(append(all, all...)...); got != n {
		c.Errorf("each of %d users twice: counted %d", n, got)
	}
	each := count.Sum{Plays: n / 3, Viewers: n / 3, Watched: n / 3 * minutes}
	c.wants("many users", count.Sum{Plays: n, Viewers: n, Watched: n * minutes}, map[int64]count.Sum{0: each, 1: each, 2: each})
}

// countedConcurrently: several counters may have the same statements.
func countedConcurrently(c *counters) {
	const n, counters = 40, 4
	var wg sync.WaitGroup
	for i := range counters {
		wg.Go(func() {
			all := append(c.users(n, 1), c.users(n, 2)...)
			mathrand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for some := range slices.Chunk(all, 7+i) {
				for left := some; len(left) > 0; {
					var again []count.Statement
					for j, r := range c.Count(c.Context(), left) {
						if r.Err != nil {
							again = append(again, left[j])
						}
					}
					left = again
					if c.Context().Err() != nil {
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if got, want := c.total(c.object).All, (count.Sum{Plays: n, Viewers: n, Watched: n * minutes}); got != want {
		c.Errorf("got %+v, want %+v", got, want)
	}
}

// countedErased: an erasure removes the marks and keeps the totals. Late statements do not count again.
func countedErased(c *counters) {
	old, other := c.says(1, 0, [3]int64{1, 1, 1}), c.says(1, 0, [3]int64{0, 1, 1})
	other.UID = freshUID()
	elsewhere := old
	elsewhere.Object.ID += "/2"
	c.count(old, other, elsewhere)
	held := func(until int64, want int) {
		c.Helper()
		got, err := c.Held(c.Context(), c.uid, until)
		if err != nil || got[count.MarksPlace] != want {
			c.Errorf("held until %d: got %v, %v, want %d marks", until, got, err, want)
		}
	}
	held(0, 2)
	held(old.CellTime-1, 0)
	for range 2 {
		if err := c.Erase(c.Context(), c.uid, old.CellTime); err != nil {
			c.Fatal(err)
		}
		held(0, 0)
	}
	want := map[int64]count.Sum{0: {Plays: 1, Viewers: 1, Watched: minutes}, 1: {Plays: 1, Viewers: 1, Watched: minutes}}
	c.wants("erased", count.Sum{Plays: 2, Viewers: 2, Watched: 2 * minutes}, want)
	if got := c.count(old); got != 0 {
		c.Errorf("an erased statement again: counted %d", got)
	}
	held(0, 0)
	if got := c.count(c.says(2, 1, [3]int64{0, 1, 0})); got != 1 {
		c.Errorf("played after the erasure: counted %d, want 1", got)
	}
	held(0, 1)
	if err := c.Erase(c.Context(), c.uid, old.CellTime); err != nil {
		c.Fatal(err)
	}
	held(0, 1)
}

// countedExpired: days and marks go with the records. The sum of all days stays.
func countedExpired(c *counters) {
	c.count(c.says(1, 0, [3]int64{0, 2, 1}))
	old := c.says(1, 0, [3]int64{0, 2, 1})
	c.Pass((history.DefaultRetention + 3*day) * time.Millisecond)
	c.wants("expired", count.Sum{Plays: 2, Viewers: 1, Watched: minutes}, map[int64]count.Sum{})
	old.CellTime++
	if got := c.count(old); got != 0 {
		c.Errorf("a statement of an expired record: counted %d", got)
	}
	c.begin()
	if got := c.count(c.says(1, 0, [3]int64{0, 1, 0})); got != 1 {
		c.Errorf("played after the expiry: counted %d, want 1", got)
	}
	if got := c.total(c.object).All.Plays; got != 3 {
		c.Errorf("plays before and after the expiry: got %d, want 3", got)
	}
}

// countedModel delivers what records say of users and objects in any order, again and again. A play counts by the last
// thing that was said of its time until a removal of that time was known.
func countedModel(c *counters) {
	for range 4 {
		seed := mathrand.Uint64()
		m := &countModel{counters: c, dice: mathrand.New(mathrand.NewPCG(seed, 0)), said: make(map[history.Key][]count.Statement), delivered: make(map[history.Key][]count.Statement)} //nolint:gosec // repeatable
		m.object.ID += "-"
		m.run()
		if c.Failed() {
			c.Fatalf("seed %d", seed)
		}
	}
}

type countModel struct {
	*counters
	dice            *mathrand.Rand
	said, delivered map[history.Key][]count.Statement
}

func (m *countModel) run() {
	var all []count.Statement
	for u := range 4 {
		for o := range 3 {
			all = append(all, m.history(u, o)...)
		}
	}
	for range 3 {
		m.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for some := range slices.Chunk(all, 1+m.dice.IntN(9)) {
			m.count(some...)
			for _, s := range some {
				m.delivered[s.Key()] = append(m.delivered[s.Key()], s)
			}
		}
	}
	for o := range 3 {
		m.compare(m.objectOf(o))
	}
}

func (m *countModel) objectOf(o int) history.Object {
	return history.Object{ID: fmt.Sprintf("%s%d", m.object.ID, o), Type: m.object.Type}
}

// history returns what a record says in the course of time.
func (m *countModel) history(u, o int) (all []count.Statement) {
	s := m.says(0, 0)
	s.UID, s.Object = fmt.Sprintf("%s-%d", m.uid, u), m.objectOf(o)
	plays := make(map[int64]int) // by time
	for range 2 + m.dice.IntN(9) {
		switch at := m.began - int64(m.dice.IntN(12))*day/3; m.dice.IntN(5) {
		case 0:
			s.RemovedAt = max(s.RemovedAt, at)
			maps.DeleteFunc(plays, func(at int64, _ int) bool { return at <= s.RemovedAt })
		case 1:
			delete(plays, at)
		default:
			if at > s.RemovedAt {
				plays[at] += m.dice.IntN(3)
			}
		}
		s.CellTime++
		s.Played = nil
		for _, at := range slices.Sorted(maps.Keys(plays)) {
			s.Played = append(s.Played, history.Played{At: at, Plays: uint64(plays[at]), Watched: int64(m.dice.IntN(9))}) //nolint:gosec // small
		}
		all = append(all, s)
	}
	return all
}

// compare computes an object's totals from what was delivered.
func (m *countModel) compare(o history.Object) {
	m.Helper()
	var want count.Sum
	byDay := make(map[history.Day]count.Sum)
	for k, statements := range m.delivered {
		if k.Object != o {
			continue
		}
		said := make(map[int64]history.Played) // by time
		var last count.Statement
		for _, s := range statements {
			if s.RemovedAt < last.RemovedAt || s.RemovedAt == last.RemovedAt && s.CellTime <= last.CellTime {
				continue
			}
			last = s
			maps.DeleteFunc(said, func(at int64, _ history.Played) bool { return at > s.RemovedAt })
			for _, p := range s.Played {
				said[p.At] = p
			}
		}
		completed := make(map[history.Day]bool)
		for _, p := range said {
			d := history.Day(p.At / day)
			sum := count.Sum{Plays: int64(p.Plays), Watched: p.Watched} //nolint:gosec // small
			want, byDay[d] = want.Plus(sum), byDay[d].Plus(sum)
			completed[d] = completed[d] || p.Plays > 0
		}
		viewer := int64(0)
		for d, yes := range completed {
			if yes {
				viewer, byDay[d] = 1, byDay[d].Plus(count.Sum{Viewers: 1})
			}
		}
		want.Viewers += viewer
	}
	got := m.total(o)
	if got.All != want {
		m.Errorf("%s: got %+v, want %+v", o, got.All, want)
	}
	for _, d := range got.Days {
		if byDay[d.Day] != d.Sum {
			m.Errorf("%s on day %d: got %+v, want %+v", o, d.Day, d.Sum, byDay[d.Day])
		}
		delete(byDay, d.Day)
	}
	for d, s := range byDay {
		if s != (count.Sum{}) {
			m.Errorf("%s on day %d: got nothing, want %+v", o, d, s)
		}
	}
}
