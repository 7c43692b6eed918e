package faults

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// event is one report or delete, and whether it was acknowledged. An unacknowledged one may have been stored.
type event struct {
	history.Event
	acked bool
	turn  int // number of its acknowledgement
}

type clearing struct {
	typ   uint32
	until int64
	acked bool
	turn  int // number of its acknowledgement
}

func (c *clearing) covers(typ uint32) bool { return c.typ == 0 || c.typ == typ }

// story is everything ever sent about one key.
type story struct {
	events   []*event
	position int64 // the viewer's position, milliseconds
	session  int
	started  int64 // start of the session; 0 if not reported
}

// book is all stories. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	stories map[history.Key]*story
	clears  map[string][]*clearing
	recent  []string // distinct users, the latest last
	acked   int
	last    time.Time // time of the last acknowledgement
}

// recentUsers bounds the remembered users: twice the load's.
const recentUsers = 160

func newBook() *book {
	return &book{stories: make(map[history.Key]*story), clears: make(map[string][]*clearing)}
}

// note adds an event before it is sent.
func (b *book) note(e history.Event) *event {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &event{Event: e}
	s := b.story(e.Key)
	s.events = append(s.events, n)
	return n
}

// story returns the story of a key. The caller holds b.mu.
func (b *book) story(k history.Key) *story {
	s := b.stories[k]
	if s == nil {
		s = &story{}
		b.stories[k] = s
		if !slices.Contains(b.recent, k.UID) {
			b.recent = append(b.recent[max(0, len(b.recent)+1-recentUsers):], k.UID)
		}
	}
	return s
}

func (b *book) noteClear(uid string, typ uint32, until int64) *clearing {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &clearing{typ: typ, until: until}
	b.clears[uid] = append(b.clears[uid], c)
	return c
}

func (b *book) ack(events ...*event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.acked++
		e.acked, e.turn = true, b.acked
	}
	b.last = time.Now()
}

// add counts acknowledgements that are judged elsewhere.
func (b *book) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked += n
	b.last = time.Now()
}

func (b *book) ackClear(c *clearing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked++
	c.acked, c.turn = true, b.acked
	b.last = time.Now()
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acked
}

// rank orders events of one millisecond, as in DESIGN.md.
func (e *event) rank() int {
	switch e.Kind {
	case history.KindDelete:
		return 2
	case history.KindStop, history.KindFinish:
		return 1
	}
	return 0
}

// state returns the state that e shows as the latest event.
func (e *event) state() history.State {
	switch e.Kind {
	case history.KindPause:
		return history.StatePaused
	case history.KindStop:
		return history.StateStopped
	case history.KindFinish:
		return history.StateFinished
	case history.KindDelete:
		return history.StateDeleted
	}
	return history.StatePlaying
}

func (e *event) completes() bool {
	return e.Kind == history.KindFinish || e.Kind != history.KindDelete && e.Duration > 0 && e.Position*10 >= e.Duration*9
}

// compare orders two events; the greater one is the latest.
func compare(a, b *event) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.state(), b.state()), strings.Compare(a.Session, b.Session), strings.Compare(a.Device, b.Device))
}

// graceMS is the age, in milliseconds, from which a session may replace a resume point.
const graceMS = 10_000

// early reports whether an event may be from a session started by mistake.
func (e *event) early() bool {
	switch {
	case e.Kind == history.KindSeek || e.Kind == history.KindFinish || e.Kind == history.KindDelete:
		return false
	case e.Kind == history.KindStart:
		return true
	case e.StartedAt > 0:
		return e.At-e.StartedAt < graceMS
	}
	return e.Position < graceMS
}

// compareVersion orders two events by time and rank, as merges do beyond the latest event.
func compareVersion(a, b *event) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()))
}

// after returns the events later than a time, and the acknowledged ones of these.
func (s *story) after(at int64) (all, acked []*event) {
	for _, e := range s.events {
		if e.At > at {
			all = append(all, e)
			if e.acked {
				acked = append(acked, e)
			}
		}
	}
	return all, acked
}

// deleted returns the time of the last certain delete, or 0.
func deleted(acked []*event) (at int64) {
	for _, e := range acked {
		if e.Kind == history.KindDelete {
			at = max(at, e.At)
		}
	}
	return at
}

func latest(events []*event) *event {
	if len(events) == 0 {
		return nil
	}
	return slices.MaxFunc(events, compare)
}

