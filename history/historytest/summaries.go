package historytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// Summarizer keeps summaries of expired records. Packages read and compaction describe the methods that they need.
type Summarizer interface {
	SummaryTTL(ctx context.Context) (int64, error)
	Summaries(ctx context.Context, uid string, q history.Query) (history.SummaryPage, error)
	SummariesOf(ctx context.Context, uid string, objects []history.Object) ([]history.Summary, error)
	Summarize(ctx context.Context, uid string, all bool) error
	SummarizePast(ctx context.Context, uid string, past []*history.PastViewing) error
}

// Eraser removes users' data. Package admin describes the methods.
type Eraser interface {
	Held(ctx context.Context, uid string, until int64) (map[string]int, error)
	Erase(ctx context.Context, uid string, until int64) error
	Namespaces(ctx context.Context, uid string) ([]string, error)
}

// SummaryStore is an archive with summaries under test.
type SummaryStore struct {
	history.Archive
	Summarizer
	Eraser
	// Now is the archive's clock.
	Now func() time.Time
	// Pass advances the archive's clock and removes expired data. It is nil if unsupported.
	Pass func(time.Duration)
}

// SummaryTTL is the retention of summaries in stores under test.
const SummaryTTL = 4000 * 24 * time.Hour

// Summaries tests the contract of a [Summarizer].
func Summaries(t *testing.T, open func(t *testing.T) SummaryStore) {
	for _, part := range []struct {
		name  string
		waits bool // needs Pass
		test  func(*summaries)
	}{
		{"None", false, noSummaries},
		{"OldRecords", false, oldRecords},
		{"Repeated", false, summarizedAgain},
		{"LatePlay", false, latePlays},
		{"Deleted", false, deletedSummaries},
		{"Cleared", false, clearedSummaries},
		{"ClearedMeanwhile", false, clearedMeanwhile},
		{"Pages", false, summaryPages},
		{"OneMillisecond", false, summaryTies},
		{"Neighbours", false, summaryNeighbours},
		{"Erased", false, erasedSummaries},
		{"Sections", false, namespaceSummaries},
		{"Concurrently", false, summarizedConcurrently},
		{"Past", false, pastViewings},
		{"PastRemoved", false, pastRemoved},
		{"PastAndRecords", false, pastAndRecords},
		{"PastConcurrently", false, pastConcurrently},
		{"Reborn", true, rebornSummaries},
		{"Ended", true, endedSummaries},
		{"Model", true, summaryModel},
	} {
		t.Run(part.name, func(t *testing.T) {
			s := &summaries{T: t, SummaryStore: open(t), uid: freshUID(), open: open}
			if part.waits && s.Pass == nil {
				return
			}
			part.test(s)
		})
	}
}

type summaries struct {
	*testing.T
	SummaryStore
	uid  string
	open func(t *testing.T) SummaryStore
}

func (s *summaries) now() int64 { return s.Now().UnixMilli() }

const day = 24 * 3600 * 1000

// aged returns the cell of a viewing of some days ago, which ended at a position or, if finished, at the end.
func (s *summaries) aged(object string, days float64, position int64, finished bool) history.Cell {
	return s.viewed(object, s.now()-int64(days*day), position, finished)
}

func (s *summaries) viewed(object string, at, position int64, finished bool) history.Cell {
	k := keyOf(s.uid, object)
	e := history.Event{Key: k, Kind: history.KindStop, At: at, Position: position, Duration: 100_000, Session: fmt.Sprintf("s%d", at), Device: fmt.Sprintf("d%d", at), Watched: position, StartedAt: at - position}
	if finished {
		e.Kind = history.KindFinish
	}
	r := e.Record()
	r.Partial, r.Revision = false, history.NewRevision()
	r.CellTime = at
	return history.Cell{Key: k, Record: r}
}

func (s *summaries) put(cells ...history.Cell) {
	s.Helper()
	for _, err := range s.Put(s.Context(), cells) {
		if err != nil {
			s.Fatal(err)
		}
	}
}

// fold merges an event into the archived record and puts it.
func (s *summaries) fold(c history.Cell) *history.Record {
	s.Helper()
	got, err := s.Get(s.Context(), []history.Key{c.Key})
	if err != nil {
		s.Fatal(err)
	}
	u := got[0].User
	if got[0].Record != nil {
		c = next(history.Cell{Key: c.Key, Record: got[0].Record}, c)
	} else {
		c.Record = c.Record.Successor(&u)
	}
	s.put(c)
	return c.Record
}

