package uplink_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// slowly answers every batch after a while, however many there are.
func slowly(by time.Duration) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		time.Sleep(by) // of the bubble
		send(whole(req))
	}
}

// tally is how many calls were answered, and how many not.
type tally struct{ answered, refused, gaveUp atomic.Int64 }

func (c *tally) all() int64 { return c.answered.Load() + c.refused.Load() + c.gaveUp.Load() }

// report makes a call as the edge does, with two seconds.
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

// A store behind all instances is slow from everywhere: nobody moves, nothing is sent
// twice for long, and with several instances as many are answered as with one.
func TestSlowBehindAll(t *testing.T) {
	for _, of := range []struct {
		n     int
		takes time.Duration
		want  int64
	}{
		{1, 1200 * time.Millisecond, 2000},
		{2, 1200 * time.Millisecond, 2000},
		{3, 1200 * time.Millisecond, 2000},
		{1, 1700 * time.Millisecond, 1700}, // it takes one answer to see that fewer at a time are not quicker
		{3, 1700 * time.Millisecond, 1700},
	} {
		n, takes := of.n, of.takes
		t.Run(fmt.Sprint(n, " ", takes), func(t *testing.T) {
			bubbles(t, n, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				var devices []*device
				for k, uid := range users(200) {
					devices = append(devices, listening(c, uid, uint64(k+1)))
				}
				time.Sleep(time.Second) // of the bubble
				for _, i := range all {
					i.serving(slowly(takes))
				}
				var calls tally
				var wg sync.WaitGroup
				for k := range 200 {
					wg.Go(func() {
						time.Sleep(time.Duration(k) * 10 * time.Millisecond) // of the bubble
						for range 10 {
							_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
							time.Sleep(time.Second) // of the bubble
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

// An instance that stands still while others answer is left after a second, and not before.
func TestAnInstanceThatStandsStill(t *testing.T) {
	bubbles(t, 3, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var devices []*device
		for k, uid := range users(300) {
			devices = append(devices, listening(c, uid, uint64(k+1)))
		}
		time.Sleep(time.Second) // of the bubble
		for _, i := range all {
			i.serving(slowly(2 * time.Millisecond))
		}
		var calls tally
		var worst atomic.Int64
		var wg sync.WaitGroup
		for k := range 300 {
			wg.Go(func() {
				time.Sleep(time.Duration(k) * 10 * time.Millisecond) // of the bubble
				for range 10 {
					began := time.Now()
					_ = calls.report(t.Context(), c, fmt.Sprint("user", k))
					for took := int64(time.Since(began)); took > worst.Load(); {
						worst.Store(took)
					}
					time.Sleep(3*time.Second - time.Since(began)) // of the bubble
				}
			})
		}
		time.Sleep(4 * time.Second) // of the bubble
		all[0].stop()
		defer all[0].resume() // then users come back, and are told once more
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

// It is left also when the budget for repeats is spent, and nobody reads.
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

// One that stands still again and again stays away until it has answered for a while, ever longer: each
// time its users move, and read again. It is back soon after it is well.
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
				time.Sleep(time.Second) // of the bubble
				for _, d := range devices {
					d.take()
				}
				go func() {
					for range int(time.Minute / (1500*time.Millisecond + fine)) {
						all[0].stop()
						time.Sleep(1500 * time.Millisecond) // of the bubble
						all[0].resume()
						time.Sleep(fine) // of the bubble
					}
				}()
				calls := players(t, c, make([]int, 200), 1, time.Minute)
				if failed := calls.all() - calls.answered.Load(); failed > 0 {
					t.Errorf("%d of %d were not answered", failed, calls.all())
				}
				time.Sleep(time.Minute) // of the bubble
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

// One whose connections or streams end again and again stays away in the same way.
func TestAnInstanceThatComesAndGoes(t *testing.T) {
	for name, flap := range map[string]func(*instance){
		"connections": func(i *instance) {
			i.health.Shutdown()
			time.Sleep(time.Second) // of the bubble
			i.health.Resume()
			time.Sleep(2 * time.Second) // of the bubble
		},
		"streams": func(i *instance) {
			i.breaking(status.Error(codes.Internal, "bug"))
			time.Sleep(3 * time.Second) // of the bubble
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				var devices []*device
				for k, uid := range users(100) {
					devices = append(devices, listening(c, uid, uint64(k+1)))
				}
				time.Sleep(time.Second) // of the bubble
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
				time.Sleep(time.Minute) // of the bubble
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

// TestTheLastInstance is used as soon as it answers, however often it stood still.
func TestTheLastInstance(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		for _, i := range all {
			i.serving(slowly(2 * time.Millisecond))
		}
		go func() {
			for range 5 {
				all[0].stop()
				time.Sleep(1500 * time.Millisecond) // of the bubble
				all[0].resume()
				time.Sleep(1500 * time.Millisecond) // of the bubble
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

// Where a part of a batch is not answered, the others of the stream do not wait for it.
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
				if time.Sleep(time.Duration(k) * time.Second); p != nil { // of the bubble
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

// Calls of some users that are never answered take nobody else's place.
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
			if time.Sleep(20 * time.Millisecond); len(resp.Indexes) > 0 { // of the bubble
				send(resp)
			}
		})
		var well, silent tally
		var wg sync.WaitGroup
		for k := range 400 {
			wg.Go(func() {
				for range 10 {
					time.Sleep(rand.N(2 * time.Second)) // of the bubble
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

// A user's next report does not overtake the one that is on its way. Others do.
func TestNobodyOvertakesHimself(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var mu sync.Mutex
		var order []int64
		i.serving(func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
			time.Sleep(rand.N(50 * time.Millisecond)) // of the bubble
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
					if n%10 == 5 { // who gives up is in order all the same
						ctx, cancel = context.WithTimeout(t.Context(), 3*time.Millisecond)
						defer cancel()
					}
					_, _ = c.Apply(ctx, req)
				})
				synctest.Wait()
			}
			time.Sleep(rand.N(10 * time.Millisecond)) // of the bubble
		}
		wg.Wait()
		time.Sleep(time.Second) // of the bubble
		if !slices.IsSorted(order) || len(order) < 90 {
			t.Errorf("stored in the order %v", order)
		}
	})
}

// Two calls of a user that wait together, and do not fit into one batch, leave one after the other.
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
			req := beats(uid, 500) // no more are on their way at first
			if uid == "u" {
				req = beats(uid, 600) // of which two do not fit
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
		time.Sleep(500 * time.Millisecond) // of the bubble
		if len(came) != 2 || <-came != "full0" || <-came != "u1" {
			t.Error("the last one has left, too, or first")
		}
		close(let)
		wg.Wait()
	})
}

// limited answers a heartbeat in each millisecond, batches in the order in which they came.
func limited() func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	turn := make(chan struct{}, 1)
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		turn <- struct{}{}
		time.Sleep(time.Duration(len(req.Batch.Heartbeats)) * time.Millisecond) // of the bubble
		<-turn
		send(whole(req))
	}
}

// Three times as much as can be done, in messages of any size: what is answered in time stays
// at 0.8 of what can be, the others are refused and not kept waiting, and no user is left out.
func TestOverload(t *testing.T) {
	const capacity, seconds = 1000, 40
	for _, size := range append(some(100, 1), 10, 99, 101) {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
				i.serving(limited())
				byUser := make([]int, 3*capacity/size)
				first := players(t, c, byUser, size, 10*time.Second) // until it is known what the store can do
				calls := players(t, c, byUser, size, (seconds-10)*time.Second)
				answered, least := first.answered.Load()+calls.answered.Load(), slices.Min(byUser)
				t.Logf("%d answered, %d and %d of %d and %d gave up; users from %d to %d", answered, first.gaveUp.Load(), calls.gaveUp.Load(),
					first.all(), calls.all(), least, slices.Max(byUser))
				if want := int64(capacity * seconds / size * 8 / 10); answered < want {
					t.Errorf("%d were answered in time, want %d", answered, want)
				}
				if begin, then := first.gaveUp.Load(), calls.gaveUp.Load(); begin > first.all()/12 || then > calls.all()/30 {
					t.Errorf("%d of %d waited in vain in the beginning, and then %d of %d", begin, first.all(), then, calls.all())
				}
				if fair := int(answered) / len(byUser); least < fair/3 {
					t.Errorf("one user was answered %d times, where %d would be fair", least, fair)
				}
				time.Sleep(5 * time.Second) // of the bubble, for what is under way
			})
		})
	}
}

// A store that is asked for too much goes on with what nobody waits for any more. The edge asks
// for less before all that is done is in vain, also where many came at once before, when the
// store was quick.
func TestOverloadOfAStoreThatForgetsNothing(t *testing.T) {
	const capacity, seconds = 300, 30
	for _, before := range []int{0, 3000} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
				i.serving(slowly(5 * time.Millisecond))
				var crowd tally
				var wg sync.WaitGroup
				for k := range before {
					wg.Go(func() { _ = crowd.report(t.Context(), c, fmt.Sprint("user", k)) })
				}
				wg.Wait()
				players(t, c, make([]int, 3*capacity), 1, 5*time.Second)
				i.serving(remembering(capacity))
				calls := players(t, c, make([]int, 3*capacity), 1, seconds*time.Second)
				answered := calls.answered.Load()
				t.Logf("%d answered, %d refused, %d gave up", answered, calls.refused.Load(), calls.gaveUp.Load())
				if answered < capacity*seconds*8/10 {
					t.Errorf("%d were answered in time, want %d", answered, capacity*seconds*8/10)
				}
				if gaveUp := calls.gaveUp.Load(); gaveUp > calls.all()/20 {
					t.Errorf("%d of %d waited in vain", gaveUp, calls.all())
				}
				time.Sleep(5 * time.Second) // of the bubble, for what is under way
			})
		})
	}
}

// Several instances share what the store can do, and so do their users, also where they outnumber
// what the store does in a tenth of a second.
func TestOverloadBehindSeveral(t *testing.T) {
	const capacity, seconds = 300, 60
	for _, n := range append(some(2, 1, 3, 6), 12) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubbles(t, n, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				serve := remembering(capacity)
				for _, i := range all {
					i.serving(serve)
				}
				byUser := make([]int, 3*capacity)
				players(t, c, byUser, 1, 20*time.Second) // until it is known what the store can do
				clear(byUser)
				calls := players(t, c, byUser, 1, seconds*time.Second)
				answered, least := calls.answered.Load(), slices.Min(byUser)
				t.Logf("%d answered, %d refused, %d gave up; users from %d to %d", answered, calls.refused.Load(), calls.gaveUp.Load(), least, slices.Max(byUser))
				if answered < capacity*seconds*8/10 {
					t.Errorf("%d were answered in time, want %d", answered, capacity*seconds*8/10)
				}
				if fair := int(answered) / len(byUser); n < 12 && least < fair/8 { // of twelve one may have little for a while
					t.Errorf("one user was answered %d times, where %d would be fair", least, fair)
				}
				time.Sleep(5 * time.Second) // of the bubble, for what is under way
			})
		})
	}
}

