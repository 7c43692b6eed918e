package rpc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memfeed"
	"github.com/playhead/playhead/internal/memnet"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const second = time.Second

func pass(d time.Duration) { time.Sleep(d) } // virtual time

// TestEveryWriteIsTold: every kind of write reaches the user's other devices within a second, through any service.
func TestEveryWriteIsTold(t *testing.T) {
	bubble(t, func(f *fed) {
		other := f.another()
		v := watch(f.T, other, "u#1", "u#2")
		apply(f.T, f.Server, by(1, "u/film", 5000, 30))
		v.hears("u: film@30 by 1")
		apply(f.T, f.Server, by(0, "u/film", 4000, 40))
		v.hears("u: film@40")
		if _, err := f.Delete(f.Context(), &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "film", Type: 1}}}); err != nil {
			f.Fatal(err)
		}
		v.hears("u: -film")
		if _, err := f.Clear(f.Context(), &historyv1.ClearRequest{Uid: "u"}); err != nil {
			f.Fatal(err)
		}
		v.hears("u: resync")
		if _, err := f.PutSettings(f.Context(), &historyv1.PutSettingsRequest{Uid: "u", Recording: true}); err != nil {
			f.Fatal(err)
		}
		v.hears("u: resync")
		apply(f.T, f.Server, by(0, "u/film", 5000, 30), by(0, "v/film", 5000, 30)) // cleared, and another user
		v.hears()
	})
}

func TestWhatChangesNothingIsNotTold(t *testing.T) {
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server, "u#1", "u#2")
		apply(f.T, f.Server, by(1, "u/film", 5000, 30))
		v.hears("u: film@30 by 1")
		apply(f.T, f.Server, by(1, "u/film", 5000, 30))
		v.hears()
	})
}

// Most users have one device, which does not receive its own changes.
func TestTheOnlyWatcherIsNotToldOfItsOwn(t *testing.T) {
	bubble(t, func(f *fed) {
		alone := watch(f.T, f.Server, "u#1")
		elsewhere := watch(f.T, f.Server, "u#2")
		apply(f.T, f.Server, by(1, "u/film", 5000, 30))
		alone.hears()
		elsewhere.hears("u: film@30 by 1")
	})
}

func TestChangesOfAWindow(t *testing.T) {
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server, "u#1", "u#2", "u#3")
		for n := range int64(5) {
			apply(f.T, f.Server, by(1, "u/film", 5000-n, 30+n))
		}
		v.hears("u: film@34 by 1")
		apply(f.T, f.Server, by(1, "u/film", 4000, 50))
		apply(f.T, f.Server, by(2, "u/film", 3000, 60))
		apply(f.T, f.Server, by(2, "u/book", 3000, 70))
		v.rest()
		got := v.take()
		slices.Sort(got)
		if want := []string{"u: book@70 by 2", "u: film@60"}; !slices.Equal(got, want) {
			v.Errorf("told %q, want %q", got, want)
		}
	})
}

// A stream that is not read keeps few pending changes, and receives them in the end.
func TestASlowStream(t *testing.T) {
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server, "u#1", "v#1")
		v.mu.Lock()
		v.slow = make(chan struct{})
		v.mu.Unlock()
		apply(f.T, f.Server, by(0, "u/0", 9000, 10))
		v.rest()
		for n := range 40 {
			apply(f.T, f.Server, by(0, fmt.Sprint("u/", n), 5000, 30), by(0, "v/film", int64(5000-n), int64(n)))
			v.rest()
		}
		close(v.slow)
		v.rest()
		got := v.take()
		slices.Sort(got)
		if want := []string{"u: 0@10", "u: resync", "v: film@39"}; !slices.Equal(got, want) {
			v.Errorf("told %q, want %q", got, want)
		}
	})
}

// A new watcher is notified as soon as its bucket is live.
func TestTheBeginning(t *testing.T) {
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server)
		v.asks <- &historyv1.WatchRequest{Added: watchers([]string{"u#1"})}
		v.hears("u: resync")
		v.asks <- &historyv1.WatchRequest{Added: watchers([]string{"u#2"})}
		v.hears("u: +2")
		v.asks <- &historyv1.WatchRequest{Removed: watchers([]string{"u#1", "u#9", "x#1"})}
		apply(f.T, f.Server, by(2, "u/film", 5000, 30))
		v.hears()
		v.asks <- &historyv1.WatchRequest{Added: watchers([]string{"u#3"}), Removed: watchers([]string{"u#2", "u#3"})}
		apply(f.T, f.Server, by(0, "u/film", 4000, 40))
		v.rest()
		if got := v.take(); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "film@40") }) {
			v.Errorf("told %q, and nobody watches", got)
		}
		close(v.asks)
		if err := <-v.ended; err != nil {
			v.Errorf("the stream ended with %v", err)
		}
	})
}

// interrupted is a feed whose subscriptions can report an interruption.
type interrupted struct {
	history.Feed
	hear func(history.Notice)
}

func (i *interrupted) Subscribe(hear func(history.Notice)) history.Subscription {
	i.hear = hear
	return i.Feed.Subscribe(hear)
}