func (s *summaries) summarize(all bool) {
	s.Helper()
	if err := s.Summarize(s.Context(), s.uid, all); err != nil {
		s.Fatal(err)
	}
}

func (s *summaries) clear(marks map[uint32]int64) {
	s.Helper()
	if err := s.PutUser(s.Context(), s.uid, history.User{Cleared: marks}); err != nil {
		s.Fatal(err)
	}
}

// all reads all pages of a query, with its limit as page size.
func (s *summaries) all(q history.Query) (all []history.Summary) {
	s.Helper()
	for {
		page, err := s.Summaries(s.Context(), s.uid, q)
		if err != nil {
			s.Fatal(err)
		}
		if len(page.Items) > q.Limit || page.More && len(page.Items) < q.Limit {
			s.Fatalf("a page has %d summaries of %d, more %v", len(page.Items), q.Limit, page.More)
		}
		all = append(all, page.Items...)
		if !page.More {
			return all
		}
		q.After = page.Items[len(page.Items)-1].Place()
	}
}

// want compares all summaries, in pages and by object.
func (s *summaries) want(what string, want ...history.Summary) {
	s.Helper()
	slices.SortFunc(want, history.LatestFirst)
	if got := s.all(history.Query{Limit: 100}); !slices.Equal(got, want) {
		s.Errorf("%s:\ngot  %+v\nwant %+v", what, got, want)
	}
	objects := []history.Object{keyOf(s.uid, "404_1").Object}
	for _, w := range want {
		objects = append(objects, w.Object)
	}
	got, err := s.SummariesOf(s.Context(), s.uid, objects)
	if slices.SortFunc(got, history.LatestFirst); err != nil || !slices.Equal(got, want) {
		s.Errorf("%s, by object:\ngot  %+v, %v\nwant %+v", what, got, err, want)
	}
}

func summaryOf(c history.Cell) history.Summary {
	return history.Summarize(c.Key.Object, c.Record, (*history.Rulebook)(nil).Of(c.Key.Object.Type))
}

func noSummaries(s *summaries) {
	s.want("an unknown user")
	s.summarize(false)
	s.summarize(true)
	s.want("a user without records")
	s.put(s.aged("1_1", 1, 1000, true))
	s.summarize(false)
	s.summarize(true)
	s.want("a user without old records")
	if ttl, err := s.SummaryTTL(s.Context()); ttl != SummaryTTL.Milliseconds() || err != nil {
		s.Errorf("kept for %d ms, %v", ttl, err)
	}
}

// oldRecords has records on both sides of the age, and tombstones.
func oldRecords(s *summaries) {
	old, older := s.aged("1_1", 83.01, 1000, true), s.aged("2_1", 89.5, 2000, false)
	s.put(old, s.aged("3_1", 82.9, 3000, true), older, deletedAt(keyOf(s.uid, "4_1"), s.now()-85*day))
	s.summarize(false)
	s.want("old ones", summaryOf(old), summaryOf(older))
}

func summarizedAgain(s *summaries) {
	old, other := s.aged("1_1", 85, 1000, true), s.aged("2_1", 86, 2000, false)
	s.put(old)
	for _, all := range []bool{false, false, true, false} {
		s.summarize(all)
		s.want("again", summaryOf(old))
	}
	s.put(other)
	s.summarize(false)
	s.want("another one", summaryOf(old), summaryOf(other))
}

// latePlays changes an old record by late uploads and another viewing.
func latePlays(s *summaries) {
	s.put(s.aged("1_1", 85, 1000, true))
	s.summarize(false)
	late := s.fold(s.aged("1_1", 86, 50_000, true))
	s.summarize(false)
	want := history.Summarize(history.Object{ID: "1", Type: 1}, late, (*history.Rulebook)(nil).Of(1))
	if want.Plays != 2 || want.Furthest != 50_000 {
		s.Fatalf("the record is %+v", late)
	}
	s.want("a late play", want)
	s.fold(s.aged("1_1", 10, 20_000, true))
	s.summarize(false)
	s.want("watched again, and young", want)
	last := s.fold(s.aged("1_1", 83.5, 20_000, true)) // from before that
	if last.Plays() != 4 {
		s.Fatalf("%d plays", last.Plays())
	}
	s.summarize(false)
	s.want("watched again, and still young", want)
}

