// Package limit gives each user a budget of requests, so that one who sends without pause
// is told to wait, and the others do not notice.
package limit

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// Users has a bucket for each user, which fills at a rate and is full at the start. Its
// methods may be called from many goroutines.
type Users struct {
	rate, burst float64

	mu sync.Mutex
	// A bucket that nobody touches is full after a time. So those that were not since
	// the maps were swapped are forgotten at the next swap, that time later at the soonest.
	now, before map[string]bucket
	swapped     time.Time
}

// bucket is what was left at a time. Less than nothing was lent.
type bucket struct {
	left float64
	at   time.Time
}

// Budget is what a user has left.
type Budget struct {
	// Limit is how many requests may come at once, Left how many of them still may.
	Limit, Left int
	// Reset is when all may again.
	Reset time.Duration
}

// Exceeded is the error for a user with nothing left.
type Exceeded struct {
	Budget
	// Wait is after how long there is something again.
	Wait time.Duration
}

// Error says how long to wait.
func (e *Exceeded) Error() string { return fmt.Sprintf("too many requests, wait %v", e.Wait) }

// New returns budgets that fill at a rate per second (default 10) up to a burst (default
// 60, at least 1).
func New(rate, burst float64) *Users {
	return &Users{rate: run.Default(rate, 10), burst: max(run.Default(burst, 60), 1), now: make(map[string]bucket)}
}

// Take takes what a request costs, or fails with [Exceeded] when not even one is left. It
// lends what an expensive one lacks, a burst at most, and those after it wait for that.
func (u *Users) Take(uid string, cost float64) (Budget, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.find(uid)
	if b.left < 1 {
		return u.budget(b), &Exceeded{Budget: u.budget(b), Wait: u.until(1, b)}
	}
	return u.budget(u.spend(uid, b, cost)), nil
}

// Spend takes what a request turned out to cost beyond what was taken for it, and lends
// what is lacking, as Take does.
func (u *Users) Spend(uid string, cost float64) Budget {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.budget(u.spend(uid, u.find(uid), cost))
}

// spend lends a burst at most, so that it is known when a bucket is full again.
func (u *Users) spend(uid string, b bucket, cost float64) bucket {
	b.left = max(b.left-cost, -u.burst)
	u.now[uid] = b
	return b
}

func (u *Users) find(uid string) bucket {
	now := time.Now()
	if now.Sub(u.swapped) > u.until(u.burst, bucket{left: -u.burst}) {
		u.now, u.before, u.swapped = make(map[string]bucket), u.now, now
	}
	b, ok := u.now[uid]
	if !ok {
		b, ok = u.before[uid]
	}
	if !ok {
		return bucket{u.burst, now}
	}
	return bucket{min(u.burst, b.left+now.Sub(b.at).Seconds()*u.rate), now}
}

// until is how long a bucket takes to fill up to a level.
func (u *Users) until(level float64, b bucket) time.Duration {
	return time.Duration(max(level-b.left, 0) / u.rate * float64(time.Second))
}

func (u *Users) budget(b bucket) Budget {
	return Budget{Limit: int(u.burst), Left: max(int(math.Floor(b.left)), 0), Reset: u.until(u.burst, b)}
}
