package uplink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// reading collects the outcome of some users' reads.
type reading struct {
	mu     sync.Mutex
	worst  map[int]time.Duration // by the second in which a read started
	failed int
}

// readers runs 100 users that read every two seconds, without reports.
func readers(t *testing.T, c *uplink.Client, lasts time.Duration) *reading {
	r := &reading{worst: make(map[int]time.Duration)}
	began := time.Now()
	var wg sync.WaitGroup
	for k := range 100 {
		wg.Go(func() {
			for time.Sleep(rand.N(2 * time.Second)); time.Since(began) < lasts; time.Sleep(2 * time.Second) { // virtual time
				r.read(t.Context(), began, func(ctx context.Context) error {
					_, err := c.Points(ctx, &historyv1.PointsRequest{Uid: fmt.Sprint("user", k)})
					return err
				})
			}
		})
	}
	wg.Wait()
	return r
}

func (r *reading) read(ctx context.Context, began time.Time, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	second := int(start.Sub(began) / time.Second)
	r.worst[second] = max(r.worst[second], time.Since(start))
	if err != nil {
		r.failed++
	}
}

// TestReadsOfAnInstanceThatStandsStill: reads of a blocked instance soon move to another one, then go there
// at once.
func TestReadsOfAnInstanceThatStandsStill(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		for _, i := range all {
			i.slow.Store(int64(3 * time.Millisecond))
		}
		time.AfterFunc(9500*time.Millisecond, all[0].stop)
		time.AfterFunc(20*time.Second, all[0].resume)
		r := readers(t, c, 40*time.Second)
		if r.failed > 0 {
			t.Errorf("%d reads failed", r.failed)
		}
		for second, took := range r.worst {
			want := 3 * time.Millisecond
			if second >= 9 && second <= 10 {
				want += time.Second
			}
			if took > want {
				t.Errorf("one that began in second %d took %v, want at most %v", second, took, want)
			}
		}
		before := all[0].points.Load()
		if readers(t, c, 3*time.Second); all[0].points.Load() == before {
			t.Error("it is not used again")
		}
	})
}

// TestReadsThatAreSlowEverywhere: reads that are slow everywhere are soon sent only once, and no instance
// is dropped.
func TestReadsThatAreSlowEverywhere(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var devices []*device
		for k, uid := range users(100) {
			devices = append(devices, listening(c, uid, uint64(k+1)))
		}
		time.AfterFunc(9500*time.Millisecond, func() {
			for _, i := range all {
				i.slow.Store(int64(1200 * time.Millisecond))
			}
		})
		began := all[0].points.Load() + all[1].points.Load()
		r := readers(t, c, time.Minute)
		if r.failed > 0 {
			t.Errorf("%d reads failed", r.failed)
		}
		if made := all[0].points.Load() + all[1].points.Load() - began; made > 100*(5+50*10/32)*11/10 {
			t.Errorf("%d reads were made for about %d", made, 100*(5+50*10/32))
		}
		for _, d := range devices {
			if heard := d.take(); len(heard) != 1 {
				t.Fatalf("%s was told %v", d.uid, heard)
			}
		}
	})
}

// TestWhatIsNotReadIsNotAskedTwice: a delete is not sent twice, but its timeout marks the instance as
// blocked.
func TestWhatIsNotReadIsNotAskedTwice(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		uid := owned(t, c, all[0])
		remove := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := c.Delete(ctx, &historyv1.DeleteRequest{Uid: uid})
			return err
		}
		all[0].stop()
		if err := remove(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v, want that nobody knows", err)
		}
		if err := remove(); err != nil {
			t.Errorf("the next one: %v", err)
		}
		all[0].resume()
	})
}

// TestTheTimeOfAnInstanceThatStandsStill reads the time from another instance.
func TestTheTimeOfAnInstanceThatStandsStill(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		for _, i := range all {
			i.stop()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if _, err := c.Apply(ctx, &historyv1.ApplyRequest{}); err != nil {
				t.Error(err)
			}
			cancel()
			i.resume()
			time.Sleep(5 * time.Second) // virtual time
		}
	})
}
