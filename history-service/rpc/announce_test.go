package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memfeed"
)

// scattered is a feed over the nodes of a cluster, of which one may be silent. It notes of
// whom it was told, and when.
type scattered struct {
	memfeed.Feed

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

// A silent node holds up the news of its own users only. They are told when it is back.
func TestASilentNodeHoldsUpItsOwnNewsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := &scattered{told: make(map[string][]time.Time)}
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
			time.Sleep(time.Second) // of the bubble
			told := feed.take()
			for node, uid := range uids[:3] {
				if times := told[uid]; len(times) != 1 || times[0].Sub(began) > 250*time.Millisecond {
					t.Errorf("node %d is told %v after %v", node, times, began)
				}
			}
		}
		end()
		time.Sleep(3 * time.Second) // of the bubble
		if times := feed.take()[uids[3]]; len(times) != 1 {
			t.Errorf("node 3 is told %v after its return, want once", times)
		}
	})
}