func deletedSummaries(s *summaries) {
	stays := s.aged("2_1", 86, 2000, false)
	s.put(s.aged("1_1", 85, 1000, true), stays)
	s.summarize(false)
	s.put(deletedAt(keyOf(s.uid, "1_1"), s.now()-day))
	s.summarize(true)
	s.want("deleted", summaryOf(stays))
	s.fold(s.aged("1_1", 86.5, 1000, true)) // late, from before the delete
	s.summarize(false)
	s.summarize(true)
	s.want("late, of before the delete", summaryOf(stays))
}

func clearedSummaries(s *summaries) {
	a, b, c := s.aged("1_1", 85, 1000, true), s.aged("2_2", 85, 2000, false), s.aged("3_2", 84, 3000, false)
	s.put(a, b, c)
	s.summarize(false)
	marks := map[uint32]int64{2: b.Record.Version.Time()}
	s.clear(marks)
	page, err := s.Summaries(s.Context(), s.uid, history.Query{Limit: 10})
	if err != nil || !maps.Equal(page.User.Cleared, marks) {
		s.Errorf("marks %v, %v, want %v", page.User.Cleared, err, marks)
	}
	s.want("one type", summaryOf(a), summaryOf(c))
	s.summarize(false)
	s.want("one type, removed", summaryOf(a), summaryOf(c))
	s.put(b) // late
	s.summarize(false)
	s.want("comes late", summaryOf(a), summaryOf(c))
	s.clear(map[uint32]int64{0: c.Record.Version.Time() - 5000})
	s.want("all before one", summaryOf(c))
	s.clear(map[uint32]int64{0: s.now()})
	s.want("all")
	s.summarize(true)
	s.want("all, removed")
	held, err := s.Held(s.Context(), s.uid, 0)
	if err != nil || held["archive: summaries"] != 0 {
		s.Errorf("held: %v, %v", held, err)
	}
}

// clearedMeanwhile clears at any moment of a summarizing.
func clearedMeanwhile(s *summaries) {
	for range 20 {
		s.uid = freshUID()
		s.put(s.aged("1_1", 85, 1000, true), s.aged("2_2", 85.1, 1000, true))
		done := make(chan error, 1)
		go func() { done <- s.Summarize(s.Context(), s.uid, false) }()
		s.clear(map[uint32]int64{0: s.now()})
		if err := <-done; err != nil && !errors.Is(err, history.ErrConflict) {
			s.Fatal(err)
		}
		s.want("cleared meanwhile")
		s.summarize(false)
		s.want("cleared, and summarized again")
	}
}

// summaryPages reads parts of many summaries with every kind of query.
func summaryPages(s *summaries) {
	var all []history.Summary
	var cells []history.Cell
	for i := range 300 {
		c := s.aged(fmt.Sprintf("%d_%d", i, 1+i%3), 83.5+float64(i*7%300)/60, int64(i)*10, i%2 == 0)
		cells, all = append(cells, c), append(all, summaryOf(c))
	}
	for some := range slices.Chunk(cells, 50) { // several chunks
		s.put(some...)
		s.summarize(false)
	}
	slices.SortFunc(all, history.LatestFirst)
	for _, q := range []history.Query{
		{},
		{Type: 2},
		{Since: all[100].Version.Time()},
		{Until: all[50].Version.Time()},
		{Type: 3, Since: all[200].Version.Time(), Until: all[20].Version.Time()},
		{Type: 9},
		{Until: all[299].Version.Time() - 1},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(x history.Summary) bool { return !q.Wants(x.Place()) })
		for _, q.Limit = range []int{1, 2, 7, 299, 300, 1000} {
			if got := s.all(q); !slices.Equal(got, want) {
				s.Errorf("%+v: %d summaries, want %d, or other ones", q, len(got), len(want))
			}
		}
	}
}

