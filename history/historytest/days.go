package historytest

import (
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// DayStore stores the days of users' activity and the first sightings yet to announce. Packages firstday and
// archive describe the methods that they need.
type DayStore interface {
	See(ctx context.Context, sightings []history.Sighting) []history.Seen
	PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error)
	Announced(ctx context.Context, firsts []history.First) error
}

// Days tests the contract of a [DayStore]. open returns a store and closes it in a cleanup of its own t.
// Stores may share data: the suite uses new users and leaves nothing pending.
func Days(t *testing.T, open func(t *testing.T) DayStore) {
	for _, part := range []struct {
		name string
		test func(*daysCase)
	}{
		{"FirstOnce", firstOnce},
		{"FirstOfManyDays", firstOfDays},
		{"FirstOfManyUsers", firstOfUsers},
		{"FirstOfManyCallers", firstOfCallers},
		{"Pending", pendingFirsts},
		{"PendingFirstsByAge", pendingFirstsAge},
		{"PendingFirstsLimit", pendingFirstsLimit},
		{"Nothing", seeNobody},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.test(&daysCase{T: t, DayStore: open(t), today: history.DayOf(time.Now().UTC())})
		})
	}
}

type daysCase struct {
	*testing.T
	DayStore
	today history.Day
}

// user returns a new user, without pending sightings after the test.
func (c *daysCase) user() string {
	uid := "é/%:|" + rand.Text()
	ctx := context.WithoutCancel(c.Context())
	c.Cleanup(func() {
		if err := c.Announced(ctx, c.pending(ctx, uid)); err != nil {
			c.Errorf("Announced(%s) after the test: %v", uid, err)
		}
	})
	return uid
}

// see records days of a user and checks which are first.
func (c *daysCase) see(uid string, want []bool, days ...history.Day) []history.First {
	c.Helper()
	sightings := make([]history.Sighting, len(days))
	for i, d := range days {
		sightings[i] = history.Sighting{UID: uid, Day: d}
	}
	var firsts []history.First
	seen := c.See(c.Context(), sightings)
	if len(seen) != len(days) {
		c.Fatalf("See of %d: got %d", len(days), len(seen))
	}
	for i, s := range seen {
		if s.Err != nil || s.First != want[i] {
			c.Errorf("%s on day %d: got %+v, want first %t", uid, days[i], s, want[i])
		}
		if age := time.Since(time.UnixMilli(s.At)); age < -time.Minute || age > time.Minute {
			c.Errorf("%s was seen at %d, want now", uid, s.At)
		}
		if s.First {
			firsts = append(firsts, history.First{Sighting: sightings[i], At: s.At})
		}
	}
	return firsts
}

// pending returns a user's pending first sightings. A negative age includes the current moment.
func (c *daysCase) pending(ctx context.Context, uid string) []history.First {
	c.Helper()
	all, err := c.PendingFirsts(ctx, []history.Bucket{history.BucketOf(uid)}, -time.Hour, math.MaxInt32)
	if err != nil {
		c.Fatalf("PendingFirsts: %v", err)
	}
	return slices.DeleteFunc(all, func(f history.First) bool { return f.UID != uid })
}

func firstOnce(c *daysCase) {
	uid := c.user()
	c.see(uid, []bool{true}, c.today)
	c.see(uid, []bool{false, false}, c.today, c.today)
	c.see(c.user(), []bool{true, false}, c.today, c.today)
}

// firstOfDays has devices in zones with other dates, and a user who returns after a while.
func firstOfDays(c *daysCase) {
	uid, d := c.user(), c.today
	c.see(uid, []bool{true, true, true}, d, d+1, d-1)
	c.see(uid, []bool{false, false, false}, d-1, d, d+1)
	c.see(uid, []bool{true, false, true, false}, d+2, d+1, d+3, d+2)
	c.see(uid, []bool{false}, d) // long past
	c.see(uid, []bool{true, true, false, false}, d+90, d+89, d+90, d+3)
}

