package memqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/memqueue"
)

func TestContract(t *testing.T) {
	historytest.Queue(t, func(*testing.T) (history.Publisher, func(*testing.T) history.Consumer) {
		q := memqueue.New(memqueue.Config{})
		return q, func(*testing.T) history.Consumer { return q }
	})
}

func announced(n int) []history.Announcement {
	keys := make([]history.Announcement, n)
	for i := range keys {
		keys[i].Key = history.Key{UID: fmt.Sprintf("user%d", i/2), Object: history.Object{ID: fmt.Sprint(i), Type: 1}}
	}
	return keys
}

func TestPublishWhenFull(t *testing.T) {
	q := memqueue.New(memqueue.Config{Partitions: 1, Capacity: 10})
	keys := announced(8)
	if unsent, err := q.Publish(t.Context(), keys); err != nil || unsent != nil {
		t.Fatalf("publish into an empty queue: %d unsent, %v", len(unsent), err)
	}
	more := announced(3)
	unsent, err := q.Publish(t.Context(), more)
	if !errors.Is(err, history.ErrUnavailable) || !slices.Equal(unsent, more) {
		t.Errorf("publish into a full queue: %d unsent, %v, want all 3 and ErrUnavailable", len(unsent), err)
	}
	if messages, bytes := q.Stats(); messages != 1 || bytes < 8*8 {
		t.Errorf("%d messages of %d bytes, want the one that was accepted", messages, bytes)
	}
}

func TestCommitMakesRoom(t *testing.T) {
	q := memqueue.New(memqueue.Config{Partitions: 1, Capacity: 10})
	for round := range 5 {
		if _, err := q.Publish(t.Context(), announced(8)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if n := q.Waiting(); n != 8 {
			t.Errorf("round %d: %d keys wait, want 8", round, n)
		}
		consume(t, q)
		if n := q.Waiting(); n != 0 {
			t.Errorf("round %d: %d keys wait after the commit", round, n)
		}
	}
}

// consume fetches, commits and returns one delivery.
func consume(tb testing.TB, q *memqueue.Queue) history.Delivery {
	tb.Helper()
	var got history.Delivery
	err := q.Consume(tb.Context(), func(ctx context.Context, c history.Assignment) (err error) {
		if got, err = c.Fetch(ctx); err != nil {
			return err
		}
		return c.Commit(ctx, got)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestFetchIsBounded(t *testing.T) {
	q := memqueue.New(memqueue.Config{})
	for range 10 {
		if _, err := q.Publish(t.Context(), announced(8000)); err != nil {
			t.Fatal(err)
		}
	}
	total := 0
	for total < 80_000 {
		n := len(consume(t, q).Keys)
		if n > 40_000 {
			t.Errorf("%d keys in a delivery, want about 32,768", n)
		}
		total += n
	}
}

func TestSecondConsumeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memqueue.New(memqueue.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		generations := make(chan struct{}, 2)
		for range 2 {
			go func() {
				_ = q.Consume(ctx, func(ctx context.Context, _ history.Assignment) error {
					generations <- struct{}{}
					<-ctx.Done()
					return nil
				})
			}()
		}
		if synctest.Wait(); len(generations) != 1 {
			t.Errorf("%d generations at once, want 1", len(generations))
		}
		cancel()
		if synctest.Wait(); len(generations) != 1 {
			t.Error("the waiting call began when the context was done")
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	q := memqueue.New(memqueue.Config{})
	keys := announced(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Publish(b.Context(), keys); err != nil {
			b.Fatal(err)
		}
		consume(b, q)
		consume(b, q)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
}
