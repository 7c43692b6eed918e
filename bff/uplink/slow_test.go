package uplink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// some returns all cases, or the first one in a short run.
func some[T any](first T, more ...T) []T {
	if testing.Short() {
		return []T{first}
	}
	return append([]T{first}, more...)
}

// slowly answers every batch after a fixed delay, at any concurrency.
func slowly(by time.Duration) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		time.Sleep(by) // virtual time
		send(whole(req))
	}
}

// tally counts call outcomes.
type tally struct{ answered, refused, gaveUp atomic.Int64 }

func (c *tally) all() int64 { return c.answered.Load() + c.refused.Load() + c.gaveUp.Load() }

// report calls Apply as the edge does, with a deadline of two seconds.
func (c *tally) report(ctx context.Context, client *uplink.Client, uid string) error {
	return c.reports(ctx, client, uid, 1)
}

func (c *tally) reports(ctx context.Context, client *uplink.Client, uid string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := client.Apply(ctx, beats(uid, n))
	switch status.Code(err) {
	case codes.OK:
		c.answered.Add(1)
	case codes.DeadlineExceeded:
		c.gaveUp.Add(1)
	default:
		c.refused.Add(1)
	}
	return err
}

// A store behind all instances is slow from everywhere. No user moves and few calls are sent twice. Several
// instances answer as many calls as one.
func TestSlowBehindAll(t *testing.T) {
	for _, of := range []struct {
		n     int
		takes time.Duration
		want  int64
	}{
		{1, 1200 * time.Millisecond, 2000},
		{2, 1200 * time.Millisecond, 2000},
		{3, 1200 * time.Millisecond, 2000},
		{1, 1700 * time.Millisecond, 1500}, // beyond the target delay, so some are refused
		{3, 1700 * time.Millisecond, 1500},
	} {
		n, takes := of.n, of.takes
		t.Run(fmt.Sprint(n, " ", takes), func(t *testing.T) {
			bubbles(t, n, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				var devices []*device
				for k, uid := range users(200) {
					devices = append(devices, listening(c, uid, uint64(k+1)))
				}
				time.Sleep(time.Second) // virtual time
				for _, i := range all {
					i.serving(slowly(takes))
				}
				var calls tally
				var wg sync.WaitGroup
				for k := range 200 {
					wg.Go(func() {
						time.Sleep(time.Duration(k) * 10 * time.Millisecond) // virtual time
						for range 10 {
							_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
							time.Sleep(time.Second) // virtual time
						}
					})
				}
				wg.Wait()
				if got := calls.answered.Load(); got < of.want {
					t.Errorf("%d of 2000 were answered, want %d; %d refused, %d gave up", got, of.want, calls.refused.Load(), calls.gaveUp.Load())
				}
				sent := 0
				for _, i := range all {
					for _, size := range i.sizes() {
						sent += size
					}
				}
				if sent > 2200 {
					t.Errorf("%d heartbeats were sent for 2000", sent)
				}
				for _, d := range devices {
					if heard := d.take(); len(heard) != 1 {
						t.Fatalf("%s was told %v", d.uid, heard)
					}
				}
			})
		})
	}
}

// At a store that takes 1.2 s, some answers need a second exchange and are late for their callers. Hardly any other
// call is refused for that.
func TestSlowSecondExchange(t *testing.T) {
	const takes = 1200 * time.Millisecond
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var n, late atomic.Int64
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			exchanges := 1
			if n.Add(1)%20 == 0 {
				exchanges = 2
				late.Add(int64(len(req.Batch.Heartbeats)))
			}
			slowly(time.Duration(exchanges)*takes)(req, send)
		})
		calls := playersEvery(t, c, 2*time.Second, make([]int, 70), 1, time.Minute)
		if refused, gaveUp := calls.refused.Load(), calls.gaveUp.Load(); 10*(refused+gaveUp-late.Load()) > late.Load() {
			t.Errorf("%d were refused and %d gave up of %d, want at most a tenth more than the %d late ones", refused, gaveUp, calls.all(), late.Load())
		}
		time.Sleep(5 * time.Second) // virtual time, for pending calls
	})
}