func firstOfUsers(c *daysCase) {
	sightings := make([]history.Sighting, 200)
	for i := range sightings {
		sightings[i] = history.Sighting{UID: c.user(), Day: c.today}
	}
	for _, want := range []bool{true, false} {
		for i, s := range c.See(c.Context(), sightings) {
			if s.Err != nil || s.First != want {
				c.Errorf("%s: got %+v, want first %t", sightings[i].UID, s, want)
			}
		}
	}
}

func firstOfCallers(c *daysCase) {
	uid := c.user()
	var firsts atomic.Int32
	var callers sync.WaitGroup
	for n := range 8 {
		callers.Go(func() {
			for i := range 20 {
				for _, s := range c.See(c.Context(), []history.Sighting{{UID: uid, Day: c.today + history.Day((n+i)%2)}}) {
					if s.Err != nil {
						c.Errorf("See: %v", s.Err)
					}
					if s.First {
						firsts.Add(1)
					}
				}
			}
		})
	}
	callers.Wait()
	if got := firsts.Load(); got != 2 {
		c.Errorf("of two days %d callers were told that it was the first time, want one each", got)
	}
	if got := c.pending(c.Context(), uid); len(got) != 2 {
		c.Errorf("pending: %+v, want two", got)
	}
}

// pendingFirsts tests the cycle of pending first sightings.
func pendingFirsts(c *daysCase) {
	uid := c.user()
	firsts := c.see(uid, []bool{true, true, false}, c.today, c.today+1, c.today)
	got := c.pending(c.Context(), uid)
	slices.SortFunc(got, func(a, b history.First) int { return int(a.Day - b.Day) })
	if !slices.Equal(got, firsts) {
		c.Errorf("pending: got %+v, want %+v", got, firsts)
	}
	for range 2 {
		if err := c.Announced(c.Context(), firsts[:1]); err != nil {
			c.Fatal(err)
		}
		if got := c.pending(c.Context(), uid); !slices.Equal(got, firsts[1:]) {
			c.Errorf("pending after one was announced: got %+v, want %+v", got, firsts[1:])
		}
	}
	c.see(uid, []bool{false, false}, c.today, c.today+1)
	if got := c.pending(c.Context(), uid); !slices.Equal(got, firsts[1:]) {
		c.Errorf("pending after they were seen again: got %+v, want %+v", got, firsts[1:])
	}
}

func pendingFirstsAge(c *daysCase) {
	uid := c.user()
	c.see(uid, []bool{true}, c.today)
	late, err := c.PendingFirsts(c.Context(), []history.Bucket{history.BucketOf(uid)}, time.Hour, math.MaxInt32)
	if err != nil || slices.ContainsFunc(late, func(f history.First) bool { return f.UID == uid }) {
		c.Errorf("pending for an hour: got %+v, %v", late, err)
	}
	other := (history.BucketOf(uid) + 1) % history.Buckets
	all, err := c.PendingFirsts(c.Context(), []history.Bucket{other}, -time.Hour, math.MaxInt32)
	if err != nil || slices.ContainsFunc(all, func(f history.First) bool { return f.UID == uid }) {
		c.Errorf("pending of another bucket: got %+v, %v", all, err)
	}
}

func pendingFirstsLimit(c *daysCase) {
	uid, other := c.user(), c.user()
	c.see(uid, []bool{true, true, true}, c.today, c.today-1, c.today-2)
	c.see(other, []bool{true}, c.today)
	buckets := []history.Bucket{history.BucketOf(uid), history.BucketOf(other)}
	for limit := range 4 {
		if got, err := c.PendingFirsts(c.Context(), buckets, -time.Hour, limit); err != nil || len(got) != limit {
			c.Errorf("pending, at most %d: got %+v, %v", limit, got, err)
		}
	}
}

func seeNobody(c *daysCase) {
	if got := c.See(c.Context(), nil); len(got) != 0 {
		c.Errorf("See of nobody: got %+v", got)
	}
	if err := c.Announced(c.Context(), nil); err != nil {
		c.Errorf("Announced of nothing: %v", err)
	}
	if got, err := c.PendingFirsts(c.Context(), nil, 0, 10); err != nil || len(got) != 0 {
		c.Errorf("PendingFirsts of no buckets: got %+v, %v", got, err)
	}
}
