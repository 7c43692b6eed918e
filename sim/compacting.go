package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/compaction"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	parts "github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// In some seeds the archive is the HBase adapter over an in-memory HBase. Both jobs compact users at any moment,
// and each HBase call is an exchange.

const (
	compactAbove  = 1
	compactMargin = 5 * time.Second
	compactSkew   = 100 * time.Millisecond // of a clock, either way
	// A put or a switch that reached HBase before its caller gave up lands within this time, or never.
	landsWithin = 2 * time.Second
)

// compacting is the archive of such a seed.
type compacting struct {
	w      *World
	store  *hbasefake.Store
	after  time.Duration
	begun  bool
	long   map[string]int64 // when users with many live records are due; guarded by w.mu
	reader *hbase.Archive   // of the judge
	erased map[string]int64 // time up to which a user was erased; guarded by w.mu
}

// compressed initializes the compression of chunks outside any bubble: it keeps channels.
var compressed = func() (all []parts.Encoded) {
	items := make([]history.Item, 100)
	for i := range items {
		o := history.Object{ID: strconv.Itoa(i), Type: 1}
		e := history.Event{Key: history.Key{UID: "u", Object: o}, At: int64(1000 - i), Session: fmt.Sprintf("session %d of a device", i)}
		items[i] = history.Item{Object: o, Record: e.Record()}
	}
	all, err := parts.Encode(items)
	if err != nil {
		panic(err)
	}
	for i := range all {
		if _, err := all[i].Open(all[i].Data); err != nil {
			panic(err)
		}
	}
	return all
}()

func newCompacting(w *World) *compacting {
	d := &dice{w.src.draw(streamSeed)}
	_ = compressed
	r := &compacting{w: w, store: hbasefake.New(time.Now), long: make(map[string]int64), erased: make(map[string]int64)}
	r.look()
	if r.after = [...]time.Duration{500 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second}[d.n(3)]; !d.one(3) {
		r.begin(time.Unix(1, 0))
	}
	return r
}

// begin enables compaction from a time on.
func (r *compacting) begin(since time.Time) {
	r.begun = true
	a := hbase.Over(r.store, r.config(func() time.Time { return since }))
	if err := a.BeginCompacting(context.Background()); err != nil {
		panic(err)
	}
}

func (r *compacting) config(now func() time.Time) hbase.Config {
	return hbase.Config{CompactAbove: compactAbove, CompactAfter: r.after, CompactMargin: compactMargin, Deadline: 2 * time.Second, Now: now, Rules: r.w.rules}
}

// look makes a reader for the judge, without cached state, whose calls end at once.
func (r *compacting) look() { r.reader = hbase.Over(r.store, r.config(time.Now)) }

// compactedDoor is the archive as a process reaches it.
type compactedDoor struct {
	*process
	archive *hbase.Archive
}

var (
	_ history.Archive  = compactedDoor{}
	_ compaction.Notes = compactedDoor{}
)

func (r *compacting) open(p *process) compactedDoor {
	skew := time.Duration(mix(r.w.src.seed, streams+1, uint64(p.number))%uint64(2*compactSkew)) - compactSkew //nolint:gosec // small
	c := r.config(func() time.Time { return time.Now().Add(skew) })
	d := compactedDoor{process: p}
	c.Long = func(ctx context.Context, uid string) error { return d.Note(ctx, uid, time.Now().UnixMilli()) }
	d.archive = hbase.Over(r.store.Through(d.exchange), c)
	return d
}

// operation is the purpose of an exchange with HBase.
type operation struct {
	what  string
	began time.Time
	about string // the user, or the keys
	user  uint64 // revision of the state being put
}

type operationKey struct{}

func within(ctx context.Context, what, about string, user uint64) context.Context {
	return context.WithValue(ctx, operationKey{}, &operation{what, time.Now(), about, user})
}

type hbaseCall struct {
	*hbasefake.Call
	op     *operation
	began  time.Time
	key    history.Key
	record *history.Record // being put; nil for anything else
}