// After an interruption all users get a resync, spread over time.
func TestAnInterruption(t *testing.T) {
	gap := &interrupted{}
	bubble(t, func(f *fed) {
		var who []string
		var all []history.Bucket
		for n := range 1000 {
			who = append(who, fmt.Sprintf("u%d#1", n))
		}
		for b := range history.Bucket(history.Buckets) {
			all = append(all, b)
		}
		v := watch(f.T, f.Server, who...)
		gap.hear(history.Notice{Joined: all})
		pass(second / 2)
		synctest.Wait()
		early := len(v.take())
		pass(second)
		synctest.Wait()
		if late := len(v.take()); early < 200 || early > 500 || early+late != 1000 {
			v.Errorf("%d were told in half a second, and %d in one more, of 1,000", early, late)
		}
	}, func(cfg *rpc.Config) {
		gap.Feed = cfg.Feed
		cfg.Feed = gap
	})
}

func TestAnAnnouncementThatFails(t *testing.T) {
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server, "u#1", "u#2")
		apply(f.T, f.Server, by(1, "u/film", 5000, 30))
		v.hears()
		pass(3 * second)
		v.hears("u: film@30 by 1")
	}, func(cfg *rpc.Config) { cfg.Feed = &failing{cfg.Feed, 3} })
}

// With too many waiting changes, the affected users get a resync.
func TestTooManyChanges(t *testing.T) {
	bubble(t, func(f *fed) {
		first, last := watch(f.T, f.Server, "first#1"), watch(f.T, f.Server, "last#1")
		first.take()
		last.take()
		apply(f.T, f.Server, by(0, "first/film", 5000, 30))
		for n := range 140 {
			hbs := make([]*historyv1.Heartbeat, 1000)
			for k := range hbs {
				hbs[k] = by(0, fmt.Sprintf("u%d.%d/film", n, k), 5000, 30)
			}
			apply(f.T, f.Server, hbs...)
		}
		apply(f.T, f.Server, by(0, "last/film", 5000, 30))
		pass(3 * second)
		first.hears("first: resync") // shares a bucket with dropped changes
		last.hears("last: resync")
	}, func(cfg *rpc.Config) { cfg.Cache, cfg.Feed = &careless{Cache: cfg.Cache}, far{cfg.Feed} })
}

// far is a feed over a network, without knowledge of followers.
type far struct{ history.Feed }

// Changes in a bucket without followers are not announced. A device that watches later reads everything.
func TestNobodyFollows(t *testing.T) {
	count := &announced{}
	bubble(t, func(f *fed) {
		apply(f.T, f.Server, by(0, "u/film", 5000, 30))
		pass(second)
		if count.changes != 0 {
			t.Errorf("%d changes were announced to nobody", count.changes)
		}
		v := watch(f.T, f.Server, "u#1")
		v.take()
		apply(f.T, f.Server, by(0, "u/film", 4000, 60))
		pass(second)
		v.hears("u: film@60")
	}, func(cfg *rpc.Config) {
		count.Feed = cfg.Feed.(*memfeed.Feed)
		cfg.Feed = count
	})
	if count.changes != 1 {
		t.Errorf("%d changes were announced, want 1", count.changes)
	}
}

// announced counts announced changes.
type announced struct {
	*memfeed.Feed

	changes int
}

func (c *announced) Announce(ctx context.Context, changes []history.Change) error {
	c.changes += len(changes)
	return c.Feed.Announce(ctx, changes)
}

// careless is a cache that drops large batches.
type careless struct{ history.Cache }

func (c *careless) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if len(keys) < 1000 {
		return c.Cache.Load(ctx, keys)
	}
	return quick{}.Load(ctx, keys)
}

func (c *careless) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if len(writes) < 1000 {
		return c.Cache.Write(ctx, writes)
	}
	return quick{}.Write(ctx, writes)
}

// mute is a cache whose reads can fail.
type mute struct {
	history.Cache
	away atomic.Bool
}

func (l *mute) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := l.Cache.Load(ctx, keys)
	for i := range entries {
		if l.away.Load() {
			entries[i] = history.Entry{Err: errDown}
		}
	}
	return entries
}

// If the cache does not answer, the user gets a resync.
func TestARecordThatCannotBeRead(t *testing.T) {
	var cache *mute
	bubble(t, func(f *fed) {
		v := watch(f.T, f.Server, "u#1")
		apply(f.T, f.Server, by(0, "u/film", 5000, 30))
		cache.away.Store(true)
		v.hears("u: resync")
		cache.away.Store(false)
		apply(f.T, f.Server, by(0, "u/film", 4000, 40))
		v.hears("u: film@40")
	}, func(cfg *rpc.Config) {
		cache = &mute{Cache: cfg.Cache}
		cfg.Cache = cache
	})
}

func TestTheServiceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHouse(t).service(t)
		wantCode(t, "without a feed", s.Watch(&viewer{ctx: t.Context()}), codes.Unimplemented)
	})
	bubble(t, func(f *fed) {
		v, bad := watch(f.T, f.Server, "u#1"), watch(f.T, f.Server)
		bad.asks <- &historyv1.WatchRequest{Added: watchers([]string{"u"})}
		wantCode(f.T, "without a connection", <-bad.ended, codes.InvalidArgument)
		ctx, stop := context.WithCancel(f.Context())
		served := make(chan error, 1)
		go func() { served <- f.Serve(ctx, memnet.Listen(), nil, second) }()
		synctest.Wait()
		stop()
		wantCode(f.T, "at the end", <-v.ended, codes.Unavailable)
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
}

// Streams come and go during writes, and leave nothing behind.
func TestManyWatchersAtOnce(t *testing.T) {
	f := &fed{T: t, house: newHouse(t), feed: new(memfeed.Feed)}
	f.Server = f.another()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				f.visit()
			}
		})
	}
	all.Wait()
}

func (f *fed) visit() {
	v := &viewer{T: f.T, asks: make(chan *historyv1.WatchRequest, 10), ended: make(chan error, 1), ctx: f.Context()}
	for range 5 {
		v.asks <- &historyv1.WatchRequest{Added: watchers([]string{someone(), someone()}), Removed: watchers([]string{someone()})}
	}
	close(v.asks)
	go func() { v.ended <- f.Watch(v) }()
	uid, _, _ := strings.Cut(someone(), "#")
	f.feed.Announce(f.Context(), []history.Change{{Key: history.UserKey(uid)}}) //nolint:errcheck // never fails
	if err := <-v.ended; err != nil {
		f.Errorf("the stream ended with %v", err)
	}
}

func someone() string { return fmt.Sprintf("u%d#%d", rand.IntN(5), 1+rand.IntN(3)) }

// A message must stay below the edge's limit of 20 MiB; otherwise it would end the stream of all users of an edge.
func TestManyLargeRecords(t *testing.T) {
	bubble(t, func(f *fed) {
		const users, objects = 128, 32
		var who []string
		for u := range users {
			who = append(who, fmt.Sprintf("u%d#1", u), fmt.Sprintf("u%d#2", u))
		}
		v := watch(f.T, f.Server, who...)
		for u := range users {
			var hbs []*historyv1.Heartbeat
			for o := range objects {
				hb := by(1, fmt.Sprintf("u%d/%d", u, o), 5000, 30)
				hb.Meta = map[string]string{"a": strings.Repeat("x", 500), "b": strings.Repeat("x", 500)}
				hbs = append(hbs, hb)
			}
			apply(f.T, f.Server, hbs...)
		}
		v.rest()
		if got := len(v.take()); got != users {
			v.Errorf("told %d changes, want %d", got, users)
		}
		if v.most > 3<<20 {
			v.Errorf("a message of %d bytes", v.most)
		}
	})
}

// scattered is a feed over a cluster with a node that may be silent. It records who was notified, and when.
type scattered struct {
	history.Feed

	mu     sync.Mutex
	silent chan struct{} // closed when node 3 is back, nil while it answers
	told   map[string][]time.Time
}

func (f *scattered) Announce(ctx context.Context, changes []history.Change) error {
	f.mu.Lock()
	back := f.silent
	for _, c := range changes {
		if back == nil || nodeOf(c.Key.UID) != 3 {
			f.told[c.Key.UID] = append(f.told[c.Key.UID], time.Now())
		}
	}
	f.mu.Unlock()
	if back == nil || !slices.ContainsFunc(changes, func(c history.Change) bool { return nodeOf(c.Key.UID) == 3 }) {
		return nil
	}
	select {
	case <-back:
	case <-ctx.Done():
	}
	return errDown
}

func (f *scattered) silence() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	back := make(chan struct{})
	f.silent = back
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.silent = nil
		close(back)
	}
}

func (f *scattered) take() map[string][]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.told
	f.told = make(map[string][]time.Time)
	return all
}

// A silent node delays only its own users' changes. They are sent when it is back.
func TestASilentNodeHoldsUpItsOwnNewsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &scattered{Feed: new(memfeed.Feed), told: make(map[string][]time.Time)}
		uids := make([]string, 4)
		for k := 0; slices.Contains(uids, ""); k++ {
			uid := fmt.Sprint("user", k)
			uids[nodeOf(uid)] = uid
		}
		s := newHouse(t).service(t, func(cfg *rpc.Config) { cfg.Cache, cfg.Feed = &cluster{Cache: cfg.Cache}, feed })
		apply(t, s, beat(uids[3]+"/film", progress, 100, 60))
		end := feed.silence()
		for n := range int64(10) {
			began := time.Now()
			for _, uid := range uids[:3] {
				apply(t, s, beat(uid+"/film", progress, 90-n, 61+n))
			}
			time.Sleep(time.Second)
			told := feed.take()
			for node, uid := range uids[:3] {
				if times := told[uid]; len(times) != 1 || times[0].Sub(began) > 250*time.Millisecond {
					t.Errorf("node %d is told %v after %v", node, times, began)
				}
			}
		}
		end()
		time.Sleep(3 * time.Second)
		if times := feed.take()[uids[3]]; len(times) != 1 {
			t.Errorf("node 3 is told %v after its return, want once", times)
		}
	})
}
