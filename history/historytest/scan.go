package historytest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/playhead/playhead/history"
)

// Users is a store that lists its users and namespaces in a fixed order.
type Users interface {
	Users(ctx context.Context, from string) iter.Seq2[string, error]
}

// CacheScan tests the scan of a cache: its users, and the keys of each.
func CacheScan(t *testing.T, cache interface {
	CacheStore
	Users
	Keys(ctx context.Context, uid string) ([]history.Key, error)
},
) {
	c := &cacheCase{T: t, CacheStore: cache, start: hourAgo()}
	users := newUsers()
	objects := []history.Object{{ID: "a", Type: 1}, {ID: "b_c", Type: 2}}
	for _, uid := range users {
		for i, o := range objects {
			e := history.Event{Key: history.Key{UID: uid, Object: o}, Kind: history.KindProgress, At: c.start, Position: 1}
			if i == 1 {
				e = history.Event{Key: e.Key, Kind: history.KindDelete, At: c.start}
			}
			c.put(e.Key, e.Record().Successor(nil))
		}
	}
	testUsers(t, cache, users)
	for _, uid := range users {
		keys, err := cache.Keys(t.Context(), uid)
		slices.SortFunc(keys, func(a, b history.Key) int { return int(a.Object.Type) - int(b.Object.Type) })
		if want := []history.Key{{UID: uid, Object: objects[0]}, {UID: uid, Object: objects[1]}}; err != nil || !slices.Equal(keys, want) {
			t.Errorf("keys of %q: %v, %v, want %v", uid, keys, err, want)
		}
	}
	if keys, err := cache.Keys(t.Context(), "nobody"); len(keys) > 0 || err != nil {
		t.Errorf("keys of nobody: %v, %v", keys, err)
	}
}

// ArchiveScan tests the scan of an archive.
func ArchiveScan(t *testing.T, store interface {
	history.Archive
	Users
},
) {
	a := archive{t: t, store: store}
	users := newUsers()
	for _, uid := range users {
		e := history.Event{Key: history.Key{UID: uid, Object: history.Object{ID: "a", Type: 1}}, Kind: history.KindProgress, At: hourAgo(), Position: 1}
		a.put(history.Cell{Key: e.Key, Record: e.Record().Successor(nil)})
	}
	testUsers(t, store, users)
}

// newUsers returns users of several buckets, some with difficult names, and a namespace.
func newUsers() (users []string) {
	base := freshUID()
	for i := range 300 { // more than one step of a scan
		users = append(users, fmt.Sprintf("%s-%d", base, i))
	}
	return append(users, base+"/ü%*", history.NamespaceUID(base+"-1", "short"))
}

// testUsers: every user is listed once, in the same order each time, and a scan goes on behind any of them.
func testUsers(t *testing.T, store Users, users []string) {
	t.Helper()
	own := func(from string) []string { // other tests may have users too
		return slices.DeleteFunc(listed(t, store, from), func(uid string) bool { return !slices.Contains(users, uid) })
	}
	all := own("")
	for _, uid := range users {
		if i := slices.Index(all, uid); i < 0 || slices.Contains(all[i+1:], uid) {
			t.Fatalf("user %q is missing or listed twice", uid)
		}
	}
	if again := own(""); !slices.Equal(again, all) {
		t.Errorf("another order in the second scan: %d and %d users", len(again), len(all))
	}
	for _, i := range []int{0, len(all) / 2, len(all) - 1} {
		if rest := own(all[i]); !slices.Equal(rest, all[i+1:]) {
			t.Errorf("behind user %d of %d: %d users", i, len(all), len(rest))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for uid, err := range store.Users(ctx, "") {
		if err == nil {
			t.Errorf("a cancelled scan yields %q", uid)
		}
		break
	}
}

func listed(t *testing.T, store Users, from string) (all []string) {
	t.Helper()
	for uid, err := range store.Users(t.Context(), from) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, uid)
	}
	return all
}
