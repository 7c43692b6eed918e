//go:build e2e

package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestSlotMoves moves a bucket's slot between servers, key by key in any order. Meanwhile its users are written,
// archived, trimmed and cleared. Every acknowledged record must end up in the archive, or in the cache with a mark.
func TestSlotMoves(t *testing.T) {
	config := cluster(t)
	config.Keep, config.Timeout = 20, 2*time.Second
	w := &world{T: t, Cache: open(t, config), masters: nodesOf(t, config), archive: map[history.Key]*archived{}, pace: time.NewTicker(2 * time.Millisecond)}
	defer w.pace.Stop()
	uids := w.sharers(30)
	defer w.leave(uids)
	var users, others sync.WaitGroup
	for _, uid := range uids {
		users.Go(func() { w.use(uid) })
	}
	followers := make([]*follower, 10)
	for i := range followers {
		followers[i] = &follower{uid: uids[i], known: map[history.Key]history.Version{}}
		others.Go(func() { w.until(func() { w.follow(followers[i]) }) })
	}
	others.Go(func() { w.until(w.markClean) })
	others.Go(func() {
		w.until(func() {
			if w.Trim(t.Context(), uids) == nil {
				w.trims.Add(1)
			}
		})
	})
	for n := range 6 {
		w.move(w.masters[n%3], w.masters[(n+1)%3])
	}
	w.stop.Store(true)
	users.Wait()
	others.Wait()
	w.check()
	known := 0
	for _, f := range followers {
		f.entries = 0
		for range 2 { // the first may end what it began before
			for !w.follow(f) && f.entries < 10_000 {
			}
		}
		known += w.checkFollower(f)
	}
	if known == 0 {
		t.Error("no follower knows anything")
	}
	t.Logf("acknowledged %d writes and %d clears; %d settles, %d trims", w.acks.Load(), w.clears.Load(), w.marksClean.Load(), w.trims.Load())
	for what, n := range map[string]*atomic.Int64{"write": &w.acks, "clear": &w.clears, "mark_clean": &w.marksClean, "trim": &w.trims} {
		if n.Load() == 0 {
			t.Errorf("no %s came through", what)
		}
	}
}

// world is the activity around a slot, and its results.
type world struct {
	*testing.T
	*redis.Cache
	masters []*goredis.Client
	bucket  history.Bucket
	stop    atomic.Bool
	pace    *time.Ticker // slows down key migration

	acks, clears, marksClean, trims atomic.Int64

	mu      sync.Mutex
	archive map[history.Key]*archived
}

// archived is the test's knowledge of a key: archived contents, the latest archived version, and the latest version
// acknowledged since the last clear.
type archived struct {
	contents      map[uint64]bool
	latest, acked history.Version
}

func (w *world) known(k history.Key) *archived {
	if w.archive[k] == nil {
		w.archive[k] = &archived{contents: map[uint64]bool{}}
	}
	return w.archive[k]
}

// follower is a client that reads a user's change log.
type follower struct {
	uid        string
	log        uint64
	place, low uint64
	dirty      bool
	known      map[history.Key]history.Version
	entries    int
}

// follow reads a part of the log, and reports whether it reached the end.
func (w *world) follow(f *follower) bool {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	got, err := w.Changes(ctx, f.uid, f.place, 20)
	if err != nil {
		return false
	}
	from := f.place
	if f.dirty {
		from = f.low
	}
	var keys []history.Key
	again := got.Log != f.log || from < got.Dropped
	for _, e := range got.Entries {
		keys = append(keys, history.Key{UID: f.uid, Object: e.Object})
	}
	if again {
		keys = objectsOf(f.uid)
	}
	entries := w.Load(ctx, keys)
	if slices.ContainsFunc(entries, func(e history.Entry) bool { return e.Err != nil }) {
		return false
	}
	if again {
		f.log, f.place, f.dirty, f.known = got.Log, got.Dropped, false, map[history.Key]history.Version{}
	}
	for i, e := range entries {
		if e.Record == nil {
			continue // archived and trimmed, or cleared, which begins a new log
		}
		if !again && !e.Record.Clean() && !f.dirty {
			f.low, f.dirty = got.Entries[i].Place-1, true
		}
		f.known[keys[i]] = e.Record.Version
	}
	n := len(got.Entries)
	if f.entries += n + 1; again {
		return false
	}
	if n == 20 && got.Entries[n-1].Place < got.Last {
		f.place = got.Entries[n-1].Place
		return false
	}
	if f.place = got.Last; f.dirty {
		f.place, f.dirty = f.low, false
	}
	return true
}