// A blocked instance is dropped after one second, not before, while others answer.
func TestAnInstanceThatStandsStill(t *testing.T) {
	bubbles(t, 3, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var devices []*device
		for k, uid := range users(300) {
			devices = append(devices, listening(c, uid, uint64(k+1)))
		}
		time.Sleep(time.Second) // virtual time
		for _, i := range all {
			i.serving(slowly(2 * time.Millisecond))
		}
		var calls tally
		var worst atomic.Int64
		var wg sync.WaitGroup
		for k := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(k) * 10 * time.Millisecond) // virtual time
				for range 10 {
					began := time.Now()
					_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
					for took := int64(time.Since(began)); took > worst.Load(); {
						worst.Store(took)
					}
					time.Sleep(3*time.Second - time.Since(began)) // virtual time
				}
			})
		}
		time.Sleep(4 * time.Second) // virtual time
		all[0].stop()
		defer all[0].resume() // then users return and get one more resync
		wg.Wait()
		if got := calls.answered.Load(); got != 3000 || time.Duration(worst.Load()) > 1100*time.Millisecond {
			t.Errorf("%d of 3000 were answered, the last after %v", got, time.Duration(worst.Load()))
		}
		for _, d := range devices {
			if heard := d.take(); len(heard) > 2 {
				t.Fatalf("%s was told %v", d.uid, heard)
			}
		}
	})
}

// A blocked instance is dropped even with an exhausted retry budget and without reads.
func TestAnInstanceThatStandsStillWithoutABudget(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		for _, i := range all {
			i.serving(lost(0))
		}
		for k := range 3000 {
			if err := apply(t.Context(), c, fmt.Sprint("user", 5*k)); err == nil {
				t.Fatalf("user%d is not refused", 5*k)
			}
		}
		for _, i := range all {
			i.serving(slowly(2 * time.Millisecond))
		}
		all[0].stop()
		_ = players(t, c, make([]int, 200), 1, 3*time.Second)
		calls := players(t, c, make([]int, 200), 1, 5*time.Second)
		if failed := calls.all() - calls.answered.Load(); failed > 0 {
			t.Errorf("after 3 s %d of %d were not answered", failed, calls.all())
		}
		all[0].resume()
	})
}

// An instance that blocks repeatedly stays out until it has answered for a while, for longer each time.
// Each time its users move and resync. It returns soon after it works.
func TestAnInstanceThatStandsStillAgainAndAgain(t *testing.T) {
	for _, fine := range some(1500*time.Millisecond, 500*time.Millisecond, 4*time.Second) {
		t.Run(fine.String(), func(t *testing.T) {
			bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				var devices []*device
				for k, uid := range users(100) {
					devices = append(devices, listening(c, uid, uint64(k+1)))
				}
				for _, i := range all {
					i.serving(slowly(2 * time.Millisecond))
				}
				time.Sleep(time.Second) // virtual time
				for _, d := range devices {
					d.take()
				}
				go func() {
					for range int(time.Minute / (1500*time.Millisecond + fine)) {
						all[0].stop()
						time.Sleep(1500 * time.Millisecond) // virtual time
						all[0].resume()
						time.Sleep(fine) // virtual time
					}
				}()
				calls := players(t, c, make([]int, 200), 1, time.Minute)
				if failed := calls.all() - calls.answered.Load(); failed > 0 {
					t.Errorf("%d of %d were not answered", failed, calls.all())
				}
				time.Sleep(time.Minute) // virtual time
				most := 0
				for _, d := range devices {
					most = max(most, len(d.take()))
				}
				if most > 6 {
					t.Errorf("a device was told %d times to read again, want at most 6", most)
				}
				before := len(all[0].sizes())
				for _, uid := range users(100) {
					if err := apply(t.Context(), c, uid); err != nil {
						t.Fatal(err)
					}
				}
				if len(all[0].sizes()) == before {
					t.Error("a minute after it was well nobody is served by it")
				}
			})
		})
	}
}

// An instance whose connections or streams end repeatedly stays out the same way.
func TestAnInstanceThatComesAndGoes(t *testing.T) {
	for name, flap := range map[string]func(*instance){
		"connections": func(i *instance) {
			i.health.Shutdown()
			time.Sleep(time.Second) // virtual time
			i.health.Resume()
			time.Sleep(2 * time.Second) // virtual time
		},
		"streams": func(i *instance) {
			i.breaking(status.Error(codes.Internal, "bug"))
			time.Sleep(3 * time.Second) // virtual time
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				var devices []*device
				for k, uid := range users(100) {
					devices = append(devices, listening(c, uid, uint64(k+1)))
				}
				time.Sleep(time.Second) // virtual time
				for _, d := range devices {
					d.take()
				}
				go func() {
					for range int(time.Minute / (3 * time.Second)) {
						flap(all[0])
					}
					all[0].breaking(nil)
				}()
				calls := players(t, c, make([]int, 200), 1, time.Minute)
				if failed := calls.all() - calls.answered.Load(); failed > 0 {
					t.Errorf("%d of %d were not answered", failed, calls.all())
				}
				time.Sleep(time.Minute) // virtual time
				most := 0
				for _, d := range devices {
					most = max(most, len(d.take()))
				}
				if most > 10 {
					t.Errorf("a device was told %d times to read again, want at most 10", most)
				}
				awaitUp(t, c, all[0])
			})
		})
	}
}