type fault struct {
	resurrected bool // shows deleted content; otherwise content is missing or invented
	why         string
}

func lost(format string, args ...any) *fault { return &fault{why: fmt.Sprintf(format, args...)} }

func risen(format string, args ...any) *fault {
	return &fault{resurrected: true, why: fmt.Sprintf(format, args...)}
}

// view is what a store or a reader shows of a key.
type view struct {
	at              int64
	state           history.State
	session, device string
	resume          int64 // resume point
	furthest        int64
	watched         int64
	plays           int
	meta            map[string]string
}

func viewOf(r *history.Record) view {
	return view{
		at: r.Version.Time(), state: r.State, session: r.Session, device: r.Device, resume: r.Resume(),
		furthest: r.Furthest(), watched: r.Watched(), plays: int(r.Plays()), meta: r.Meta.Map(), //nolint:gosec // few
	}
}

func viewOfItem(it *historyv1.Item) view {
	return view{
		at: it.GetEventTimeMs(), state: history.State(it.GetState()), session: it.GetSession(), device: it.GetDevice(), resume: it.GetPositionMs(), //nolint:gosec // an enum
		furthest: it.GetFurthestMs(), watched: it.GetWatchedMs(), plays: int(it.GetPlays()), meta: it.GetMeta(), //nolint:gosec // few
	}
}

func (v view) equal(o view) bool {
	same := maps.Equal(v.meta, o.meta)
	v.meta, o.meta = nil, nil
	return same && reflect.DeepEqual(v, o)
}

// judge compares a store's record of a key with the story, for a user cleared at the given time. The record's
// RemovedAt tells which unacknowledged deletes were stored; the rest must agree with it.
func (s *story) judge(r *history.Record, cleared int64) *fault {
	_, acked := s.after(cleared)
	if r == nil {
		if len(acked) > 0 {
			return lost("nothing is there, want at least %s", latest(acked))
		}
		return nil
	}
	removed := deleted(acked)
	switch {
	case r.RemovedAt > cleared && !s.has(func(e *event) bool { return e.Kind == history.KindDelete && e.At == r.RemovedAt }):
		return lost("a delete at %d that nobody sent", r.RemovedAt)
	case r.RemovedAt < removed:
		return risen("does not know of the delete at %d", removed)
	}
	floor := max(r.RemovedAt, cleared)
	all, sure := s.after(floor)
	if r.State == history.StateDeleted {
		if want := latest(sure); r.Version.Time() != r.RemovedAt || want != nil {
			return lost("a tombstone at %d, want %s", r.Version.Time(), want)
		}
		return nil
	}
	v := viewOf(r)
	got, f := s.shown(v, floor, latest(sure))
	if f != nil {
		return f
	}
	if !s.has(func(e *event) bool { return e.shows(v) && e.Position == r.Position }) {
		return lost("shows a position of %d, which nobody sent", r.Position)
	}
	return cmp.Or(v.sums(least(all, sure, floor), most(all, floor), floor), v.details(got, all, sure), viewings(r, all, sure, floor))
}

func (s *story) has(match func(*event) bool) bool { return slices.ContainsFunc(s.events, match) }

// shown returns the event that a view shows as the latest. It must be later than floor, and no older than want,
// if any.
func (s *story) shown(v view, floor int64, want *event) (got *event, f *fault) {
	for _, e := range s.events {
		if e.shows(v) && (got == nil || compare(e, got) > 0) {
			got = e
		}
	}
	switch {
	case got == nil:
		return nil, lost("shows what nobody sent: %+v, want at least %s", v, want)
	case got.At <= floor:
		return nil, risen("shows %s, deleted at %d", got, floor)
	case want != nil && compare(got, want) < 0:
		return nil, lost("shows %s, want %s", got, want)
	}
	return got, nil
}

// shows reports whether e may be the latest event of a view.
func (e *event) shows(v view) bool {
	return e.At == v.at && e.state() == v.state && e.Session == v.session && e.Device == v.device
}

