package uplink_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// limited answers one heartbeat per millisecond, batches in order of arrival.
func limited() func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	turn := make(chan struct{}, 1)
	return func(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
		turn <- struct{}{}
		time.Sleep(time.Duration(len(req.Batch.Heartbeats)) * time.Millisecond) // virtual time
		<-turn
		send(whole(req))
	}
}

// Load is three times the capacity, at any message size. At least 80% of the capacity is answered in time.
// Other calls are refused instead of waiting, and no user starves.
func TestOverload(t *testing.T) {
	const capacity, seconds = 1000, 40
	for _, size := range append(some(100, 1), 10, 99, 101) {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
				i.serving(limited())
				byUser := make([]int, 3*capacity/size)
				first := players(t, c, byUser, size, 10*time.Second) // until the store's capacity is known
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
				time.Sleep(5 * time.Second) // virtual time, for pending calls
			})
		})
	}
}

// An overloaded store continues with abandoned requests. The edge reduces its load before all answers are
// late, even after a large burst at a fast store.
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
				if gaveUp := calls.gaveUp.Load(); gaveUp > calls.all()/12 { // 1 to 5 % before the capacity is known
					t.Errorf("%d of %d waited in vain", gaveUp, calls.all())
				}
				time.Sleep(5 * time.Second) // virtual time, for pending calls
			})
		})
	}
}

// Several instances and their users share the store's capacity fairly.
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
				players(t, c, byUser, 1, 20*time.Second) // until the store's capacity is known
				clear(byUser)
				calls := players(t, c, byUser, 1, seconds*time.Second)
				answered, least := calls.answered.Load(), slices.Min(byUser)
				t.Logf("%d answered, %d refused, %d gave up; users from %d to %d", answered, calls.refused.Load(), calls.gaveUp.Load(), least, slices.Max(byUser))
				if answered < capacity*seconds*8/10 {
					t.Errorf("%d were answered in time, want %d", answered, capacity*seconds*8/10)
				}
				if fair := int(answered) / len(byUser); n < 12 && least < fair/8 { // one of twelve may get little for a while
					t.Errorf("one user was answered %d times, where %d would be fair", least, fair)
				}
				time.Sleep(5 * time.Second) // virtual time, for pending calls
			})
		})
	}
}

// A store shared by several instances suddenly slows down. Until the edge notices, it sends no more to all
// instances than it would to one. Later calls are not delayed by abandoned ones.
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
				time.Sleep(5 * time.Second) // virtual time, for pending calls
			})
		})
	}
}

// remembering is a store with a fixed capacity in heartbeats per second. It processes them one at a time,
// including abandoned ones.
func remembering(capacity int) func(*historyv1.ApplyStreamRequest, func(*historyv1.ApplyStreamResponse)) {
	var mu sync.Mutex
	var free time.Time // when all requests so far are processed
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
		time.Sleep(takes) // virtual time
		send(resp)
	}
}

// players send a message of size heartbeats each second, each for another user, and count the outcomes.
func players(t *testing.T, c *uplink.Client, byUser []int, size int, lasts time.Duration) *tally { //nolint:revive // who they are and what they send
	return playersEvery(t, c, time.Second, byUser, size, lasts)
}

// playersEvery is players with another interval.
func playersEvery(t *testing.T, c *uplink.Client, every time.Duration, byUser []int, size int, lasts time.Duration) *tally { //nolint:revive // as players
	var calls tally
	var wg sync.WaitGroup
	end := time.Now().Add(lasts)
	for k := range byUser {
		wg.Go(func() {
			for time.Sleep(rand.N(every)); time.Now().Before(end); { // virtual time
				began := time.Now()
				if calls.reports(t.Context(), c, fmt.Sprint("user", k), size) == nil {
					byUser[k]++
				}
				time.Sleep(every/2 + rand.N(every) - time.Since(began)) // virtual time
			}
		})
	}
	wg.Wait()
	return &calls
}