// TestTheLastInstance: the last instance is used as soon as it answers, however often it blocked.
func TestTheLastInstance(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		for _, i := range all {
			i.serving(slowly(2 * time.Millisecond))
		}
		go func() {
			for range 5 {
				all[0].stop()
				time.Sleep(1500 * time.Millisecond) // virtual time
				all[0].resume()
				time.Sleep(1500 * time.Millisecond) // virtual time
			}
			all[1].server.Stop()
		}()
		players(t, c, make([]int, 50), 1, 16*time.Second)
		for _, uid := range users(20) {
			if err := apply(t.Context(), c, uid); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A silent shard's part of a batch does not delay the rest of the stream.
func TestPartsOfABatch(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		slow := func(h *historyv1.Heartbeat) bool { return h.Uid == "slow" || h.Uid == "slow2" }
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			parts := [2]*historyv1.ApplyStreamResponse{}
			for n, h := range req.Batch.Heartbeats {
				k := 0
				if slow(h) {
					k = 1
				}
				if parts[k] == nil {
					parts[k] = &historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{}}
				}
				p := parts[k]
				p.Result.Days = append(p.Result.Days, &historyv1.DaySeen{Index: uint32(len(p.Indexes)), Date: uint32(h.PositionMs)})
				p.Indexes = append(p.Indexes, uint32(n))
				p.Result.Statuses = append(p.Result.Statuses, historyv1.Status(1+h.PositionMs))
			}
			for k, p := range parts {
				if time.Sleep(time.Duration(k) * time.Second); p != nil { // virtual time
					send(p)
				}
			}
		})
		began := time.Now()
		var mu sync.Mutex
		var took []string
		var wg sync.WaitGroup
		for k, uid := range []string{"u1", "slow", "u2", "slow2", "u3"} {
			wg.Go(func() {
				resp, err := c.Apply(t.Context(), beats(uid, k+1))
				if err != nil || len(resp.Statuses) != k+1 || resp.Statuses[k] != historyv1.Status(1+k) || len(resp.Days) != k+1 || resp.Days[k].Index != uint32(k) || resp.Days[k].Date != uint32(k) {
					t.Errorf("%s was answered %v, %v", uid, resp, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, fmt.Sprint(uid, " ", time.Since(began)))
			})
			synctest.Wait()
		}
		wg.Wait()
		slices.Sort(took)
		if want := []string{"slow 1.002s", "slow2 1.002s", "u1 2ms", "u2 2ms", "u3 2ms"}; !slices.Equal(took, want) {
			t.Errorf("got %v, want %v", took, want)
		}
		if got := i.sizes(); !slices.Equal(got, []int{15}) {
			t.Errorf("batches of %v, want one", got)
		}
	})
}

// Unanswered calls of some users take no capacity from others.
func TestUsersOfASilentPartStopNobodyElse(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			resp := &historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{}}
			for n, h := range req.Batch.Heartbeats {
				if h.ObjectType == 1 {
					resp.Indexes = append(resp.Indexes, uint32(n))
					resp.Result.Statuses = append(resp.Result.Statuses, historyv1.Status_STATUS_STORED)
				}
			}
			if time.Sleep(20 * time.Millisecond); len(resp.Indexes) > 0 { // virtual time
				send(resp)
			}
		})
		var well, silent tally
		var wg sync.WaitGroup
		for k := range 400 {
			wg.Go(func() {
				for range 10 {
					time.Sleep(rand.N(2 * time.Second)) // virtual time
					if k%4 > 0 {
						_ = well.report(t.Context(), c, fmt.Sprint("user", k))
						continue
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					req := beats(fmt.Sprint("user", k), 1)
					req.Heartbeats[0].ObjectType = 2
					if _, err := c.Apply(ctx, req); err == nil {
						silent.answered.Add(1)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		if well.answered.Load() != 3000 || silent.answered.Load() > 0 {
			t.Errorf("%d of 3000 answered, and %d of those who are never", well.answered.Load(), silent.answered.Load())
		}
	})
}

// A user's next report does not overtake the pending one. Other users' reports may.
func TestNobodyOvertakesHimself(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var mu sync.Mutex
		var order []int64
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			time.Sleep(rand.N(50 * time.Millisecond)) // virtual time
			mu.Lock()
			for _, h := range req.Batch.Heartbeats {
				if h.Uid == "u1" {
					order = append(order, h.PositionMs)
				}
			}
			mu.Unlock()
			send(whole(req))
		})
		var wg sync.WaitGroup
		for n := range 100 {
			for _, uid := range []string{"u1", fmt.Sprint("other", n)} {
				wg.Go(func() {
					req := beats(uid, 1)
					req.Heartbeats[0].PositionMs = int64(n)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if n%10 == 5 { // order holds after a timeout, too
						ctx, cancel = context.WithTimeout(t.Context(), 3*time.Millisecond)
						defer cancel()
					}
					_, _ = c.Apply(ctx, req)
				})
				synctest.Wait()
			}
			time.Sleep(rand.N(10 * time.Millisecond)) // virtual time
		}
		wg.Wait()
		time.Sleep(time.Second) // virtual time
		if !slices.IsSorted(order) || len(order) < 90 {
			t.Errorf("stored in the order %v", order)
		}
	})
}