// summaryTies has many summaries of one millisecond.
func summaryTies(s *summaries) {
	at := s.now() - 85*day
	var all []history.Summary
	for round := range 3 {
		for i := range 30 {
			c := s.viewed(fmt.Sprintf("%d_1", i*3+round), at, 1000, i%2 == 0)
			s.put(c)
			all = append(all, summaryOf(c))
		}
		s.summarize(false)
	}
	slices.SortFunc(all, history.LatestFirst)
	for limit := 1; limit <= 91; limit += 9 {
		if got := s.all(history.Query{Limit: limit}); !slices.Equal(got, all) {
			s.Errorf("pages of %d: %d summaries, want %d, or other ones", limit, len(got), len(all))
		}
	}
}

// summaryNeighbours has users with common prefixes.
func summaryNeighbours(s *summaries) {
	uid := s.uid
	for i, u := range []string{uid, uid + "0", uid + "-", uid + ".", uid[:len(uid)-1]} {
		s.uid = u
		s.put(s.aged(fmt.Sprintf("%d_1", i), 85, 1000, true))
		s.summarize(false)
	}
	s.uid = uid + "0"
	s.clear(map[uint32]int64{0: s.now()})
	s.summarize(true)
	if err := s.Erase(s.Context(), uid+".", s.now()); err != nil {
		s.Fatal(err)
	}
	for i, u := range []string{uid, uid + "0", uid + "-", uid + ".", uid[:len(uid)-1]} {
		s.uid = u
		got := s.all(history.Query{Limit: 10})
		if gone := i == 1 || i == 3; gone != (len(got) == 0) || !gone && got[0].Object.ID != fmt.Sprint(i) {
			s.Errorf("user %d: %v", i, got)
		}
	}
}

func erasedSummaries(s *summaries) {
	s.put(s.aged("1_1", 85, 1000, true), s.aged("2_1", 88, 1000, true))
	s.summarize(false)
	held, err := s.Held(s.Context(), s.uid, 0)
	if err != nil || held["archive: summaries"] != 2 || held["archive: chunks of summaries"] != 1 {
		s.Errorf("held: %v, %v", held, err)
	}
	until := s.now() - 86*day
	if err := s.Erase(s.Context(), s.uid, until); err != nil {
		s.Fatal(err)
	}
	if held, err = s.Held(s.Context(), s.uid, until); err != nil || held["archive: summaries"] != 0 {
		s.Errorf("held: %v, %v", held, err)
	}
	if got := s.all(history.Query{Limit: 10}); len(got) != 1 || got[0].Object.ID != "1" {
		s.Errorf("left: %v", got)
	}
	if err := s.Erase(s.Context(), s.uid, s.now()); err != nil {
		s.Fatal(err)
	}
	held, err = s.Held(s.Context(), s.uid, 0)
	for place, n := range held {
		if n != 0 {
			s.Errorf("%s: %d left, %v", place, n, err)
		}
	}
	s.summarize(false)
	s.want("erased")
}

// namespaceSummaries has namespaces of classes, which are separate users and found by their summaries alone.
func namespaceSummaries(s *summaries) {
	user := s.uid
	s.uid = history.NamespaceUID(user, "a")
	old := s.aged("1_1", 85, 1000, true)
	s.put(old)
	s.summarize(false)
	s.want("of the namespace", summaryOf(old))
	namespaces := func(what, uid string, want ...string) {
		s.Helper()
		if found, err := s.Namespaces(s.Context(), uid); err != nil || !slices.Equal(found, want) {
			s.Errorf("%s: namespaces %q, %v, want %q", what, found, err, want)
		}
	}
	if s.Pass != nil {
		for range 3 {
			s.Pass(10 * 24 * time.Hour)
		}
		s.want("its record has ended", summaryOf(old))
	}
	namespaces("with something", user, s.uid)
	namespaces("of another user", user[:len(user)-1])
	if err := s.Erase(s.Context(), s.uid, s.now()); err != nil {
		s.Fatal(err)
	}
	s.want("erased")
	s.uid = user
	s.want("of no namespace")
}

// summarizedConcurrently summarizes twice concurrently, during a put.
func summarizedConcurrently(s *summaries) {
	var want []history.Summary
	for round := range 10 {
		for i := range 5 {
			c := s.aged(fmt.Sprintf("%d_1", round*5+i), 84+float64(i)/2, 1000, true)
			s.put(c)
			want = append(want, summaryOf(c))
		}
		done := make(chan error, 3)
		for i := range 3 {
			go func() { done <- s.Summarize(s.Context(), s.uid, i == 2) }()
		}
		for range 3 {
			if err := <-done; err != nil && !errors.Is(err, history.ErrConflict) {
				s.Fatal(err)
			}
		}
	}
	s.summarize(false)
	s.want("all of them", want...)
}