// A store that several instances share becomes slow of a sudden. Before the edge can know that, it has no more on its
// way to all of them than it would have to one. Later calls are not late behind calls that nobody waits for any more.
func TestOverloadOfASudden(t *testing.T) {
	const capacity, seconds = 330, 30
	for _, n := range append(some(6, 1, 2), 12) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubbles(t, n, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
				for _, i := range all {
					i.serving(slowly(5 * time.Millisecond))
				}
				byUser := make([]int, 6*capacity)
				playersEvery(t, c, 2*time.Second, byUser, 1, 4*time.Second)
				serve := remembering(capacity)
				for _, i := range all {
					i.serving(serve)
				}
				calls := playersEvery(t, c, 2*time.Second, byUser, 1, seconds*time.Second)
				answered, gaveUp := calls.answered.Load(), calls.gaveUp.Load()
				t.Logf("%d answered, %d refused, %d gave up", answered, calls.refused.Load(), gaveUp)
				if answered < capacity*seconds*9/10 {
					t.Errorf("%d were answered in time, want %d", answered, capacity*seconds*9/10)
				}
				if gaveUp > calls.all()/30 {
					t.Errorf("%d of %d waited in vain", gaveUp, calls.all())
				}
				time.Sleep(5 * time.Second) // of the bubble, for what is under way
			})
		})
	}
}