// Two waiting calls of a user that do not fit into one batch leave in order.
func TestNobodyOvertakesHimselfInTheNextBatch(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		came, let := make(chan string, 10), make(chan struct{})
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			h := req.Batch.Heartbeats[0]
			came <- fmt.Sprint(h.Uid, h.PositionMs)
			<-let
			send(whole(req))
		})
		var wg sync.WaitGroup
		for n, uid := range []string{"full", "u", "u"} {
			req := beats(uid, 500) // the initial limit of pending heartbeats
			if uid == "u" {
				req = beats(uid, 600) // two of these do not fit
			}
			req.Heartbeats[0].PositionMs = int64(n)
			wg.Go(func() {
				if _, err := c.Apply(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		let <- struct{}{}                  // the first
		time.Sleep(500 * time.Millisecond) // virtual time
		if len(came) != 2 || <-came != "full0" || <-came != "u1" {
			t.Error("the last one has left, too, or first")
		}
		close(let)
		wg.Wait()
	})
}

// TestTwoDevices: with answers after 400 ms, sequential calls are fast enough for a user's two devices.
func TestTwoDevices(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(slowly(400 * time.Millisecond))
		var calls tally
		var wg sync.WaitGroup
		for k := range 200 { // two per user
			wg.Go(func() {
				for range 20 {
					time.Sleep(rand.N(2 * time.Second)) // virtual time
					_ = calls.report(t.Context(), c, fmt.Sprint("user", k/2))
				}
			})
		}
		wg.Wait()
		if calls.refused.Load() > 0 || calls.gaveUp.Load() > 0 {
			t.Errorf("%d answered, %d refused, %d gave up, want all answered", calls.answered.Load(), calls.refused.Load(), calls.gaveUp.Load())
		}
	})
}

// A shard that takes nearly all of its callers' time, or more, does not look like overload. No other call
// is refused.
func TestASlowPartIsNoOverload(t *testing.T) {
	for _, takes := range some(1900*time.Millisecond, 1400*time.Millisecond, 3*time.Second) {
		t.Run(takes.String(), func(t *testing.T) {
			bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
				i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
					quick := &historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{}}
					late := &historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{}}
					for n, h := range req.Batch.Heartbeats {
						part := quick
						if onLost(h.Uid) {
							part = late
						}
						part.Indexes = append(part.Indexes, uint32(n))
						part.Result.Statuses = append(part.Result.Statuses, historyv1.Status_STATUS_STORED)
					}
					if len(quick.Indexes) > 0 {
						time.Sleep(5 * time.Millisecond) // virtual time
						send(quick)
					}
					if len(late.Indexes) > 0 {
						time.Sleep(takes) // virtual time
						send(late)
					}
				})
				var others, slow tally
				var wg sync.WaitGroup
				for _, uid := range users(1000) {
					calls := &others
					if onLost(uid) {
						calls = &slow
					}
					wg.Go(func() {
						for range 20 {
							time.Sleep(time.Second/2 + rand.N(time.Second)) // virtual time
							_ = calls.report(t.Context(), c, uid)
						}
					})
				}
				wg.Wait()
				if others.answered.Load() != 800*20 {
					t.Errorf("%d of %d of the others were answered; of the slow part's %d of %d", others.answered.Load(), others.all(), slow.answered.Load(), slow.all())
				}
				time.Sleep(5 * time.Second) // virtual time, for pending calls
			})
		})
	}
}

