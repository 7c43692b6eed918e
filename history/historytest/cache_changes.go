package historytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

func (c *cacheCase) changes(uid string, after uint64, limit int) history.Changes {
	c.Helper()
	got, err := c.Changes(c.Context(), uid, after, limit)
	if err != nil {
		c.Fatalf("Changes(%s, %d): %v", uid, after, err)
	}
	if got.Log == 0 || len(got.Entries) > limit {
		c.Fatalf("Changes(%s, %d, %d): got %+v, want a log with a name and no more entries", uid, after, limit, got)
	}
	for i, e := range got.Entries {
		if e.Place <= after || e.Place > got.Last || i > 0 && e.Place <= got.Entries[i-1].Place {
			c.Fatalf("Changes(%s, %d): got %+v, want places that grow, after %d and up to the last", uid, after, got, after)
		}
	}
	return got
}

// tells checks a log's objects after a place, each at its last entry.
func (c *cacheCase) tells(uid string, after uint64, want ...history.Key) history.Changes {
	c.Helper()
	got := c.changes(uid, after, 1000)
	at, objects := map[history.Object]uint64{}, []history.Object{}
	for _, e := range got.Entries {
		at[e.Object] = e.Place
	}
	for o := range at {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b history.Object) int { return int(at[a]) - int(at[b]) }) //nolint:gosec // few
	var wanted []history.Object
	for _, k := range want {
		wanted = append(wanted, k.Object)
	}
	if !slices.Equal(objects, wanted) {
		c.Errorf("Changes(%s, %d): got %v, want %v", uid, after, objects, wanted)
	}
	return got
}

// changesBegin starts a log with the dirty records.
func changesBegin(c *cacheCase) {
	uid := c.user()
	c.archive(key(uid, 1, 1), c.record(1))
	c.put(key(uid, 1, 2), c.record(2))
	c.put(key(uid, 2, 3), c.tombstone(3))
	first := c.changes(uid, 0, 10)
	if len(first.Entries) != 2 || first.Dropped != 0 {
		c.Errorf("a log that begins: got %+v, want the two that are not clean", first)
	}
	if again := c.changes(uid, 0, 10); !slices.Equal(again.Entries, first.Entries) || again.Log != first.Log || again.Last != first.Last {
		c.Errorf("the log again: got %+v, want %+v", again, first)
	}
	if other := c.changes(c.user(), 0, 10); other.Log == first.Log || len(other.Entries) != 0 || other.Last != 0 {
		c.Errorf("the log of another user: got %+v, want an empty one of another name", other)
	}
}

// changesWritten: only a write with no base, or with a clean one, adds an entry.
func changesWritten(c *cacheCase) {
	uid := c.user()
	a, b := key(uid, 1, 1), key(uid, 1, 2)
	name := c.tells(uid, 0).Log
	first := c.put(a, c.record(1))
	c.put(b, c.record(2))
	at := c.tells(uid, 0, a, b).Last
	second := revise(first)
	c.applied(history.Write{Key: a, Record: second, Base: first.Revision, BeginsHold: true})
	third := revise(first)
	c.applied(history.Write{Key: a, Record: third, Base: second.Revision})
	c.conflicts(history.Write{Key: a, Record: c.record(9), Base: first.Revision})
	c.conflicts(history.Write{Key: a, Record: c.record(9)})
	c.conflicts(history.Write{Key: key(uid, 1, 3), Record: c.record(9), Base: first.Revision | history.CleanBit})
	c.markClean(content(a, third))
	c.tells(uid, at)
	c.applied(history.Write{Key: a, Record: revise(third), Base: clean(third).Revision})
	c.tells(uid, at, a)
	if got := c.tells(uid, 0, b, a); got.Log != name {
		c.Errorf("the log has become %x, before %x", got.Log, name)
	}
}