// rebornSummaries repeats a viewing of an object whose record has expired.
func rebornSummaries(s *summaries) {
	s.put(s.aged("1_1", 85, 60_000, true))
	s.summarize(false)
	first := s.all(history.Query{Limit: 1})[0]
	s.Pass(10 * 24 * time.Hour)
	s.fold(s.aged("1_1", 0, 5000, true))
	s.summarize(false)
	s.want("watched again", first)
	s.Pass(85 * 24 * time.Hour)
	s.summarize(false)
	s.summarize(false)
	got := s.all(history.Query{Limit: 9})
	if len(got) != 1 {
		s.Fatalf("%d summaries", len(got))
	}
	if total := got[0].Total(); total.Plays != 2 || total.First != first.First || total.Furthest != 60_000 || total.Watched != 65_000 || total.Last <= first.Last {
		s.Errorf("got %+v after %+v", got[0], first)
	}
	s.put(deletedAt(keyOf(s.uid, "1_1"), s.now()))
	s.summarize(true)
	s.want("deleted")
}

// endedSummaries has expired summaries, some sharing a chunk with others.
func endedSummaries(s *summaries) {
	s.put(s.aged("1_1", 85, 1000, true), s.aged("2_1", 84, 1000, true))
	s.summarize(false)
	s.Pass(SummaryTTL - 84*24*time.Hour - 12*time.Hour)
	if got := s.all(history.Query{Limit: 9}); len(got) != 1 || got[0].Object.ID != "2" {
		s.Errorf("one of two has ended: %v", got)
	}
	s.Pass(24 * time.Hour)
	s.want("both have ended")
	s.summarize(false)
	s.want("both have ended, and gone")
	if held, err := s.Held(s.Context(), s.uid, 0); err != nil || held["archive: summaries"] != 0 {
		s.Errorf("held: %v, %v", held, err)
	}
}

// summaryModel compares summaries with everything ever played. Random steps play, also late, delete, clear and
// summarize while time passes.
func summaryModel(s *summaries) {
	checks := 0
	rapid.Check(s.T, func(t *rapid.T) {
		if checks++; checks%10 == 0 { // a year or two pass in each, and stores accumulate data
			s.SummaryStore = s.open(s.T)
		}
		m := &model{summaries: s, t: t, played: make(map[history.Object][]history.Event), cut: make(map[history.Object]int64)}
		s.uid = freshUID()
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			m.step()
		}
		for range 14 { // at most a week at a time
			s.Pass(156 * time.Hour)
			s.summarize(false)
		}
		m.compare()
	})
}

type model struct {
	*summaries
	t      *rapid.T
	played map[history.Object][]history.Event
	cut    map[history.Object]int64
}

func (m *model) step() {
	now := m.now() // it may advance with every call
	switch rapid.IntRange(0, 9).Draw(m.t, "what") {
	case 0:
		o := m.object()
		m.fold(deletedAt(history.Key{UID: m.uid, Object: o}, now))
		m.cut[o] = now
		if rapid.Bool().Draw(m.t, "at once") {
			m.summarize(true)
		}
	case 1:
		typ := uint32(rapid.IntRange(0, 2).Draw(m.t, "type"))
		m.clear(map[uint32]int64{typ: now})
		for i := range 6 {
			if o := objectOf(i + 1); typ == 0 || o.Type == typ {
				m.cut[o] = now
			}
		}
	case 2, 3, 4:
		m.days(rapid.IntRange(1, 40).Draw(m.t, "days"))
	case 5:
		m.compare()
	default:
		age := rapid.SampledFrom([]float64{0, 0, 0.5, 20, 80, 84, 88, 89.9}).Draw(m.t, "age")
		m.play(m.object(), m.now()-int64(age*day)+rapid.Int64Range(0, 999).Draw(m.t, "ms"))
	}
	m.Pass(time.Millisecond * 1001)
}

func (m *model) object() history.Object {
	return objectOf(rapid.IntRange(1, 6).Draw(m.t, "object"))
}