// exchange runs HBase calls as an exchange.
func (d compactedDoor) exchange(ctx context.Context, all *hbasefake.Exchange) {
	op := ctx.Value(operationKey{}).(*operation)
	calls := make([]hbaseCall, len(all.Calls))
	x := &exchange{proc: d.process, what: op.what, about: op.about, keys: make([]history.Key, len(calls)), run: all.Make, fail: all.Fail}
	for i := range calls {
		calls[i] = callOf(op, &all.Calls[i])
		if x.keys[i] = calls[i].key; calls[i].Put || calls[i].Delete {
			x.late = func(i int) {
				if d.lands(&calls[i]) {
					all.Repeat(i)
					d.done(&calls[i])
				}
			}
		}
	}
	if x.late != nil {
		x.run = func(i int) {
			if _, twice := d.w.src.chance(streamFate, d.w.faults()/4); twice && calls[i].Compares {
				all.Repeat(i) // retried by the client after a lost answer
			}
			all.Make(i)
			d.done(&calls[i])
		}
	}
	d.w.do(ctx, x)
}

func callOf(op *operation, c *hbasefake.Call) hbaseCall {
	uid, name, chunk := strings.Cut(c.Row[2:], "\x00")
	call := hbaseCall{Call: c, op: op, began: time.Now(), key: history.Key{UID: uid, Object: history.Object{ID: c.Column}}}
	switch {
	case chunk: // the random part of the name is left out
		parts := strings.Split(name, ".")
		call.key.Object.ID = parts[0] + "." + parts[len(parts)-1]
	case op.what == "put" && c.Put:
		text, _, _ := strings.Cut(c.Column, "\x00")
		o, err := history.ParseObject(text)
		if err != nil {
			panic(err)
		}
		if call.record, err = wire.Record(c.Value); err != nil {
			panic(err)
		}
		call.key.Object = o
	}
	return call
}

// lands reports whether an abandoned write lands, by the same rules as [archiveDoor].
func (d compactedDoor) lands(c *hbaseCall) bool {
	w := d.w
	switch {
	case c.record != nil:
		return time.Since(c.op.began) < landsWithin && (w.cache.knows(c.record.Revision) || !w.archived[c.key])
	case c.op.what == "put user":
		return w.userLands(c.key.UID, c.op.user)
	case c.Compares:
		return time.Since(c.began) < landsWithin
	}
	return true
}

// done notes a write.
func (d compactedDoor) done(c *hbaseCall) {
	w := d.w
	if c.record != nil && w.cache.made[c.record.Revision] {
		w.archived[c.key] = true
	}
	if c.op.what == "put user" && w.cache.made[c.op.user] {
		w.archived[history.UserKey(c.key.UID)] = true
	}
	if !w.traced() {
		return
	}
	switch {
	case c.record != nil:
		w.tracef("        . put %s in %s %s", c.key, c.Family, w.content(c.record))
	case c.Delete:
		w.tracef("        . deleted %s %s %q of %s", c.Table, c.Family, c.Column, c.key)
	default:
		w.tracef("        . wrote %s %s %q of %s", c.Table, c.Family, c.Column, c.key)
	}
}

func (d compactedDoor) Put(ctx context.Context, cells []history.Cell) []error {
	return d.archive.Put(within(ctx, "put", "", 0), cells)
}

func (d compactedDoor) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	return d.archive.Get(within(ctx, "get", fmt.Sprint(keys), 0), keys)
}

func (d compactedDoor) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	return d.archive.Page(within(ctx, "page", uid, 0), uid, q)
}

func (d compactedDoor) PutUser(ctx context.Context, uid string, u history.User) error {
	return d.archive.PutUser(within(ctx, "put user", uid, u.Revision), uid, u)
}

func (d compactedDoor) Compact(ctx context.Context, uid string) (time.Duration, error) {
	return d.archive.Compact(within(ctx, "compact", uid, 0), uid)
}

func (d compactedDoor) Tidy(ctx context.Context, uid string) (time.Duration, error) {
	return d.archive.Tidy(within(ctx, "compact", uid, 0), uid)
}

func (d compactedDoor) Note(_ context.Context, uid string, due int64) error {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.compacting.long[uid] = due; due == 0 {
		delete(d.w.compacting.long, uid)
	}
	return nil
}