// changesMany writes records of two users in one call.
func changesMany(c *cacheCase) {
	one, two := c.user(), c.user()
	c.tells(one, 0)
	c.tells(two, 0)
	var writes []history.Write
	var ones, twos []history.Key
	for n := range 40 {
		k, l := key(one, 1, n), key(two, 1, n)
		ones, twos = append(ones, k), append(twos, l)
		writes = append(writes, history.Write{Key: k, Record: partial(c.record(int64(n)))}, history.Write{Key: l, Record: partial(c.record(int64(n)))})
	}
	for i, out := range c.Write(c.Context(), writes) {
		if out.Status != history.Applied {
			c.Fatalf("Write(%s): got %+v, want applied", writes[i].Key, out)
		}
	}
	places := func(uid string, want []history.Key) {
		got, at := map[history.Object]bool{}, uint64(0)
		for range len(want) {
			for _, e := range c.changes(uid, at, 7).Entries {
				got[e.Object], at = true, e.Place
			}
		}
		for _, k := range want {
			if !got[k.Object] {
				c.Errorf("%s is not in the log of %s", k.Object, uid)
			}
		}
	}
	places(one, ones)
	places(two, twos)
}

func partial(r *history.Record) *history.Record {
	m := *r
	m.Partial = true
	return &m
}

// changesEnd: a clear ends a log; a switch of recording and a warm-up do not.
func changesEnd(c *cacheCase) {
	uid := c.user()
	name := c.tells(uid, 0).Log
	k := key(uid, 1, 1)
	c.put(k, c.record(50))
	c.warm(uid, history.WarmSet{Items: []history.Item{c.archived(2, c.record(2))}})
	if err := c.Pause(c.Context(), uid, history.Pause{}, history.Pause{Since: c.start + 60}); err != nil {
		c.Fatalf("Pause: %v", err)
	}
	if got := c.tells(uid, 0, k); got.Log != name {
		c.Errorf("after a warm-up and a switch the log is %x, before %x", got.Log, name)
	}
	c.clear(uid, 2, 10)
	cleared := c.tells(uid, 0, k)
	if cleared.Log == name {
		c.Errorf("after a clear the log is %x still", name)
	}
	c.clear(uid, 0, 100)
	if got := c.tells(uid, 0); got.Log == name || got.Log == cleared.Log {
		c.Errorf("after another clear the log is %x still", got.Log)
	}
}

// changesTrim drops the oldest entries, up to the first entry of dirty content.
func changesTrim(c *cacheCase) {
	uid := c.user()
	c.warm(uid, history.WarmSet{})
	c.tells(uid, 0)
	items := c.fill(uid, 25)
	var all []history.Key
	for _, it := range items {
		all = append(all, history.Key{UID: uid, Object: it.Object})
	}
	before := c.tells(uid, 0, all...)
	k, at := all[5], uint64(0)
	r := revise(items[5].Record)
	c.applied(history.Write{Key: k, Record: r, Base: items[5].Record.Revision})
	c.markClean(content(k, r))
	waits := revise(items[10].Record)
	c.applied(history.Write{Key: all[10], Record: waits, Base: items[10].Record.Revision})
	order := append(slices.Delete(slices.Clone(all), 10, 11), all[10])
	order = slices.Delete(order, 5, 6)
	order = slices.Insert(order, len(order)-1, k)
	c.tells(uid, 0, order...)
	c.trim(uid)
	got := c.tells(uid, 0, order[25-kept:]...)
	for _, e := range before.Entries {
		if e.Object == order[24-kept].Object {
			at = e.Place
		}
	}
	if got.Dropped != at || got.Log != before.Log {
		c.Errorf("after a trim the log is %+v, want the last dropped at %d", got, at)
	}
	for n := range 2 * kept {
		c.put(key(uid, 3, n), c.record(int64(100+n)))
	}
	c.trim(uid)
	stuck := c.changes(uid, 0, 1000)
	if len(stuck.Entries) < 2*kept+1 || stuck.Entries[0].Object != all[10].Object && !tellsOf(stuck, all[10].Object) {
		c.Errorf("after a trim the log is %+v, want all from the first that is not clean on", stuck)
	}
	c.markClean(content(all[10], waits))
	c.trim(uid)
	if after := c.changes(uid, 0, 1000); tellsOf(after, all[10].Object) || after.Dropped <= at {
		c.Errorf("after it was clean and trimmed the log is %+v, want it dropped", after)
	}
}