func objectOf(i int) history.Object {
	return history.Object{ID: fmt.Sprint(i), Type: uint32(1 + i%2)} //nolint:gosec // a small one
}

func (m *model) play(o history.Object, at int64) {
	if at > m.now() {
		at = m.now()
	}
	for _, e := range m.played[o] {
		if e.At == at {
			return
		}
	}
	c := m.viewed(o.String(), at, rapid.Int64Range(1000, 50_000).Draw(m.t, "position"), rapid.Bool().Draw(m.t, "finished"))
	m.fold(c)
	m.played[o] = append(m.played[o], history.Event{At: at, Position: c.Record.Position, Kind: history.Kind(c.Record.Plays())})
	if at < m.now()-new(history.Rulebook).SummaryAge() { // like the job with late records
		m.summarize(false)
	}
}

// days lets days pass, with one summarizing each.
func (m *model) days(n int) {
	for range n {
		m.Pass(24 * time.Hour)
		m.summarize(false)
		if rapid.Bool().Draw(m.t, "twice") {
			m.summarize(false)
		}
	}
}

// compare checks the objects with expired records. Others may have any summary, which is not shown.
func (m *model) compare() {
	m.Helper()
	found := make(map[history.Object]history.Summary)
	all := m.all(history.Query{Limit: rapid.IntRange(1, 7).Draw(m.t, "limit")})
	if !slices.IsSortedFunc(all, history.LatestFirst) {
		m.t.Fatalf("out of order: %v", all)
	}
	for _, x := range all {
		if _, twice := found[x.Object]; twice {
			m.t.Fatalf("%s twice", x.Object)
		}
		found[x.Object] = x
	}
	for _, o := range slices.SortedFunc(maps.Keys(m.played), func(a, b history.Object) int { return cmp.Compare(a.ID, b.ID) }) {
		got, err := m.Get(context.Background(), []history.Key{{UID: m.uid, Object: o}})
		if err != nil {
			m.t.Fatal(err)
		}
		if got[0].Record != nil {
			continue
		}
		var want history.Summary
		for _, e := range m.played[o] {
			if e.At <= m.cut[o] {
				continue
			}
			if began := max(e.At-e.Position, m.cut[o]+1); want.First == 0 || began < want.First {
				want.First = began
			}
			want.Last = max(want.Last, e.At)
			want.Plays += uint64(e.Kind)
			want.Watched += min(e.Position, e.At-m.cut[o])
			want.Furthest = max(want.Furthest, e.Position)
		}
		x, there := found[o]
		if there != (want.Last > 0) {
			m.t.Fatalf("%s: summary %v %+v, want %+v", o, there, x, want)
		}
		x = x.Total()
		if x.First != want.First || x.Last != want.Last || x.Plays != want.Plays || x.Furthest != want.Furthest || x.Watched != want.Watched {
			m.t.Fatalf("%s: got %+v, want %+v", o, x, want)
		}
	}
}

// past is a viewing of an object that ended some days ago.
func (s *summaries) past(object string, days float64, played bool) *history.PastViewing {
	last := s.now() - int64(days*day)
	return &history.PastViewing{
		Object: keyOf(s.uid, object).Object, Began: last - 1000, Last: last, Watched: 900, Furthest: 1000, Duration: 100_000, Played: played, Title: "Low Tide",
	}
}

// bring brings past viewings, and returns how many are kept.
func (s *summaries) bring(all ...*history.PastViewing) (kept int) {
	s.Helper()
	if err := s.SummarizePast(s.Context(), s.uid, all); err != nil {
		s.Fatal(err)
	}
	for _, v := range all {
		if v.Kept {
			kept++
		}
	}
	return kept
}

