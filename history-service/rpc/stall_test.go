package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// lagging is an archive with a delay, or a standstill.
type lagging struct {
	history.Archive
	still atomic.Bool
	row   time.Duration // delay of a row
	asked atomic.Int64
}

func (l *lagging) wait(ctx context.Context, d time.Duration) error {
	l.asked.Add(1)
	if l.still.Load() {
		d = time.Hour
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.Join(history.ErrUnavailable, ctx.Err())
	}
}

func (l *lagging) Page(ctx context.Context, _ string, _ history.Query) (history.Page, error) {
	return history.Page{}, l.wait(ctx, l.row)
}

func (l *lagging) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	return make([]history.Entry, len(keys)), l.wait(ctx, time.Millisecond)
}

// coldCache is an empty cache with cold users.
type coldCache struct{ history.Cache }

func (coldCache) List(context.Context, string, history.Query) (history.Page, error) {
	return history.Page{}, nil
}

func (coldCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	return make([]history.Entry, len(keys))
}

// readingOf runs fn with a reader of pages that need the archive.
func readingOf(t *testing.T, a *lagging, fn func(read func(uid string) (time.Duration, error))) {
	h := newHouse(t)
	a.Archive = h.db.Archive()
	s := h.idle(t, func(c *rpc.Config) { c.Archive, c.Cache = a, coldCache{c.Cache} })
	fn(func(uid string) (time.Duration, error) {
		began := time.Now()
		_, err := s.List(t.Context(), &historyv1.ListRequest{Uid: uid, Limit: 10})
		return time.Since(began), err
	})
}

// During a standstill of the archive, readers are refused at once, except for the retries.
func TestReadersDoNotWaitForAnArchiveThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &lagging{}
		readingOf(t, a, func(read func(string) (time.Duration, error)) {
			if _, err := read("ann"); err != nil {
				t.Fatal(err)
			}
			a.still.Store(true)
			var wg sync.WaitGroup
			var waited [3]atomic.Int64 // at once, up to 1.5 s, longer
			for i := range 400 {
				wg.Go(func() {
					took, err := read(fmt.Sprint("user", i))
					if grpcstatus.Code(err) != codes.Unavailable {
						t.Errorf("after %v: %v, want %v", took, err, codes.Unavailable)
					}
					if took > 0 && !retryAfter(err) {
						t.Errorf("after %v not told when to try again", took)
					}
					switch {
					case took == 0:
						waited[0].Add(1)
					case took <= 1500*time.Millisecond:
						waited[1].Add(1)
					default:
						waited[2].Add(1)
					}
				})
				time.Sleep(25 * time.Millisecond)
			}
			wg.Wait()
			if none, some, long := waited[0].Load(), waited[1].Load(), waited[2].Load(); none < 300 || some < 40 || long > 0 {
				t.Errorf("%d were refused at once, %d waited up to 1.5 s, %d for longer", none, some, long)
			}
			a.still.Store(false)
			time.Sleep(time.Second)
			for range 10 {
				if took, err := read("ann"); err != nil || took > 10*time.Millisecond {
					t.Errorf("after its return: %v after %v", err, took)
				}
			}
		})
	})
}

func retryAfter(err error) bool {
	for _, d := range grpcstatus.Convert(err).Details() {
		if _, ok := d.(*errdetails.RetryInfo); ok {
			return true
		}
	}
	return false
}

// A slow row is no standstill while probes are answered.
func TestALargeRowIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &lagging{row: 3 * time.Second}
		readingOf(t, a, func(read func(string) (time.Duration, error)) {
			for range 3 {
				if took, err := read("ann"); err != nil || took != a.row {
					t.Errorf("%v after %v", err, took)
				}
			}
		})
	})
}

// partialCache has a partial record of every object.
type partialCache struct{ history.Cache }

func (partialCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		e := history.Event{Key: k, Kind: history.KindStop, At: start, Position: 1000, Duration: 2000, Session: "s"}
		r := e.Record()
		r.Partial = true
		entries[i] = history.Entry{Record: r, User: history.User{Warm: true, LowWatermark: 1}}
	}
	return entries
}

// Calls with short deadlines detect a standstill too.
func TestShortCallsFindOutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a := newHouse(t), &lagging{}
		a.Archive = h.db.Archive()
		a.still.Store(true)
		s := h.idle(t, func(c *rpc.Config) { c.Archive, c.Cache = a, partialCache{c.Cache} })
		for range 8 {
			point(t, s, "ann", "old")
		}
		began, before := time.Now(), a.asked.Load()
		for range 10 {
			if it := point(t, s, "ann", "old"); !it.GetIncomplete() {
				t.Errorf("got %v, want it incomplete", it)
			}
		}
		if took, asked := time.Since(began), a.asked.Load()-before; asked > 2 || took > 500*time.Millisecond {
			t.Errorf("%d of 10 calls were made, which took %v", asked, took)
		}
	})
}

// A batch with one old event that needs the archive does not delay the others for long.
func TestABatchDoesNotWaitForTheArchive(t *testing.T) {
	s, a := trimmed(t)
	slow := &lagging{Archive: a}
	slow.still.Store(true)
	a.Archive = slow
	got := apply(t, s, viewing("s9", "ann/old", 2_500_000, 30), beat("bob/new", progress, 1000, 10))
	if got[0] != historyv1.Status_STATUS_UNAVAILABLE || got[1] != stored { // in time for the caller's deadline
		t.Errorf("got %v", got)
	}
}
