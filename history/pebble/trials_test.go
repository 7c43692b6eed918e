package pebble_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
)

// TestOneFileDamaged flips one bit of one file, or truncates it, in a killed store and in a closed one. Either
// the store refuses to open and names the file, or failed reads name it, or all reads are intact.
func TestOneFileDamaged(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 40
	}
	x := newTrials(t)
	outcomes := map[string]int{}
	for seed := range n {
		kind, outcome, wrong := x.trial(t, uint64(seed))
		outcomes[kind+": "+outcome]++
		for _, w := range wrong {
			t.Errorf("trial %d, %s: %s", seed, kind, w)
		}
	}
	for _, o := range slices.Sorted(maps.Keys(outcomes)) {
		t.Logf("%4d %s", outcomes[o], o)
	}
}

// trials are two stores with data of every kind.
type trials struct {
	config pebble.Config
	keys   []history.Key
	uids   []string
	stores map[string]*killed
	whole  map[string]map[string]answer
}

// answer is the result of a read.
type answer struct {
	value any
	err   error
}

func newTrials(t *testing.T) *trials {
	clock := time.UnixMilli(now())
	x := &trials{stores: map[string]*killed{}, whole: map[string]map[string]answer{}}
	x.config = pebble.Config{Summary: historytest.SummaryTTL, Now: func() time.Time { return clock }}.Compacting(100_000)
	fs := vfs.NewCrashableMem()
	db := open(t, "store", x.config.On(fs))
	x.fill(t, db, clock)
	x.take(t, "killed", fs)
	closed(t, db)
	x.take(t, "closed", fs)
	return x
}

// fill writes records to tables of several levels, segments, summaries and the journal, and adds clears, logs
// and days.
func (x *trials) fill(t *testing.T, db *pebble.DB, clock time.Time) {
	start, ctx := clock.UnixMilli()-100_000, t.Context()
	for user := range 6 {
		x.uids = append(x.uids, viewing(user, 0).UID)
		must(t, db.Cache().Warm(ctx, x.uids[user], history.WarmSet{}))
	}
	oldOnes(t, db.Archive(), x.uids[5], daysAgo(clock, 85, 86, 87, 88, 89))
	must(t, db.Archive().Summarize(ctx, x.uids[5], true))
	_, err := db.Cache().Changes(ctx, x.uids[0], 0, 1)
	must(t, err)
	cleared := make([]int64, len(x.uids))
	for n := range 600 {
		key := viewing(n%5, n)
		x.keys = append(x.keys, key)
		r := beat(start + int64(n))
		mustApply(t, db.Cache(), []history.Write{{Key: key, Record: r, Cleared: cleared[n%5], BeginsHold: n%3 == 0}})
		if n%2 == 0 {
			if errs := db.Archive().Put(ctx, []history.Cell{{Key: key, Record: r}}); errs != nil {
				t.Fatal(errs)
			}
		}
		switch n {
		case 100, 200, 400:
			db.Checkpoint()
		case 250, 580:
			until, err := db.Cache().Clear(ctx, x.uids[4], history.Clear{Until: start + int64(n) - 20})
			must(t, err)
			cleared[4] = until
			must(t, db.Archive().PutUser(ctx, x.uids[4], history.User{Cleared: map[uint32]int64{0: until}}))
		case 300, 450:
			_, err := db.Archive().Compact(ctx, x.uids[1])
			must(t, err)
			db.Flush()
		case 350, 590:
			for _, s := range db.Days().See(ctx, []history.Sighting{{UID: x.uids[n%5], Day: 20260101}}) {
				must(t, s.Err)
			}
		}
	}
}

// take keeps the files and the answers of the undamaged store.
func (x *trials) take(t *testing.T, name string, fs *vfs.MemFS) {
	k := &killed{files: map[string][]byte{}}
	k.take(t, fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), abs(t, "store"))
	db := open(t, "store", x.config.On(k.left(t, "", nil)))
	x.stores[name], x.whole[name] = k, x.ask(t, db)
	for what, a := range x.whole[name] {
		if a.err != nil {
			t.Fatalf("%s, %s: %v", name, what, a.err)
		}
	}
}

