package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestWarmUpBesideADelete: a record deleted, archived and dropped after a warm-up has read its row does not come
// back.
func TestWarmUpBesideADelete(t *testing.T) {
	const keep = 3
	for name, remove := range map[string]func(s *rpc.Server, ids []string) error{
		"deleted":              func(s *rpc.Server, ids []string) error { return deleteAt(t, s, ids, 0) },
		"deleted as of before": func(s *rpc.Server, ids []string) error { return deleteAt(t, s, ids, start-500) },
		"cleared": func(s *rpc.Server, _ []string) error {
			_, err := s.Clear(t.Context(), &historyv1.ClearRequest{Uid: "ann"})
			return err
		},
	} {
		h := smallHouse(t, keep)
		ids := put(t, h, 20, 1000)
		a := &eventful{Archive: h.db.Archive()}
		a.next = func() { // while the user is cold
			if err := remove(h.idle(t), ids); err != nil {
				t.Fatal(err)
			}
			if name != "cleared" {
				archiveWhole(t, h, ids...)
			}
			markClean(t, h)
		}
		s := h.service(t, func(c *rpc.Config) { c.Archive, c.Keep = a, 1000 })
		for _, id := range ids {
			if it := point(t, s, "ann", id); it != nil {
				t.Errorf("%s: it is seen again: %v", name, it)
			}
		}
		if got := list(t, s, &historyv1.ListRequest{Uid: "ann"}); len(got) > 0 {
			t.Errorf("%s: the list has %q", name, got)
		}
	}
}

// busy is a cache in which other writers come first.
type busy struct {
	history.Cache
	first func()
	times int
}

func (b *busy) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	if b.times > 0 {
		b.times--
		b.first()
	}
	return b.Cache.Write(ctx, writes)
}

// TestWarmUpBesideAWriter: the row is merged into a cold user's reports, even with concurrent updates.
func TestWarmUpBesideAWriter(t *testing.T) {
	h := newHouse(t)
	k := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	e := history.Event{Key: k, Kind: history.KindFinish, At: start - 60_000, Position: 99_000, Duration: 100_000, Session: "s0"}
	for _, err := range h.db.Archive().Put(t.Context(), []history.Cell{{Key: k, Record: whole(e.Record()).Successor(nil)}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	other := h.idle(t)
	apply(t, other, beat("ann/7", progress, 5000, 20))
	at := int64(5000)
	b := &busy{Cache: h.db.Cache(), times: 3}
	b.first = func() { at -= 1000; apply(t, other, beat("ann/7", progress, at, 20+at/1000)) }
	s := h.service(t, func(c *rpc.Config) { c.Cache = b })
	if it := point(t, s, "ann", "none"); it != nil {
		t.Errorf("got %v", it)
	}
	r := h.db.Cache().Load(t.Context(), []history.Key{k})[0].Record
	if r.Plays() != 1 || r.Version.Time() != start-2000 || r.CellTime <= 0 || r.Clean() {
		t.Errorf("the cache has %+v, want one play and the last report, not clean", r)
	}
}

// TestWarmUpOfManyTombstones: tombstones do not displace records.
func TestWarmUpOfManyTombstones(t *testing.T) {
	h := newHouse(t)
	ids := put(t, h, 5, 100_000)
	var cells []history.Cell
	for i := range 20 {
		k := history.Key{UID: "ann", Object: history.Object{ID: "gone" + string(rune('a'+i)), Type: 1}}
		e := history.Event{Key: k, Kind: history.KindDelete, At: start - int64(i)}
		cells = append(cells, history.Cell{Key: k, Record: whole(e.Record()).Successor(nil)})
	}
	for _, err := range h.db.Archive().Put(t.Context(), cells) {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := h.service(t, func(c *rpc.Config) { c.Keep = 10 })
	for _, id := range ids {
		if it := point(t, s, "ann", id); it == nil {
			t.Errorf("%s is not in the cache", id)
		}
	}
}

// rows records the time of each row read.
type rows struct {
	history.Archive
	mu sync.Mutex
	at []time.Time
}

func (r *rows) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return r.Archive.Page(ctx, uid, q)
}

// After the loss of the cache, many cold users return at once. The archive is read at an even rate, once per user.
// Readers who would wait too long fail.
func TestWarmRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const users, rate, readers = 100, 10, 3
		h := newHouse(t)
		asked := &rows{Archive: h.db.Archive()}
		s := h.service(t, func(c *rpc.Config) { c.Archive, c.WarmRate, c.Deadline = asked, rate, 6*time.Second })
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		got := map[codes.Code]int{}
		for n := range users * readers {
			all.Go(func() {
				uid := fmt.Sprint("user", n%users)
				_, err := s.Points(t.Context(), &historyv1.PointsRequest{Uid: uid, Objects: []*historyv1.Object{{Id: "7", Type: 1}}})
				mu.Lock()
				defer mu.Unlock()
				got[grpcstatus.Code(err)]++
			})
		}
		all.Wait()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("a reader waited %v", took)
		}
		time.Sleep(10 * time.Second)
		asked.mu.Lock()
		defer asked.mu.Unlock()
		if n := len(asked.at); n != users {
			t.Errorf("%d rows were asked for, want %d", n, users)
		}
		for i := range asked.at {
			if want := began.Add(time.Duration(i) * time.Second / rate); !asked.at[i].Equal(want) {
				t.Fatalf("row %d was asked for after %v, want %v", i, asked.at[i].Sub(began), want.Sub(began))
			}
		}
		if want := 60 * readers; got[codes.OK] < want-readers || got[codes.OK] > want+readers || got[codes.OK]+got[codes.DeadlineExceeded] != users*readers {
			t.Errorf("answers: %v, want about %d, and the others' deadline", got, want)
		}
	})
}
