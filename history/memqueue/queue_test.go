package memqueue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

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
		consume(t, q)
	}
}
