package rpc_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// slowList is a cache of one record. A page takes a second and has the state of its start.
type slowList struct {
	quick
	mu     sync.Mutex
	item   history.Item
	reads  int
	panics bool
}

func (c *slowList) List(ctx context.Context, _ string, _ history.Query) (history.Page, error) {
	c.mu.Lock()
	c.reads++
	page, panics := history.Page{Items: []history.Item{c.item}, User: history.User{Warm: true}}, c.panics
	c.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return page, ctx.Err()
	}
	if panics {
		panic("a page")
	}
	return page, nil
}

func (c *slowList) play(position int64) {
	e := history.Event{At: start, Kind: history.KindStop, Position: position}
	r := e.Record()
	r.Partial = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.item = history.Item{Object: history.Object{ID: "film", Type: 1}, Record: r}
}

// TestEqualReads: equal reads during a running one share one further read, which sees earlier writes. Each caller
// can leave, and a panic fails only its own callers.
func TestEqualReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &slowList{}
		cache.play(100_000)
		s := servicetest.New(t, rpc.Config{Cache: cache, Archive: void{}, Now: func() time.Time { return time.UnixMilli(start) }})
		var all sync.WaitGroup
		list := func(ctx context.Context, limit uint32, want int64) {
			all.Go(func() {
				resp, err := s.List(ctx, &historyv1.ListRequest{Uid: "ann", Limit: limit})
				switch {
				case want == 0 && err == nil:
					t.Errorf("got %v, want an error", resp)
				case want > 0 && (err != nil || len(resp.GetItems()) != 1 || resp.GetItems()[0].GetPositionMs() != want):
					t.Errorf("got %v, %v, want the position %d", resp, err, want)
				}
			})
		}
		list(t.Context(), 1, 100_000)
		time.Sleep(time.Millisecond)
		cache.play(200_000)
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		list(impatient, 1, 0) // the first waiter
		for range 9 {
			list(t.Context(), 1, 200_000)
		}
		list(t.Context(), 2, 200_000) // a different read
		all.Wait()
		if cache.reads != 3 {
			t.Errorf("%d reads of the cache, want 3", cache.reads)
		}
		list(t.Context(), 1, 200_000)
		time.Sleep(time.Millisecond)
		cache.mu.Lock()
		cache.panics = true
		cache.mu.Unlock()
		list(t.Context(), 1, 0)
		list(t.Context(), 1, 0)
		all.Wait()
		cache.mu.Lock()
		cache.panics = false
		cache.mu.Unlock()
		list(t.Context(), 1, 200_000)
		all.Wait()
	})
}

// hanging is a cache that hangs until well is closed. Earlier calls hang until their deadline.
type hanging struct {
	quick
	well chan struct{}
}

func (c *hanging) List(ctx context.Context, _ string, _ history.Query) (history.Page, error) {
	select {
	case <-c.well:
		return history.Page{User: history.User{Warm: true}}, nil
	default:
		<-ctx.Done()
		return history.Page{}, fmt.Errorf("%w: %w", history.ErrUnavailable, ctx.Err())
	}
}

// TestEqualReadsAfterAHang: readers leave a hung cache. A later reader does not wait for their abandoned read.
func TestEqualReadsAfterAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &hanging{well: make(chan struct{})}
		s := servicetest.New(t, rpc.Config{Cache: cache, Archive: void{}, Now: func() time.Time { return time.UnixMilli(start) }})
		list := func(patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.List(ctx, &historyv1.ListRequest{Uid: "ann"})
			return err
		}
		var all sync.WaitGroup
		for range 2 { // the second waits for the first
			all.Go(func() {
				if err := list(time.Second); err == nil {
					t.Error("an answer from a cache that hangs")
				}
			})
			time.Sleep(500 * time.Millisecond)
		}
		all.Go(func() { // leaves before its read starts
			if err := list(time.Millisecond); err == nil {
				t.Error("an answer from a cache that hangs")
			}
		})
		all.Wait()
		close(cache.well)
		if err := list(time.Second); err != nil {
			t.Errorf("the cache is well again: %v", err)
		}
	})
}