// sums checks the furthest position, the plays and the watched time. They must include everything certain, and
// nothing beyond the events since the floor.
func (v view) sums(low, high sum, floor int64) *fault {
	switch {
	case v.furthest < low.furthest:
		return lost("furthest is %d, want %d", v.furthest, low.furthest)
	case v.furthest > high.furthest:
		return risen("furthest is %d, want at most %d", v.furthest, high.furthest)
	case v.plays < low.plays:
		return lost("%d completed plays, want %d", v.plays, low.plays)
	case v.plays > high.plays:
		return risen("%d completed plays after %d, want at most %d", v.plays, floor, high.plays)
	case v.watched < low.watched:
		return lost("%d ms watched, want %d", v.watched, low.watched)
	case v.watched > high.watched:
		return risen("%d ms watched after %d, want at most %d", v.watched, floor, high.watched)
	}
	return nil
}

// sum is the totals of the events after a floor.
type sum struct {
	furthest, watched int64 // milliseconds
	plays             int
}

// least returns what the sure events prove. A session that touched the end and went back may have been a scrub,
// which is no play, and no furthest position. Of several reports at the end of a session the latest counts.
func least(all, sure []*event, floor int64) sum {
	s := sum{watched: watched(sure, floor), plays: len(viewingsOf(only(sure, func(e *event) bool { return e.stayed(all) })))}
	for _, e := range sure {
		if !e.completes() || e.stayed(all) && !e.precedes(all, (*event).completes) {
			s.furthest = max(s.furthest, e.Position)
		}
	}
	return s
}

// stayed reports whether e completes a play: its session was not below the end after it, or finished.
func (e *event) stayed(all []*event) bool {
	return e.completes() && (e.Kind == history.KindFinish || !e.precedes(all, func(o *event) bool { return !o.completes() }))
}

// precedes reports whether a later report of the session, or one of the same time, matches.
func (e *event) precedes(all []*event, match func(*event) bool) bool {
	return slices.ContainsFunc(all, func(o *event) bool {
		return o != e && o.Session == e.Session && o.At >= e.At && o.Kind != history.KindDelete && match(o)
	})
}

// most returns what the events can prove: each report at the end may be a play of its own.
func most(all []*event, floor int64) sum {
	s := sum{watched: watched(all, floor), plays: len(only(all, (*event).completes))}
	for _, e := range all {
		s.furthest = max(s.furthest, e.Position)
	}
	return s
}

// watched sums up the time watched in each session.
func watched(events []*event, floor int64) (ms int64) {
	played := make(map[string]int64)
	for _, e := range only(events, func(e *event) bool { return e.Kind != history.KindDelete }) {
		played[e.Session] = max(played[e.Session], min(e.Watched, max(e.At-floor, 0)))
	}
	for _, n := range played {
		ms += n
	}
	return ms
}

func viewingsOf(events []*event) map[uint64]bool {
	in := make(map[uint64]bool)
	for _, e := range events {
		in[history.ViewingOf(e.Session)] = true
	}
	return in
}

// details checks the resume point and the metadata.
func (v view) details(got *event, all, sure []*event) *fault {
	if f := v.point(got, all, sure); f != nil {
		return f
	}
	named := func(e *event) bool { return len(e.Meta) > 0 }
	want := latest(only(sure, named))
	if want == nil && v.meta == nil {
		return nil
	}
	if !slices.ContainsFunc(only(all, named), func(e *event) bool {
		return maps.Equal(e.Meta.Map(), v.meta) && (want == nil || compareVersion(e, want) >= 0)
	}) {
		return lost("has metadata %v, want %+v", v.meta, want)
	}
	return nil
}

// point checks the resume point: the latest event, or the latest one that is not early.
func (v view) point(got *event, all, sure []*event) *fault {
	nonEarly := func(e *event) bool { return !e.early() && e.Kind != history.KindDelete }
	want := latest(only(sure, nonEarly))
	if slices.ContainsFunc(all, func(e *event) bool {
		return e.Position == v.resume && compareVersion(e, got) <= 0 &&
			(nonEarly(e) && (want == nil || compareVersion(e, want) >= 0) || want == nil && compareVersion(e, got) == 0)
	}) {
		return nil
	}
	return lost("goes on at %d, want %s, or %s as long as it is early", v.resume, got, want)
}

// viewings checks which viewings are completed.
func viewings(r *history.Record, all, sure []*event, floor int64) *fault {
	may := viewingsOf(only(all, (*event).completes))
	must := viewingsOf(only(sure, func(e *event) bool { return e.stayed(all) }))
	for _, c := range r.Completions {
		if !may[c.Viewing] {
			return risen("counts a viewing completed before %d", floor)
		}
		delete(must, c.Viewing)
	}
	if len(must) > 0 {
		return lost("%d completed plays, %d are missing", r.Plays(), len(must))
	}
	return nil
}