// ask reads everything.
func (x *trials) ask(t *testing.T, db *pebble.DB) map[string]answer {
	all, ctx := map[string]answer{}, t.Context()
	for i, e := range db.Cache().Load(ctx, x.keys) {
		all["load "+x.keys[i].String()] = answer{e.Record, e.Err}
	}
	for _, key := range x.keys {
		got, err := db.Archive().Get(ctx, []history.Key{key})
		if err != nil {
			all["get "+key.String()] = answer{err: err}
			continue
		}
		if got[0].Record != nil {
			got[0].Record.Revision = 0 // segments have none
			all["get "+key.String()] = answer{wire.AppendRecord(nil, got[0].Record), got[0].Err}
			continue
		}
		all["get "+key.String()] = answer{got[0].Record, got[0].Err}
	}
	for _, uid := range x.uids {
		page, err := db.Cache().List(ctx, uid, history.Query{Limit: 1000})
		all["list "+uid] = answer{page, err}
		page, err = db.Archive().Page(ctx, uid, history.Query{Limit: 1000})
		page.Unchanged = nil // functions are never equal
		for _, it := range page.Items {
			it.Record.Revision = 0
		}
		all["page "+uid] = answer{page, err}
		summaries, err := db.Archive().Summaries(ctx, uid, history.Query{Limit: 1000})
		all["summaries "+uid] = answer{summaries, err}
	}
	log, err := db.Cache().Changes(ctx, x.uids[0], 0, 1000)
	all["changes"] = answer{log, err}
	dirty, err := db.Cache().Overdue(ctx, history.AllBuckets(), 0, 1<<30)
	all["overdue"] = answer{dirty, err}
	firsts, err := db.Days().PendingFirsts(ctx, history.AllBuckets(), 0, 1000)
	all["firsts"] = answer{firsts, err}
	return all
}

// trial damages one file of one store.
func (x *trials) trial(t *testing.T, seed uint64) (kind, outcome string, wrong []string) {
	r := rand.New(rand.NewPCG(seed, 27))
	store := []string{"killed", "closed"}[r.IntN(2)]
	k := x.stores[store]
	names := slices.DeleteFunc(slices.Clone(k.names), func(name string) bool { return len(k.files[name]) == 0 })
	slices.Sort(names)
	path := names[r.IntN(len(names))]
	whole := k.files[path]
	within := len(whole)
	if r.IntN(2) == 0 { // skip the preallocated zeros
		within = max(1, len(bytes.TrimRight(whole, "\x00")))
	}
	at, damage := r.IntN(within), "cut"
	data := bytes.Clone(whole[:at])
	if r.IntN(2) == 0 {
		damage, data = "flipped", bytes.Clone(whole)
		data[at] ^= 1 << r.IntN(8)
	}
	base := filepath.Base(path)
	kind = fmt.Sprintf("%s, %s %s", store, damage, strings.Trim(base, "0123456789"))
	at0 := fmt.Sprintf("%s at byte %d of %d", base, at, len(whole))
	type result struct {
		outcome string
		wrong   []string
	}
	done := make(chan result, 1)
	go func() {
		outcome, wrong := x.outcome(t, store, k.left(t, path, append([]byte{}, data...)), base)
		done <- result{outcome, wrong}
	}()
	select {
	case got := <-done:
		for i, w := range got.wrong {
			got.wrong[i] = at0 + ": " + w
		}
		return kind, got.outcome, got.wrong
	case <-time.After(time.Minute):
		t.Fatalf("trial %d, %s, %s: it hangs", seed, kind, at0)
		return
	}
}

func (x *trials) outcome(t *testing.T, store string, fs vfs.FS, base string) (outcome string, wrong []string) {
	stem := strings.TrimSuffix(base, ".sst") // Pebble names a table by its number
	names := func(err error) bool { return strings.Contains(err.Error(), stem) }
	db, err := pebble.Open("store", x.config.On(fs))
	if err != nil {
		if !names(err) || strings.Contains(err.Error(), "\n") {
			wrong = append(wrong, fmt.Sprintf("open: %q; want one line that names the file", err))
		}
		return "refused", wrong
	}
	defer func() { _ = db.Close() }()
	outcome = "healed"
	for what, got := range x.ask(t, db) {
		switch want := x.whole[store][what]; {
		case got.err != nil:
			outcome = "told by reads"
			if !names(got.err) {
				wrong = append(wrong, fmt.Sprintf("%s: %q; want an error that names the file", what, got.err))
			}
		case !reflect.DeepEqual(got.value, want.value):
			wrong = append(wrong, fmt.Sprintf("%s: silently %+.200v, want %+.200v", what, got.value, want.value))
		}
	}
	if len(wrong) > 3 {
		wrong = append(wrong[:3], fmt.Sprint(len(wrong)-3, " more"))
	}
	return outcome, wrong
}