func (d compactedDoor) TakeNotes(ctx context.Context, buckets []history.Bucket, now int64, _ int) (uids []string, err error) {
	err = d.read(ctx, "notes", history.Key{}, func() {
		d.w.mu.Lock()
		defer d.w.mu.Unlock()
		for _, uid := range slices.Sorted(maps.Keys(d.w.compacting.long)) {
			if slices.Contains(buckets, history.BucketOf(uid)) && d.w.compacting.long[uid] <= now {
				uids = append(uids, uid)
				d.w.compacting.long[uid] = now + history.NoteLease.Milliseconds()
			}
		}
	})
	return uids, err
}

// NoteRemoved does nothing: a lost note only delays the physical removal, which readers cannot see. Tests of the
// job and the adapter cover it.
func (d compactedDoor) NoteRemoved(context.Context, []string, int64) error { return nil }

func (d compactedDoor) Removed(context.Context, []history.Bucket, int64) ([]string, error) {
	return nil, nil
}

func (d compactedDoor) ForgetRemoved(context.Context, []history.Bucket, int64) error { return nil }

func (w *World) archiveOf(p *process) history.Archive {
	if w.compacting != nil {
		return w.compacting.open(p)
	}
	return archiveDoor{p}
}

func (w *World) archivedAt(k history.Key) history.Entry {
	if w.compacting == nil {
		return w.archive.get(k)
	}
	if k.IsUser() {
		page, err := w.compacting.reader.Page(context.Background(), k.UID, history.Query{})
		if err != nil {
			w.fail("the archive has no answer for %s: %v", k.UID, err)
		}
		return history.Entry{User: page.User}
	}
	entries, err := w.compacting.reader.Get(context.Background(), []history.Key{k})
	if err != nil {
		w.fail("the archive has no answer for %s: %v", k, err)
		return history.Entry{}
	}
	if entries[0].Err != nil {
		w.fail("the archive cannot read %s: %v", k, entries[0].Err)
	}
	return entries[0]
}

// event changes something about the segments.
func (r *compacting) event(d *dice) {
	w, uid := r.w, r.w.anyNamespace(d)
	switch d.n(12) {
	case 0:
		w.tracef("archive is compacted")
		r.store.Compact()
	case 1:
		if !r.begun {
			w.tracef("archive there is compacting from now on")
			r.begin(time.Now())
		}
	case 2:
		r.erase(d.n(len(w.jobs)), uid)
	default:
		r.compact(d.n(len(w.jobs)), uid)
	}
}

// compact starts the compaction of a user in a job.
func (r *compacting) compact(n int, uid string) {
	j := r.w.jobs[n]
	if j.dead.Load() {
		return
	}
	r.w.tracef("%-7s begins to compact %s", j.name, uid)
	go func() { _, _ = j.compactions.Compact(j.ctx, uid) }()
	r.w.gather()
}

// erase starts an erasure up to the archived clear mark.
func (r *compacting) erase(n int, uid string) {
	j, until := r.w.jobs[n], r.w.archivedAt(history.UserKey(uid)).User.Cleared[0]
	if j.dead.Load() || until == 0 {
		return
	}
	r.w.tracef("%-7s begins to erase %s up to %s", j.name, uid, moment(until))
	go func() {
		ctx, cancel := context.WithTimeout(within(j.ctx, "erase", uid, 0), time.Minute)
		defer cancel()
		if err := j.compactions.archive.Erase(ctx, uid, until); err == nil && !j.dead.Load() {
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			r.erased[uid] = max(r.erased[uid], until)
		}
	}()
	r.w.gather()
}

// judge checks the segments' integrity.
func (r *compacting) judge(uid string) {
	a, w := r.reader, r.w
	i, err := a.Inspect(context.Background(), uid, true)
	if err != nil || len(i.Wrong) > 0 {
		w.fail("at rest, parts of %s: %v %v", uid, err, i.Wrong)
		return
	}
	w.mu.Lock()
	until := r.erased[uid]
	w.mu.Unlock()
	if until == 0 {
		return
	}
	held, err := a.Held(context.Background(), uid, until)
	if n := held["archive: records in parts"]; err != nil || n > 0 {
		w.fail("at rest, %d records in parts of %s are left of what was erased: %v", n, uid, err)
	}
}