func only(events []*event, match func(*event) bool) (some []*event) {
	for _, e := range events {
		if match(e) {
			some = append(some, e)
		}
	}
	return some
}

// String formats an event in one line.
func (e *event) String() string {
	if e == nil {
		return "nothing"
	}
	return fmt.Sprintf("{%s at %d, position %d, session %s}", e.state(), e.At, e.Position, e.Session)
}

// judgeRead compares a reader's item with the acknowledgements before the read; since is their number. Later or
// unacknowledged events may be visible. An incomplete item may lack a part.
func (b *book) judgeRead(k history.Key, it *historyv1.Item, since int) *fault {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stories[k]
	floor, maybe := b.floors(k, s, since)
	all, _ := s.after(floor)
	sure := only(all, func(e *event) bool { return e.acked && e.turn <= since && e.Kind != history.KindDelete })
	want := latest(sure)
	if it.GetObject() == nil {
		if want == nil || maybe >= want.At {
			return nil
		}
		return lost("nothing is shown, %s was acknowledged before", want)
	}
	v := viewOfItem(it)
	got, f := s.shown(v, floor, want)
	if f != nil || it.GetIncomplete() {
		return f
	}
	if maybe > floor { // what else is hidden is unknown
		sure = only(sure, func(e *event) bool { return e.At > maybe || e == got })
	}
	if f := v.sums(least(all, sure, max(floor, maybe)), most(all, floor), floor); f != nil {
		return f
	}
	return v.details(got, all, sure)
}

// floors returns the time up to which a key was certainly deleted or cleared when the read began. It also returns
// the time up to which it may have been since.
func (b *book) floors(k history.Key, s *story, since int) (floor, maybe int64) {
	note := func(at int64, acked bool, turn int) {
		maybe = max(maybe, at)
		if acked && turn <= since {
			floor = max(floor, at)
		}
	}
	for _, e := range s.events {
		if e.Kind == history.KindDelete {
			note(e.At, e.acked, e.turn)
		}
	}
	for _, c := range b.clears[k.UID] {
		if c.covers(k.Object.Type) {
			note(c.until, c.acked, c.turn)
		}
	}
	return floor, maybe
}

// checker compares stores and readers with the book.
type checker struct {
	book    *book
	cache   history.Cache
	archive history.Archive
	rpcs    []rpcClient
	res     *Result
	// pagesOnly skips points: they omit records that the cache has dropped.
	pagesOnly bool

	visible map[string]map[history.Object]*history.Record // by user
}

const checkBatch = 500

// check judges every key in both stores, and reads every user's pages and points.
func (c *checker) check(ctx context.Context) error {
	if err := c.records(ctx); err != nil {
		return err
	}
	return c.readers(ctx)
}