// totals are the objects' summaries as readers see them, in short.
func (s *summaries) totals(what string, want map[string]string) {
	s.Helper()
	got := make(map[string]string)
	for _, sum := range s.all(history.Query{Limit: 2}) {
		title, at := sum.Imported.Title(), sum.Place().Version.Time()
		sum = sum.Total()
		got[sum.Object.ID] = fmt.Sprintf("%s %d plays, %d ms, furthest %d, days %d to %d", title, sum.Plays, sum.Watched, sum.Furthest, (s.now()-sum.First)/day, (s.now()-sum.Last)/day)
		if at != sum.Last {
			s.Errorf("%s: %s is listed at %d, last played at %d", what, sum.Object, at, sum.Last)
		}
	}
	if !maps.Equal(got, want) {
		s.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
}

// pastViewings come several times, in any order and in parts: each counts once.
func pastViewings(s *summaries) {
	all := []*history.PastViewing{s.past("1_1", 500, true), s.past("1_1", 400, true), s.past("1_1", 450, false), s.past("2_1", 300, true), s.past("3_1", 91, false)}
	want := map[string]string{
		"1": "Low Tide 2 plays, 2700 ms, furthest 1000, days 500 to 400", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 300 to 300",
		"3": "Low Tide 0 plays, 900 ms, furthest 1000, days 91 to 91",
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		for some := range slices.Chunk(all, 2) {
			if n := s.bring(some...); n != len(some) {
				s.Errorf("%d of %d kept", n, len(some))
			}
		}
		s.summarize(false)
		s.totals("again", want)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
}

// pastRemoved brings viewings from before deletes and clears.
func pastRemoved(s *summaries) {
	s.put(deletedAt(keyOf(s.uid, "1_1"), s.now()-20*day))
	s.clear(map[uint32]int64{2: s.now() - 350*day})
	all := []*history.PastViewing{s.past("1_1", 400, true), s.past("2_2", 400, true), s.past("2_2", 300, true), s.past("3_1", 400, true)}
	if n := s.bring(all...); n != 2 {
		s.Errorf("%d kept, want those of 2 after the clear, and 3", n)
	}
	two, three := "Low Tide 1 plays, 900 ms, furthest 1000, days 300 to 300", "Low Tide 1 plays, 900 ms, furthest 1000, days 400 to 400"
	s.totals("removed before", map[string]string{"2": two, "3": three})
	s.put(deletedAt(keyOf(s.uid, "3_1"), s.now()))
	s.summarize(true)
	s.totals("deleted after", map[string]string{"2": two})
	s.clear(map[uint32]int64{0: s.now()})
	s.totals("cleared", nil)
	s.summarize(true)
	if n := s.bring(all...); n != 0 {
		s.Errorf("%d kept after a clear", n)
	}
	s.totals("cleared, and brought again", nil)
}

// pastAndRecords brings viewings of objects with records and summaries, which may have them.
func pastAndRecords(s *summaries) {
	old, young := s.aged("1_1", 85, 5000, true), s.aged("2_1", 10, 5000, true)
	s.put(old, young)
	same := &history.PastViewing{Object: old.Key.Object, Began: old.Record.PlayedAt() - 5000, Last: old.Record.PlayedAt(), Watched: 5000, Played: true}
	all := []*history.PastViewing{same, s.past("1_1", 200, true), s.past("2_1", 200, true)}
	for range 2 {
		if n := s.bring(all...); n != len(all) {
			s.Errorf("%d kept", n)
		}
		s.totals("beside records", map[string]string{
			"1": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 85", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 200 to 200",
		})
	}
	s.fold(s.aged("2_1", 84, 5000, true)) // the young record has an older viewing, too
	s.summarize(false)
	s.fold(s.aged("3_1", 84, 5000, true))
	s.summarize(false)
	s.bring(s.past("3_1", 200, true))
	s.totals("a record first", map[string]string{
		"1": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 85", "2": "Low Tide 1 plays, 900 ms, furthest 1000, days 200 to 200",
		"3": "Low Tide 2 plays, 5900 ms, furthest 5000, days 200 to 84",
	})
}

// pastConcurrently brings viewings from several callers while records are summarized.
func pastConcurrently(s *summaries) {
	s.put(s.aged("1_1", 85, 5000, true))
	var calls sync.WaitGroup
	for n := range 4 {
		calls.Go(func() {
			for i := range 3 {
				v := s.past("1_1", float64(100+10*n+i), true)
				if err := s.SummarizePast(s.Context(), s.uid, []*history.PastViewing{v}); err != nil || !v.Kept {
					s.Errorf("kept %v, %v", v.Kept, err)
				}
			}
		})
	}
	calls.Wait()
	s.totals("together", map[string]string{"1": "Low Tide 13 plays, 15800 ms, furthest 5000, days 132 to 85"})
}