func tellsOf(l history.Changes, o history.Object) bool {
	return slices.ContainsFunc(l.Entries, func(e history.LogEntry) bool { return e.Object == o })
}

// follower is a client that knows a user only through the log.
type follower struct {
	*cacheCase
	uid        string
	log        uint64
	place, low uint64 // low is the place before the first entry of dirty content
	dirty      bool   // dirty content exists
	known      map[history.Object]*history.Record
	inArchive  map[history.Object]*history.Record // the archive's records
}

// follow reads to the end, limit entries at a time.
func (f *follower) follow(limit int, meanwhile func()) {
	f.Helper()
	for {
		got := f.changes(f.uid, f.place, limit)
		meanwhile()
		if from := f.place; got.Log != f.log || from < got.Dropped || f.dirty && f.low < got.Dropped {
			f.log, f.place, f.dirty = got.Log, got.Dropped, false
			f.known = map[history.Object]*history.Record{}
			objects := slices.Collect(maps.Keys(f.inArchive))
			for i, e := range f.loads(objects) {
				f.learn(objects[i], f.inArchive[objects[i]], e)
			}
			continue
		}
		f.read(got)
		if n := len(got.Entries); n == limit && got.Entries[n-1].Place < got.Last {
			f.place = got.Entries[n-1].Place
			continue
		}
		if f.place = got.Last; f.dirty {
			f.place, f.dirty = f.low, false
		}
		return
	}
}

func (f *follower) read(got history.Changes) {
	objects := make([]history.Object, len(got.Entries))
	for i, x := range got.Entries {
		objects[i] = x.Object
	}
	for i, e := range f.loads(objects) {
		x := got.Entries[i]
		if e.Record != nil && !e.Record.Clean() && !f.dirty {
			f.low, f.dirty = x.Place-1, true
		}
		f.learn(x.Object, f.inArchive[x.Object], e)
	}
}

func (f *follower) loads(objects []history.Object) []history.Entry {
	f.Helper()
	if len(objects) == 0 {
		return nil
	}
	keys := make([]history.Key, len(objects))
	for i, o := range objects {
		keys[i] = history.Key{UID: f.uid, Object: o}
	}
	entries := f.Load(f.Context(), keys)
	for i, e := range entries {
		if e.Err != nil {
			f.Fatalf("Load(%s): %v", keys[i], e.Err)
		}
	}
	return entries
}

func (f *follower) learn(o history.Object, archived *history.Record, e history.Entry) {
	r := e.Record
	if r == nil {
		r = archived
	}
	if r = r.Visible(o, &e.User); r == nil {
		delete(f.known, o)
	} else {
		f.known[o] = r
	}
}

// changesFollowed has a client follow the log through writes, marks clean, clears, switches and trims. It ends
// with the actual records.
func changesFollowed(c *cacheCase) {
	rounds := 6
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		w := &changing{follower: &follower{cacheCase: c, uid: c.user(), inArchive: map[history.Object]*history.Record{}}, random: rand.New(rand.NewPCG(rand.Uint64(), 1))} //nolint:gosec // no secret
		w.truth = map[history.Object]*history.Record{}
		c.warm(w.uid, history.WarmSet{})
		for range 40 {
			for range 1 + w.random.IntN(20) {
				w.act()
			}
			w.follow(1+w.random.IntN(7), func() {
				if w.random.IntN(3) == 0 {
					w.act()
				}
			})
			w.follow(1+w.random.IntN(30), func() {})
			w.compare()
		}
	}
}

// changing makes random changes of a user.
type changing struct {
	*follower
	random *rand.Rand
	ms     int64
	truth  map[history.Object]*history.Record
}