func (c *checker) records(ctx context.Context) error {
	c.visible = make(map[string]map[history.Object]*history.Record)
	keys := slices.SortedFunc(maps.Keys(c.book.stories), func(a, b history.Key) int { return strings.Compare(a.String(), b.String()) })
	c.res.Keys = len(keys)
	for batch := range slices.Chunk(keys, checkBatch) {
		if err := c.stores(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) stores(ctx context.Context, keys []history.Key) error {
	archived, err := c.archive.Get(ctx, keys)
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	for i, e := range c.cache.Load(ctx, keys) {
		if e.Err != nil {
			return fmt.Errorf("read cache: %w", e.Err)
		}
		c.key(keys[i], e, archived[i].Record)
	}
	return nil
}

// key judges one key. The user's own state tells whether an unacknowledged clear happened.
func (c *checker) key(k history.Key, e history.Entry, archived *history.Record) {
	s := c.book.stories[k]
	cleared := e.User.ClearedAt(k.Object.Type)
	if err := c.clears(k, cleared); err != nil {
		c.res.count(k, "cache", err)
		return
	}
	cached, archived := e.Record.After(cleared), archived.After(cleared)
	if cached == nil && archived != nil && !e.User.Complete() {
		cached = archived // the cache has dropped it
	}
	c.compare(k, s.judge(cached, cleared), s.judge(archived, cleared), cached, archived)
	c.show(k, visible(cached))
}

// compare counts what is wrong with a key in a store, or between the two.
func (c *checker) compare(k history.Key, inCache, inArchive *fault, cached, archived *history.Record) { //nolint:revive // both of both
	switch {
	case inCache != nil:
		c.res.count(k, "cache", inCache)
	case inArchive != nil:
		c.res.count(k, "archive", inArchive)
	case sameRecord(cached, archived):
	case archived == nil:
		c.res.count(k, "archive", lost("has nothing, the cache has %+v", *cached))
	case cached == nil:
		c.res.count(k, "cache", lost("has nothing, the archive has %+v", *archived))
	default:
		c.res.count(k, "archive", lost("is %+v, the cache has %+v", *archived, *cached))
	}
}

func visible(r *history.Record) *history.Record {
	if r == nil || r.Deleted() {
		return nil
	}
	return r
}

// clears judges the time of an object's clear mark.
func (c *checker) clears(k history.Key, got int64) *fault {
	known := got == 0
	for _, cl := range c.book.clears[k.UID] {
		if cl.typ != 0 && cl.typ != k.Object.Type {
			continue
		}
		if cl.acked && got < cl.until {
			return risen("does not know that it was cleared to %d", cl.until)
		}
		known = known || cl.until == got
	}
	if !known {
		return lost("cleared to %d, which nobody asked for", got)
	}
	return nil
}

// sameRecord compares records, except for Partial.
func sameRecord(a, b *history.Record) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	x.Partial, y.Partial = false, false
	return history.Same(&x, &y)
}

func (c *checker) readers(ctx context.Context) error {
	for _, uid := range slices.Sorted(maps.Keys(c.visible)) {
		if err := c.pages(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) show(k history.Key, r *history.Record) {
	if c.visible[k.UID] == nil {
		c.visible[k.UID] = make(map[history.Object]*history.Record)
	}
	c.visible[k.UID][k.Object] = r
}

// pageSize splits most users' lists into several pages.
const pageSize = 4

// pages reads a user's whole list and points and compares them with the records. At rest an unlisted object is a
// gap, and an object listed twice a repeat.
func (c *checker) pages(ctx context.Context, uid string) error {
	target := c.rpcs[len(uid)%len(c.rpcs)]
	want, seen := c.visible[uid], make(map[history.Object]bool)
	for cursor, more := "", true; more; {
		resp, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.ListResponse, error) {
			return target.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: pageSize, Cursor: cursor})
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", uid, err)
		}
		for _, it := range resp.GetItems() {
			o := history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}
			if c.item(history.Key{UID: uid, Object: o}, it, "page"); seen[o] {
				c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is listed twice"))
			}
			seen[o] = true
		}
		cursor, more = resp.GetCursor(), resp.GetHasMore()
	}
	for o, r := range want {
		if r != nil && !seen[o] {
			c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is not listed"))
		}
	}
	if c.pagesOnly {
		return nil
	}
	return c.points(ctx, target, uid)
}

func (c *checker) points(ctx context.Context, target rpcClient, uid string) error {
	for objects := range slices.Chunk(slices.Collect(maps.Keys(c.visible[uid])), 100) {
		req := pointsOf(uid, objects)
		resp, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) { return target.Points(ctx, req) })
		if err != nil {
			return fmt.Errorf("points %s: %w", uid, err)
		}
		for i, it := range resp.GetItems() {
			c.item(history.Key{UID: uid, Object: objects[i]}, it, "point")
		}
	}
	return nil
}

// untilAnswered retries a read like a player, because a busy machine may exceed the services' short deadline.
func untilAnswered[T any](ctx context.Context, read func(context.Context) (T, error)) (answer T, err error) {
	err = process.Await(ctx, 20*time.Second, "an answer", func(ctx context.Context) (err error) {
		answer, err = read(ctx)
		return err
	})
	return answer, err
}

// item judges an item in an answer.
func (c *checker) item(k history.Key, it *historyv1.Item, where string) {
	want := c.visible[k.UID][k.Object]
	switch {
	case want == nil && it.GetObject() == nil:
	case want == nil:
		c.res.count(k, where, risen("shows %v", it))
	case it.GetObject() == nil || it.GetIncomplete() || !viewOfItem(it).equal(viewOf(want)):
		c.res.count(k, where, lost("shows %v, want %+v", it, *want))
	}
}
