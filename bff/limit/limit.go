// Package limit rate-limits users. One who sends without pause must wait; others are unaffected.
package limit

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// Users has a token bucket per user, initially full. It is safe for concurrent use.
type Users struct {
	mu          sync.Mutex
	rate, burst float64
	// An untouched bucket refills within a known time. Buckets untouched since the last swap are dropped at the
	// next one, which is at least that much later.
	now, before map[string]bucket
	swapped     time.Time
}

// bucket is a balance at a time. A negative one is debt.
type bucket struct {
	left float64
	at   time.Time
}

// Budget is a user's remaining rate limit.
type Budget struct {
	// Limit is the burst, Left the remaining requests.
	Limit, Left int
	// Reset is the time until the bucket is full.
	Reset time.Duration
}

// Exceeded is the error for a user over the limit.
type Exceeded struct {
	Budget
	// Wait is the time until the next request.
	Wait time.Duration
}

// Error includes the wait.
func (e *Exceeded) Error() string { return fmt.Sprintf("too many requests, wait %v", e.Wait) }

// New returns buckets with a rate per second (default 10) and a burst (default 60, at least 1).
func New(rate, burst float64) *Users {
	return &Users{rate: run.Default(rate, 10), burst: max(run.Default(burst, 60), 1), now: make(map[string]bucket)}
}

// Set changes rate and burst, as in New. Users over the new burst fall to it.
func (u *Users) Set(rate, burst float64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rate, u.burst = run.Default(rate, 10), max(run.Default(burst, 60), 1)
}

// Take charges cost, or fails with [Exceeded] if less than one request remains. An expensive request may go up
// to one burst into debt, which delays later ones.
func (u *Users) Take(uid string, cost float64) (Budget, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	b := u.find(uid)
	if b.left < 1 {
		return u.budget(b), &Exceeded{Budget: u.budget(b), Wait: u.until(1, b)}
	}
	return u.budget(u.spend(uid, b, cost)), nil
}

// Spend charges an additional cost of an admitted request. It may create debt, as in Take.
func (u *Users) Spend(uid string, cost float64) Budget {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.budget(u.spend(uid, u.find(uid), cost))
}

// spend limits debt to one burst, which bounds the time to refill.
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

// until returns the time in which a bucket refills to level.
func (u *Users) until(level float64, b bucket) time.Duration {
	return time.Duration(max(level-b.left, 0) / u.rate * float64(time.Second))
}

func (u *Users) budget(b bucket) Budget {
	return Budget{Limit: int(u.burst), Left: max(int(math.Floor(b.left)), 0), Reset: u.until(u.burst, b)}
}