func (w *changing) act() {
	w.Helper()
	k := key(w.uid, uint32(1+w.random.IntN(2)), w.random.IntN(15)) //nolint:gosec // small
	e := w.load(k)
	w.ms++
	switch n := w.random.IntN(100); {
	case n < 55:
		r := w.record(w.ms)
		if n < 8 {
			r = w.tombstone(w.ms)
		}
		write := history.WriteOn(e.Record, k, partial(r), &e.User)
		write.BeginsHold = n < 20
		w.applied(write)
		w.truth[k.Object] = r
	case n < 90:
		if e.Record != nil {
			w.inArchive[k.Object] = e.Record
			w.markClean(content(k, e.Record))
		}
	case n < 95:
		w.trim(w.uid)
	case n < 98:
		if err := w.Pause(w.Context(), w.uid, e.User.Pause, e.User.Pause.Switched(e.User.Pause.On(), w.start+w.ms, 0)); err != nil {
			w.Fatalf("Pause: %v", err)
		}
	default:
		typ, until := uint32(w.random.IntN(3)), w.ms-w.random.Int64N(30) //nolint:gosec // small
		w.clear(w.uid, typ, until)
	}
}

func (w *changing) compare() {
	w.Helper()
	u := w.load(history.UserKey(w.uid)).User
	for _, typ := range []uint32{1, 2} {
		for n := range 15 {
			o := key(w.uid, typ, n).Object
			want := w.truth[o].Visible(o, &u)
			if got := w.known[o]; (got == nil) != (want == nil) || got != nil && got.Version != want.Version {
				w.Fatalf("%s: the client that follows has %+v, want %+v", o, got, want)
			}
		}
	}
}

// changesRaced has a client follow while a goroutine writes and marks clean.
func changesRaced(c *cacheCase) {
	f := &follower{cacheCase: c, uid: c.user(), inArchive: map[history.Object]*history.Record{}}
	ctx, done := c.Context(), make(chan error, 1)
	keys := []history.Key{key(f.uid, 1, 1), key(f.uid, 1, 2), key(f.uid, 1, 3)}
	go func() {
		for n := range 300 {
			k := keys[n%3]
			e := c.Load(ctx, []history.Key{k})[0]
			if e.Err != nil {
				done <- e.Err
				return
			}
			if n%5 < 2 && e.Record != nil {
				if err := c.MarkClean(ctx, []history.Content{content(k, e.Record)}); err != nil {
					done <- err
					return
				}
				continue
			}
			if out := c.Write(ctx, []history.Write{history.WriteOn(e.Record, k, partial(c.record(int64(n+1))), &e.User)})[0]; out.Status != history.Applied {
				done <- fmt.Errorf("write %d: %+v", n, out)
				return
			}
		}
		done <- nil
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				c.Fatal(err)
			}
			running = false
		default:
		}
		f.follow(2, func() {})
	}
	for _, k := range keys {
		if got, want := f.known[k.Object], c.load(k).Record; got == nil || got.Version != want.Version {
			c.Errorf("%s: the client that follows has %+v, want %+v", k, got, want)
		}
	}
}

// changesCleared reads a log while a goroutine repeatedly ends it.
func changesCleared(c *cacheCase) {
	uid, done := c.user(), make(chan error, 1)
	ctx, running := context.WithCancel(c.Context())
	defer running()
	go func() {
		var err error
		for n := int64(1); err == nil && ctx.Err() == nil; n++ {
			_, err = c.Clear(c.Context(), uid, history.Clear{Until: c.start + n})
		}
		done <- err
	}()
	for range 100 {
		got, err := c.Changes(c.Context(), uid, 0, 10)
		if err == nil && got.Log == 0 || err != nil && !errors.Is(err, history.ErrUnavailable) {
			c.Errorf("Changes(%s): got %+v and %v, want a log with a name", uid, got, err)
			break
		}
	}
	running()
	if err := <-done; err != nil {
		c.Fatal(err)
	}
}
