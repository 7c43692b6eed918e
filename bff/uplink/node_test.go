package uplink_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// lost returns unavailable for one node's users, as an instance does that cannot reach the node. Its users'
// names end in 0 or 5.
func lost(after time.Duration) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		resp := whole(req)
		for n, h := range req.Batch.Heartbeats {
			if onLost(h.Uid) {
				resp.Result.Statuses[n] = historyv1.Status_STATUS_UNAVAILABLE
			}
		}
		time.Sleep(after) // virtual time
		send(resp)
	}
}

func onLost(uid string) bool { return strings.HasSuffix(uid, "0") || strings.HasSuffix(uid, "5") }

// A node that only one instance cannot reach blocks no user.
func TestANodeThatOneInstanceCannotReach(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].serving(lost(5 * time.Millisecond))
		all[1].serving(slowly(5 * time.Millisecond))
		var calls tally
		var wg sync.WaitGroup
		for _, uid := range slices.Repeat(users(200), 2) { // two devices each
			wg.Go(func() {
				for range 60 {
					_ = calls.report(t.Context(), c, uid)
					time.Sleep(rand.N(20 * time.Millisecond)) // virtual time
				}
			})
		}
		wg.Wait()
		if calls.answered.Load() != 24_000 {
			t.Errorf("%d of 24000 answered", calls.answered.Load())
		}
	})
}

// An instance that cannot read anything blocks no user either.
func TestAnInstanceThatReadsNothing(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].listErr = status.Error(codes.Unavailable, "the cache is unavailable")
		for n := range 10 {
			for _, uid := range users(400) {
				if who, err := list(t.Context(), c, uid); err != nil || who != all[1].addr {
					t.Fatalf("read %d of %s: %s, %v", n, uid, who, err)
				}
			}
		}
	})
}

// For a node that no instance reaches, few calls are sent twice, and none waits long.
func TestANodeThatNoInstanceReaches(t *testing.T) {
	for _, after := range some(300*time.Millisecond, 0) {
		t.Run(after.String(), func(t *testing.T) {
			bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				for _, i := range all {
					i.serving(lost(after))
				}
				var calls tally
				var longest atomic.Int64
				var wg sync.WaitGroup
				for _, uid := range users(400) {
					wg.Go(func() {
						for range 60 {
							began := time.Now()
							if err := calls.report(t.Context(), c, uid); (err != nil) != onLost(uid) {
								t.Errorf("%s: %v", uid, err)
							}
							if took := time.Since(began); took > time.Duration(longest.Load()) {
								longest.Store(int64(took)) // approximate: two may race
							}
							time.Sleep(500*time.Millisecond + rand.N(time.Second)) // virtual time
						}
					})
				}
				wg.Wait()
				sent := 0
				for _, i := range all {
					for _, size := range i.sizes() {
						sent += size
					}
				}
				if took := time.Duration(longest.Load()); took > 500*time.Millisecond || sent > 24_000+2400 {
					t.Errorf("%v for an answer, %d heartbeats were sent for 24000", took, sent)
				}
			})
		})
	}
}

// Few calls are sent twice while no instance answers.
func TestOneBudgetForAllRepeats(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var calls tally
		sent := func() (n int) {
			for _, i := range all {
				for _, size := range i.sizes() {
					n += size
				}
			}
			return n
		}
		for _, i := range all {
			i.broken = status.Error(codes.Unavailable, "down")
		}
		var wg sync.WaitGroup
		for k := range 500 {
			wg.Go(func() {
				for range 40 {
					_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
					time.Sleep(500 * time.Millisecond) // virtual time
				}
			})
		}
		wg.Wait()
		if got := sent(); got > 20_000+1000 {
			t.Errorf("%d heartbeats were sent for 20000", got)
		}
		var reads int64
		for _, i := range all {
			i.broken, i.listErr = nil, status.Error(codes.Unavailable, "down")
			reads -= i.lists.Load()
		}
		time.Sleep(time.Minute) // virtual time; both are up
		for n := range 5000 {
			_, _ = list(t.Context(), c, fmt.Sprint("user", n))
		}
		for _, i := range all {
			reads += i.lists.Load()
		}
		if reads < 5000 || reads > 5000+1000 {
			t.Errorf("%d reads were made for 5000", reads)
		}
	})
}

// Moving watchers are registered over a while: each of them reads again.
func TestAMoveIsSpread(t *testing.T) {
	const n = 6000
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var heard atomic.Int64
		for k := range n {
			c.Watch(fmt.Sprint("u", k), 1, func(*historyv1.Change) { heard.Add(1) })
		}
		time.Sleep(5 * time.Second) // virtual time
		before := heard.Load()
		all[0].health.Shutdown()
		time.Sleep(500 * time.Millisecond) // virtual time
		early := heard.Load() - before
		time.Sleep(5 * time.Second) // virtual time
		if moved := heard.Load() - before; moved < n/3 || early > 1100 {
			t.Errorf("%d of %d who moved were told in half a second", early, moved)
		}
	})
}