// compactUp compacts a user's old records. The compaction is held up after any exchange, while others put,
// remove, compact and read.
func (s *sequence) compactUp(d *dice) {
	w := s.w
	clear(w.delayed)
	if s.objects = w.objects(); !w.compacting.begun && d.one(4) {
		w.compacting.begin(time.Now())
	}
	for range 1 + d.n(3) { // earlier segments, perhaps
		for first, n := d.n(len(s.objects)), 0; n < 2+d.n(3); n++ {
			s.focus = (first + n) % len(s.objects)
			if s.maybe([...]action{reportNow, reportNow, reportNow, reportLate, removeOne, markOne}[d.n(6)]); d.one(3) {
				w.pass(time.Duration(d.n(1500)) * time.Millisecond) // they age one after the other
			}
		}
		s.maybe(archiveAll)
		if w.traits.older && d.one(3) {
			w.snapshot = w.cache.Clone()
		}
		w.pass(w.compacting.after + compactMargin*time.Duration(1+d.n(3)) - time.Duration(d.n(2500))*time.Millisecond)
		if d.one(2) {
			s.compactSome(d, 100)
		}
	}
	s.focus = d.n(len(s.objects))
	if d.one(2) {
		s.maybe([...]action{clearAll, clearLast, removeOne, removeOne, dismissOne}[d.n(5)])
		if d.one(2) {
			s.maybe(archiveAll)
		}
	}
	for range 1 + d.n(2) {
		if s.compactSome(d, [...]int{0, 1, 1, 2, 3, 4, 5, 6, 8}[d.n(9)]); d.one(2) {
			w.delayed["compact"] = true
		}
		for range 1 + d.n(4) {
			s.besideCompact(d)
		}
	}
	s.maybe(turnPages)
	s.maybe(landAll)
	s.maybe(archiveAll)
	if d.one(2) {
		w.pass(compactMargin + compactMargin/4)
		s.compactSome(d, 100)
	}
}

// compactSome starts a compaction of the user and completes a number of its exchanges.
func (s *sequence) compactSome(d *dice, exchanges int) {
	w, slow := s.w, d.one(4)
	w.compacting.compact(d.n(len(w.jobs)), w.namespaceOf(s.uid, d))
	for range exchanges {
		n := slices.IndexFunc(w.pending, func(x *exchange) bool { return x.what == "compact" && !x.idle.After(time.Now()) })
		if n < 0 || w.failure != "" {
			return
		}
		w.steps++
		w.turns++
		if x := w.pending[n]; d.one(12) {
			w.goWrong(x, d)
		} else {
			w.proceed(x)
		}
		if w.gather(); slow || d.one(8) {
			w.pass(time.Duration(d.n(1600)) * time.Millisecond)
		} else {
			w.pass(time.Millisecond / 2)
		}
	}
}

// besideCompact does something while a compaction is held up.
func (s *sequence) besideCompact(d *dice) {
	w := s.w
	switch d.n(14) {
	case 0:
		w.compacting.store.Compact()
		w.tracef("archive is compacted")
	case 1:
		w.compacting.erase(d.n(len(w.jobs)), w.namespaceOf(s.uid, d))
		w.delayed["erase"] = d.one(2)
	case 2:
		if !w.traits.older {
			w.kill(w.jobs[d.n(len(w.jobs))].process, "is killed")
			w.gather()
		}
	case 3:
		delete(w.delayed, "compact")
		s.compactSome(d, 100)
	case 4:
		delete(w.delayed, "compact")
		w.pass(compactMargin)
	case 5:
		w.delayed["put"] = true
	case 6:
		s.maybe(clearLast)
		s.goOnUntil(40, 2, func() bool { return false })
		w.compacting.erase(d.n(len(w.jobs)), w.namespaceOf(s.uid, d))
		s.goOnUntil(40, 2, func() bool { return false })
	default:
		s.maybe([...]action{
			reportNow, reportLate, reportLate, reportLate, removeOne, markOne, clearAll, clearLast, archiveAll, archiveAll, forgetUser,
			readSome, turnPages, passTime, loseCache, landAll, switchRecording,
		}[d.n(17)])
	}
}