// checkFollower checks that a follower knows the cache's records, and returns their number.
func (w *world) checkFollower(f *follower) (known int) {
	keys := objectsOf(f.uid)
	for i, e := range w.Load(w.Context(), keys) {
		switch {
		case e.Err != nil:
			w.Error(e.Err)
		case e.Record != nil && f.known[keys[i]] != e.Record.Version:
			w.Errorf("%s: a follower knows version %d, the cache has %+v", keys[i], f.known[keys[i]], e.Record)
		case e.Record != nil:
			known++
		}
	}
	return known
}

// objectsOf returns the keys that use writes.
func objectsOf(uid string) (keys []history.Key) {
	for n := range 60 {
		keys = append(keys, key(uid, fmt.Sprint(n)))
	}
	return keys
}

func nodesOf(t *testing.T, config redis.Config) []*goredis.Client {
	var nodes []*goredis.Client
	for _, addr := range config.Addrs {
		node := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2, MaxRetries: -1})
		t.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	return nodes
}

// sharers returns users of one bucket, whose slot ends up on the first master.
func (w *world) sharers(n int) []string {
	var uids []string
	for i := 0; len(uids) < n; i++ {
		uid := fmt.Sprintf("move%08x.%d", rand.Uint32(), i)
		if len(uids) == 0 {
			w.bucket = history.BucketOf(uid)
		}
		if history.BucketOf(uid) == w.bucket {
			uids = append(uids, uid)
		}
	}
	for _, node := range w.masters[1:] {
		w.move(node, w.masters[0])
	}
	return uids
}

func (w *world) leave(uids []string) {
	ctx := context.WithoutCancel(w.Context())
	for _, uid := range uids {
		if _, err := w.Clear(ctx, uid, history.Clear{Until: 1 << 43}); err != nil {
			w.Error(err)
		}
		own := history.UserKey(uid)
		if err := w.MarkClean(ctx, []history.Content{{Key: own, Revision: w.Load(ctx, []history.Key{own})[0].User.Revision}}); err != nil {
			w.Error(err)
		}
	}
}

func (w *world) until(do func()) {
	for !w.stop.Load() {
		do()
	}
}

// use writes sixty objects of a user, with occasional clears. Calls without an answer may or may not have happened.
func (w *world) use(uid string) {
	bases, start := map[history.Key]uint64{}, time.Now().UnixMilli()-3_600_000
	var known history.User
	if err := w.Warm(w.Context(), uid, history.WarmSet{}); err != nil {
		w.Logf("Warm: %v", err)
	}
	for at := start; !w.stop.Load(); at++ {
		if at%50 == 49 {
			w.clear(uid, at)
			continue
		}
		var writes []history.Write
		for n := range 1 + rand.IntN(3) {
			k := key(uid, fmt.Sprint(n*20+rand.IntN(20)))
			r := record(at, history.NewRevision())
			r.Partial = true
			writes = append(writes, history.Write{Key: k, Record: r, Base: bases[k], BeginsHold: rand.IntN(4) == 0, Cleared: known.ClearedAt(1)})
		}
		ctx, cancel := context.WithTimeout(w.Context(), 100*time.Millisecond)
		for i, out := range w.Write(ctx, writes) {
			k := writes[i].Key
			switch {
			case out.Status == history.Applied:
				bases[k] = writes[i].Record.Revision
				w.acks.Add(1)
				w.mu.Lock()
				w.known(k).acked = writes[i].Record.Version
				w.mu.Unlock()
			case out.Status == history.Conflict && out.Current.Record != nil:
				bases[k] = out.Current.Record.Revision
			default:
				delete(bases, k)
			}
			if out.Status == history.Conflict {
				known = out.Current.User
			}
		}
		cancel()
	}
}

