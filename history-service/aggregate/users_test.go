package aggregate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
)

type nowhere struct{}

func (nowhere) Publish(_ context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	return keys, history.ErrUnavailable
}

// TestUsersAreBounded: due user states count against Max during an outage, and leave room for held records.
func TestUsersAreBounded(t *testing.T) {
	a, err := aggregate.New(aggregate.Config{Publisher: nowhere{}, Max: 640})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20_000 {
		a.MakeDue(fmt.Sprint("u", n))
	}
	if got := a.Waiting(); got > 640 {
		t.Errorf("%d keys are held, want at most 640", got)
	}
	k := history.Key{UID: "u1", Object: history.Object{ID: "1", Type: 1}}
	a.Put(k, aggregate.Held{Record: &history.Record{Revision: 1}}, false)
	if _, _, ok := a.Get(k); !ok {
		t.Error("a record that was just written is not held")
	}
}