// remembering is a store that takes so many heartbeats a second, one after the other, also those
// that nobody waits for any more.
func remembering(capacity int) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	var mu sync.Mutex
	var free time.Time // when the store is done with all that it was asked for
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		n := len(req.Batch.Heartbeats)
		mu.Lock()
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(n) * time.Second / time.Duration(capacity))
		takes := time.Until(free)
		mu.Unlock()
		resp := whole(req)
		if takes > 2*time.Second {
			takes = 2 * time.Second
			resp.Result.Statuses = slices.Repeat([]historyv1.Status{historyv1.Status_STATUS_UNAVAILABLE}, n)
		}
		time.Sleep(takes) // of the bubble
		send(resp)
	}
}

// players send a message of so many heartbeats each second, each of another user, and count
// what is answered.
func players(t *testing.T, c *uplink.Client, byUser []int, size int, lasts time.Duration) *tally { //nolint:revive // who they are and what they send
	return playersEvery(t, c, time.Second, byUser, size, lasts)
}

// playersEvery is players who send their messages in another time than a second.
func playersEvery(t *testing.T, c *uplink.Client, every time.Duration, byUser []int, size int, lasts time.Duration) *tally { //nolint:revive // as players
	var calls tally
	var wg sync.WaitGroup
	end := time.Now().Add(lasts)
	for k := range byUser {
		wg.Go(func() {
			for time.Sleep(rand.N(every)); time.Now().Before(end); { // of the bubble
				began := time.Now()
				if calls.reports(t.Context(), c, fmt.Sprint("user", k), size) == nil {
					byUser[k]++
				}
				time.Sleep(every/2 + rand.N(every) - time.Since(began)) // of the bubble
			}
		})
	}
	wg.Wait()
	return &calls
}