func (w *world) clear(uid string, at int64) {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	if _, err := w.Clear(ctx, uid, history.Clear{Until: at}); err == nil {
		w.clears.Add(1)
	}
	w.mu.Lock() // it may still happen
	defer w.mu.Unlock()
	for k, a := range w.archive {
		if k.UID == uid {
			a.acked = 0
		}
	}
}

// markClean acts as a job: it loads marked keys, archives them, and marks them clean.
func (w *world) markClean() {
	ctx := w.Context()
	keys, err := w.Overdue(ctx, []history.Bucket{w.bucket}, 0, 200)
	if err != nil {
		return
	}
	var contents []history.Content
	for i, e := range w.Load(ctx, keys) {
		content := history.Content{Key: keys[i], Revision: e.User.Revision}
		if e.Err != nil {
			continue
		}
		if !keys[i].IsUser() {
			content.Revision = w.put(keys[i], e.Record)
		}
		contents = append(contents, content)
	}
	if w.MarkClean(ctx, contents) == nil {
		w.marksClean.Add(int64(len(contents)))
	}
}

// put archives a record and returns its revision.
func (w *world) put(k history.Key, r *history.Record) uint64 {
	if r == nil {
		return 0
	}
	if r.Clean() {
		return r.Revision
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.known(k)
	a.contents[r.Revision&^history.CleanBit] = true
	a.latest = max(a.latest, r.Version)
	return r.Revision
}

// move moves the slot, unless source does not own it. A server with its first key of the slot lacks the scripts.
func (w *world) move(from, to *goredis.Client) {
	w.Helper()
	ctx := w.Context()
	tag := fmt.Sprintf("{b%04d}", w.bucket)
	slot := must(w, from.ClusterKeySlot(ctx, tag))
	source, target := must(w, from.Do(ctx, "cluster", "myid")), must(w, to.Do(ctx, "cluster", "myid"))
	if err := from.Get(ctx, tag).Err(); goredis.HasErrorPrefix(err, "MOVED") {
		return
	}
	must(w, to.ScriptFlush(ctx))
	must(w, to.Do(ctx, "cluster", "setslot", slot, "importing", source))
	must(w, from.Do(ctx, "cluster", "setslot", slot, "migrating", target))
	for {
		keys := must(w, from.ClusterGetKeysInSlot(ctx, int(slot), 100_000))
		if len(keys) == 0 {
			break
		}
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for part := range slices.Chunk(keys, 5) {
			host, port := address(to)
			args := []any{"migrate", host, port, "", 0, 5000, "keys"}
			for _, k := range part {
				args = append(args, k)
			}
			must(w, from.Do(ctx, args...))
			<-w.pace.C
		}
	}
	for _, node := range append([]*goredis.Client{to, from}, w.masters...) {
		must(w, node.Do(ctx, "cluster", "setslot", slot, "node", target))
	}
	for range 50 { // time for writers with all keys together
		<-w.pace.C
	}
}

func address(node *goredis.Client) (host, port string) {
	host, port, _ = strings.Cut(node.Options().Addr, ":")
	return host, port
}

func must[T any](t testing.TB, cmd interface{ Result() (T, error) }) T {
	t.Helper()
	v, err := cmd.Result()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	return v
}

// check checks every key after the moves.
func (w *world) check() {
	keys, err := w.Overdue(w.Context(), []history.Bucket{w.bucket}, 0, 1<<30)
	if err != nil {
		w.Fatal(err)
	}
	for k, a := range w.archive {
		e := w.Load(w.Context(), []history.Key{k})[0]
		if e.Err != nil {
			w.Fatal(e.Err)
		}
		latest, has := a.latest, false
		if e.Record != nil {
			latest = max(latest, e.Record.Version)
			has = a.contents[e.Record.Revision&^history.CleanBit]
		}
		switch {
		case latest < a.acked:
			w.Errorf("%s: acknowledged %d, found %d", k, a.acked, latest)
		case e.Record.Clean() && !has:
			w.Errorf("%s is clean under %x, and was never archived", k, e.Record.Revision)
		case e.Record != nil && !e.Record.Clean() && !slices.Contains(keys, k):
			w.Errorf("%s under %x is neither marked nor clean", k, e.Record.Revision)
		}
	}
}
