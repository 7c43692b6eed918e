package rpc_test

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// notebook is a queue that notes what it takes, or takes nothing.
type notebook struct {
	down bool
	keys []history.Announcement
}

func (n *notebook) Publish(_ context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if n.down {
		return keys, errDown
	}
	n.keys = append(n.keys, keys...)
	return nil, nil
}

func queued(t *testing.T, s *rpc.Server, hbs ...*historyv1.Heartbeat) ([]historyv1.Status, error) {
	t.Helper()
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: hbs, Ack: historyv1.Ack_ACK_QUEUED})
	return resp.GetStatuses(), err
}

// TestQueued: what is acknowledged as queued is in the queue with its content, also
// when the cache had it before; what cannot be is not acknowledged.
func TestQueued(t *testing.T) {
	q := &notebook{}
	s := newHouse(t).service(t, func(c *rpc.Config) { c.Queue = q })
	apply(t, s, beat("ann/7", progress, 5000, 20))
	if len(q.keys) != 0 {
		t.Errorf("acknowledged as cached, and yet the queue has %v", q.keys)
	}
	old := beat("ann/8", progress, 0, 1)
	old.EventTimeMs = 1
	got, err := queued(t, s, beat("ann/7", progress, 5000, 20), beat("bob/7", stop, 3000, 95), old)
	if want := []historyv1.Status{unchanged, stored, invalid}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if len(q.keys) != 2 {
		t.Fatalf("the queue has %v, want the records of ann and bob", q.keys)
	}
	for _, d := range q.keys {
		if d.Record == nil {
			t.Errorf("%s went without its record", d.Key)
		}
	}
	q.down = true
	_, err = queued(t, s, beat("ann/9", progress, 1000, 20))
	wantCode(t, "with the queue away", err, codes.Unavailable)
	if got := apply(t, s, beat("ann/9", progress, 1000, 20)); got[0] != unchanged {
		t.Errorf("the same again, as cached: got %v, want unchanged: the cache has it", got[0])
	}
}