// TestTwoDevices: where answers take 400 ms, one after the other is early enough for two devices of a user.
func TestTwoDevices(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(slowly(400 * time.Millisecond))
		var calls tally
		var wg sync.WaitGroup
		for k := range 200 { // two of each user
			wg.Go(func() {
				for range 20 {
					time.Sleep(rand.N(2 * time.Second)) // of the bubble
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

// A part that takes nearly all of its callers' time, or more, does not look like overload: nobody else is
// refused.
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
						time.Sleep(5 * time.Millisecond) // of the bubble
						send(quick)
					}
					if len(late.Indexes) > 0 {
						time.Sleep(takes) // of the bubble
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
							time.Sleep(time.Second/2 + rand.N(time.Second)) // of the bubble
							_ = calls.report(t.Context(), c, uid)
						}
					})
				}
				wg.Wait()
				if others.answered.Load() != 800*20 {
					t.Errorf("%d of %d of the others were answered; of the slow part's %d of %d", others.answered.Load(), others.all(), slow.answered.Load(), slow.all())
				}
				time.Sleep(5 * time.Second) // of the bubble, for what is under way
			})
		})
	}
}

// A user who sends more than others does not get more of what there is too little of.
func TestOverloadIsFair(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.serving(limited())
		var loud, quiet tally
		var wg sync.WaitGroup
		end := time.Now().Add(30 * time.Second)
		for k := range 1100 {
			wg.Go(func() {
				for time.Now().Before(end) {
					if k < 100 { // each sends 20 a second
						wg.Go(func() { _ = loud.report(t.Context(), c, fmt.Sprint("user", k)) })
						time.Sleep(50 * time.Millisecond) // of the bubble
						continue
					}
					_ = quiet.report(t.Context(), c, fmt.Sprint("user", k))
					time.Sleep(rand.N(2 * time.Second)) // of the bubble
				}
			})
		}
		wg.Wait()
		asked := quiet.answered.Load() + quiet.refused.Load() + quiet.gaveUp.Load()
		t.Logf("%d of %d answered to the quiet, %d of 60000 to the loud", quiet.answered.Load(), asked, loud.answered.Load())
		if quiet.answered.Load() < asked*7/10 || loud.answered.Load() > 60_000*3/10 {
			t.Errorf("%d of %d answered to the quiet, %d of 60000 to the loud", quiet.answered.Load(), asked, loud.answered.Load())
		}
	})
}