// A batch without an answer is abandoned after a while. Its capacity is free again, its users' next reports
// leave, and a late answer is ignored.
func TestABatchThatIsNeverAnswered(t *testing.T) {
	for _, size := range []int{1, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
				var late []*historyv1.ApplyStreamRequest
				var answer, send func(*historyv1.ApplyStreamResponse)
				var mu sync.Mutex
				i.serving(func(req *historyv1.ApplyStreamRequest, to func(*historyv1.ApplyStreamResponse)) {
					mu.Lock()
					defer mu.Unlock()
					if send = to; answer == nil {
						late = append(late, req)
						return
					}
					answer(whole(req))
				})
				var calls tally
				var wg sync.WaitGroup
				for k := range 100 { // more than fit
					wg.Go(func() { _ = calls.reports(t.Context(), c, fmt.Sprint("user", k), size) })
					time.Sleep(50 * time.Millisecond) // virtual time
				}
				wg.Wait()
				time.Sleep(11 * time.Second) // virtual time
				mu.Lock()
				answer = send
				mu.Unlock()
				for k := range 100 {
					wg.Go(func() {
						began := time.Now()
						if err := apply(t.Context(), c, fmt.Sprint("user", k)); err != nil || time.Since(began) > 10*time.Millisecond {
							t.Errorf("user%d: %v after %v", k, err, time.Since(began))
						}
					})
				}
				wg.Wait()
				for _, req := range late {
					answer(whole(req))
				}
				if err := apply(t.Context(), c, "user1"); err != nil || calls.answered.Load() > 0 || len(late) < 5 {
					t.Errorf("after %d late answers: %v, %d answered before", len(late), err, calls.answered.Load())
				}
			})
		})
	}
}

// Unanswered batches delay other calls no longer than their own callers wait.
func TestALostBatchIsInNobodysWay(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			if len(req.Batch.Heartbeats) == 1 {
				send(whole(req))
			}
		})
		var wg sync.WaitGroup
		for k := range 60 {
			wg.Go(func() { _ = new(tally).reports(t.Context(), c, fmt.Sprint("lost", k), 100) })
			time.Sleep(5 * time.Millisecond) // virtual time
		}
		time.Sleep(4 * time.Second)        // virtual time
		_ = apply(t.Context(), c, "user1") // detects the loss
		time.Sleep(time.Second)            // virtual time
		began := time.Now()
		if err := apply(t.Context(), c, "user1"); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		wg.Wait()
	})
}

// With a single silent instance, calls are soon refused at once instead of waiting.
func TestNobodyWaitsForASilentInstance(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		_ = apply(t.Context(), c, "user0")
		i.stop()
		var calls tally
		var wg sync.WaitGroup
		for k := range 1000 {
			wg.Go(func() { _ = calls.report(t.Context(), c, fmt.Sprint("user", k)) })
			time.Sleep(10 * time.Millisecond) // virtual time
		}
		wg.Wait()
		if calls.gaveUp.Load() > 200 || calls.answered.Load() > 0 {
			t.Errorf("%d refused, %d waited in vain", calls.refused.Load(), calls.gaveUp.Load())
		}
		i.resume()
		time.Sleep(time.Second) // virtual time
		if err := apply(t.Context(), c, "user0"); err != nil {
			t.Error(err)
		}
	})
}

// Reads are refused until reports are answered again.
func TestReadsAreShedFirst(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(limited())
		var calls tally
		var wg sync.WaitGroup
		end := time.Now().Add(10 * time.Second)
		for k := range 3000 {
			wg.Go(func() {
				for time.Now().Before(end) {
					_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
					time.Sleep(rand.N(2 * time.Second)) // virtual time
				}
			})
		}
		time.Sleep(7 * time.Second) // virtual time
		read := 0
		for range 20 { // some reads happen while everything is answered in time
			if _, err := list(t.Context(), c, "u1"); status.Code(err) != codes.Unavailable {
				read++
			}
			time.Sleep(100 * time.Millisecond) // virtual time
		}
		if read > 8 {
			t.Errorf("%d of 20 reads go on in the rush", read)
		}
		wg.Wait()
		time.Sleep(5 * time.Second) // virtual time
		if _, err := list(t.Context(), c, "u1"); err != nil {
			t.Errorf("a read after it: %v", err)
		}
	})
}

// TestReadsAfterALateAnswer: one late report blocks no reads.
func TestReadsAfterALateAnswer(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		for range 3 {
			i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
				time.Sleep(1500 * time.Millisecond) // virtual time
				return &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, len(req.Heartbeats))}
			}
			var calls tally
			_ = calls.report(t.Context(), c, "u1")
			for k := range 20 {
				if _, err := list(t.Context(), c, fmt.Sprint("user", k)); err != nil {
					t.Fatalf("a read after a late answer: %v", err)
				}
			}
			time.Sleep(4 * time.Second) // virtual time
		}
	})
}
