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

// rows notes when each row was asked for.
type rows struct {
	history.Archive
	mu sync.Mutex
	at []time.Time
}

func (r *rows) Row(ctx context.Context, uid string) (history.Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = append(r.at, time.Now())
	return r.Archive.Row(ctx, uid)
}

// After the loss of the cache many cold users come back at once: the archive is asked
// at an even rate, once for each, however many readers wait; those who would wait too
// long are told so.
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
		time.Sleep(10 * time.Second) // of the bubble
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