// An instance that answers reads, and health checks, and nothing on its streams is left for another one.
func TestAStreamThatStandsStill(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var uids []string
		for k := 0; len(uids) < 40; k++ {
			uid := fmt.Sprint("user", k)
			if who, err := list(t.Context(), c, uid); err == nil && who == all[0].addr {
				uids = append(uids, uid)
			}
		}
		all[0].serving(func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {})
		var first, later tally
		var wg sync.WaitGroup
		began := time.Now()
		for _, uid := range uids {
			wg.Go(func() {
				for time.Since(began) < time.Minute {
					calls := &later
					if time.Since(began) < 8*time.Second {
						calls = &first
					}
					_ = calls.report(t.Context(), c, uid)
					time.Sleep(time.Second) // of the bubble
				}
			})
		}
		wg.Go(func() {
			for time.Since(began) < time.Minute {
				if _, err := list(t.Context(), c, uids[0]); err != nil {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond) // of the bubble
			}
		})
		wg.Wait()
		if later.answered.Load() != later.all() || later.all() < 40*50 {
			t.Errorf("%d of %d were answered; %d of %d in the first 8 s", later.answered.Load(), later.all(), first.answered.Load(), first.all())
		}
		time.Sleep(15 * time.Second) // of the bubble, for what is under way
	})
}

// A batch without an answer is given up after a while: its places are free again, its users'
// next reports leave, and an answer that comes after all disturbs nobody.
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
				for k := range 100 { // more than there are places for
					wg.Go(func() { _ = calls.reports(t.Context(), c, fmt.Sprint("user", k), size) })
					time.Sleep(50 * time.Millisecond) // of the bubble
				}
				wg.Wait()
				time.Sleep(11 * time.Second) // of the bubble
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

// Batches without an answer do not keep others waiting for longer than their callers wait.
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
			time.Sleep(5 * time.Millisecond) // of the bubble
		}
		time.Sleep(4 * time.Second)        // of the bubble
		_ = apply(t.Context(), c, "user1") // finds out
		time.Sleep(time.Second)            // of the bubble
		began := time.Now()
		if err := apply(t.Context(), c, "user1"); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		wg.Wait()
	})
}

// Where an instance answers nothing at all and there is no other one, calls do not wait in
// vain for long: they are refused at once.
func TestNobodyWaitsForASilentInstance(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		_ = apply(t.Context(), c, "user0")
		i.stop()
		var calls tally
		var wg sync.WaitGroup
		for k := range 1000 {
			wg.Go(func() { _ = calls.report(t.Context(), c, fmt.Sprint("user", k)) })
			time.Sleep(10 * time.Millisecond) // of the bubble
		}
		wg.Wait()
		if calls.gaveUp.Load() > 200 || calls.answered.Load() > 0 {
			t.Errorf("%d refused, %d waited in vain", calls.refused.Load(), calls.gaveUp.Load())
		}
		i.resume()
		time.Sleep(time.Second) // of the bubble
		if err := apply(t.Context(), c, "user0"); err != nil {
			t.Error(err)
		}
	})
}

// Reads wait until what is reported gets through again.
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
					time.Sleep(rand.N(2 * time.Second)) // of the bubble
				}
			})
		}
		time.Sleep(7 * time.Second) // of the bubble
		read := 0
		for range 20 { // now and then one is asked for while everything is answered in time
			if _, err := list(t.Context(), c, "u1"); status.Code(err) != codes.Unavailable {
				read++
			}
			time.Sleep(100 * time.Millisecond) // of the bubble
		}
		if read > 8 {
			t.Errorf("%d of 20 reads go on in the rush", read)
		}
		wg.Wait()
		time.Sleep(5 * time.Second) // of the bubble
		if _, err := list(t.Context(), c, "u1"); err != nil {
			t.Errorf("a read after it: %v", err)
		}
	})
}

// TestReadsAfterALateAnswer: one report that was answered late keeps nobody from reading.
func TestReadsAfterALateAnswer(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		for range 3 {
			i.answer = func(req *historyv1.ApplyRequest) *historyv1.ApplyResponse {
				time.Sleep(1500 * time.Millisecond) // of the bubble
				return &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, len(req.Heartbeats))}
			}
			var calls tally
			_ = calls.report(t.Context(), c, "u1")
			for k := range 20 {
				if _, err := list(t.Context(), c, fmt.Sprint("user", k)); err != nil {
					t.Fatalf("a read after a late answer: %v", err)
				}
			}
			time.Sleep(4 * time.Second) // of the bubble
		}
	})
}

// lost answers at once that what belongs to a node is unavailable, as an instance does that cannot reach it. Users whose name ends
// in 0 or 5 belong to it.
func lost(after time.Duration) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		resp := whole(req)
		for n, h := range req.Batch.Heartbeats {
			if onLost(h.Uid) {
				resp.Result.Statuses[n] = historyv1.Status_STATUS_UNAVAILABLE
			}
		}
		time.Sleep(after) // of the bubble
		send(resp)
	}
}

func onLost(uid string) bool { return strings.HasSuffix(uid, "0") || strings.HasSuffix(uid, "5") }

// A node that one instance cannot reach, and the other one can, stops nobody.
func TestANodeThatOneInstanceCannotReach(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].serving(lost(5 * time.Millisecond))
		all[1].serving(slowly(5 * time.Millisecond))
		var calls tally
		var wg sync.WaitGroup
		for _, uid := range slices.Repeat(users(200), 2) { // each has two devices
			wg.Go(func() {
				for range 60 {
					_ = calls.report(t.Context(), c, uid)
					time.Sleep(rand.N(20 * time.Millisecond)) // of the bubble
				}
			})
		}
		wg.Wait()
		if calls.answered.Load() != 24_000 {
			t.Errorf("%d of 24000 answered", calls.answered.Load())
		}
	})
}

// So does an instance that can read nothing.
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

// A node that no instance reaches has little sent twice, and nobody wait for long.
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
								longest.Store(int64(took)) // nearly: two may come at once
							}
							time.Sleep(500*time.Millisecond + rand.N(time.Second)) // of the bubble
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

// An instance that is asked as well, and cannot reach the node, does not answer for the one that is late.
func TestARefusalDoesNotOvertakeAnAnswer(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		all[0].serving(slowly(1500 * time.Millisecond))
		all[1].serving(lost(0))
		for _, uid := range users(100) {
			if who, err := list(t.Context(), c, uid); err != nil || who != all[0].addr || !onLost(uid) {
				continue
			}
			var calls tally
			if err := calls.report(t.Context(), c, uid); err != nil {
				t.Errorf("%s: %v", uid, err)
			}
			time.Sleep(time.Second) // of the bubble
			if who, err := list(t.Context(), c, uid); err != nil || who != all[0].addr {
				t.Errorf("%s is served by %s, %v; want %s", uid, who, err, all[0].addr)
			}
			return
		}
		t.Error("nobody to report")
	})
}

// While nothing is answered anywhere little is sent twice.
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
					time.Sleep(500 * time.Millisecond) // of the bubble
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
		time.Sleep(time.Minute) // of the bubble: both are up
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

// Those who move are watched anew one after the other: each of them reads again.
func TestAMoveIsSpread(t *testing.T) {
	const n = 6000
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var heard atomic.Int64
		for k := range n {
			c.Watch(fmt.Sprint("u", k), 1, func(*historyv1.Change) { heard.Add(1) })
		}
		time.Sleep(5 * time.Second) // of the bubble
		before := heard.Load()
		all[0].health.Shutdown()
		time.Sleep(500 * time.Millisecond) // of the bubble
		early := heard.Load() - before
		time.Sleep(5 * time.Second) // of the bubble
		if moved := heard.Load() - before; moved < n/3 || early > 1100 {
			t.Errorf("%d of %d who moved were told in half a second", early, moved)
		}
	})
}
