package historytest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// OpenFeed opens a feed, possibly shared with others. end opens one process's end of it. t.Cleanup closes the
// feed and its ends.
type OpenFeed func(t *testing.T) (end func(t *testing.T) history.Feed)

// Feed tests the contract of [history.Feed].
func Feed(t *testing.T, open OpenFeed) {
	tests := map[string]func(feedCase){
		"everyone who follows hears":           feedCase.everyone,
		"a change keeps its parts":             feedCase.parts,
		"others hear nothing":                  feedCase.others,
		"who follows no more hears nothing":    feedCase.unfollowed,
		"who follows again hears":              feedCase.again,
		"every bucket can be followed":         feedCase.everyBucket,
		"a subscription that is closed is one": feedCase.closed,
		"nothing to announce":                  feedCase.nothing,
		"an interruption is told":              feedCase.interruption,
		"many goroutines":                      feedCase.concurrent,
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) { run(feedCase{t, open(t)}) })
	}
}

type feedCase struct {
	*testing.T
	end func(*testing.T) history.Feed
}

// listener is a subscription with the notices received for one test's users.
type listener struct {
	*testing.T
	history.Subscription

	mu      sync.Mutex
	changes []history.Change
	since   map[history.Bucket]int
}

func (c feedCase) listener(f history.Feed, buckets ...history.Bucket) *listener {
	e := &listener{T: c.T, since: make(map[history.Bucket]int)}
	e.Subscription = f.Subscribe(e.handle)
	c.Cleanup(func() { _ = e.Close() })
	for _, b := range buckets {
		e.Follow(b)
	}
	for _, b := range buckets {
		e.await(fmt.Sprint("the start of bucket ", b), func() bool { return e.since[b] > 0 })
	}
	return e
}

func (e *listener) handle(n history.Notice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.changes = append(e.changes, n.Changes...)
	for _, b := range n.Joined {
		e.since[b]++
	}
}

func (e *listener) await(what string, done func() bool) {
	e.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		ok := done()
		e.mu.Unlock()
		if ok {
			return
		}
		if time.Since(began) > patience {
			e.Fatalf("%s did not come; received %v", what, e.changes)
		}
	}
}

func (e *listener) awaitAll(changes ...history.Change) {
	e.Helper()
	e.await(fmt.Sprint(changes), func() bool {
		return !slices.ContainsFunc(changes, func(c history.Change) bool { return !slices.Contains(e.changes, c) })
	})
}

// starts returns the number of joins of a bucket.
func (e *listener) starts(b history.Bucket) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since[b]
}

func (e *listener) has(c history.Change) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.changes, c)
}

func (e *listener) received(uid string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.changes, func(c history.Change) bool { return c.Key.UID == uid })
}

func (c feedCase) announce(f history.Feed, changes ...history.Change) {
	c.Helper()
	if err := f.Announce(c.Context(), changes); err != nil {
		c.Fatalf("Announce(%v): %v", changes, err)
	}
}

// reach announces a change until it is received, again after each join, before which it may be lost. The first
// of several joins need not belong to the last Follow.
func (c feedCase) reach(e *listener, f history.Feed, change history.Change) {
	c.Helper()
	b := bucketOf(change)
	for !e.has(change) {
		began := e.starts(b)
		c.announce(f, change)
		e.await(fmt.Sprint(change), func() bool { return slices.Contains(e.changes, change) || e.since[b] > began })
	}
}

// someone returns a change of a new user.
func someone() history.Change {
	return history.Change{Key: history.Key{UID: fmt.Sprintf("é/%%:|%x", rand.Uint64()), Object: history.Object{ID: "1", Type: 1}}}
}

func bucketOf(c history.Change) history.Bucket { return history.BucketOf(c.Key.UID) }

func (c feedCase) everyone() {
	here, there, change := c.end(c.T), c.end(c.T), someone()
	a, b := c.listener(here, bucketOf(change)), c.listener(there, bucketOf(change))
	c.announce(here, change)
	a.awaitAll(change)
	b.awaitAll(change)
}

func (c feedCase) parts() {
	f, one := c.end(c.T), someone()
	one.Origin = 1 << 63
	other := history.Change{Key: history.Key{UID: one.Key.UID, Object: history.Object{ID: "/é#%a:b_c", Type: 1<<32 - 1}}}
	all := history.Change{Key: history.UserKey(someone().Key.UID), Origin: 7}
	e := c.listener(f, bucketOf(one), bucketOf(all))
	c.announce(f, one, other, all)
	e.awaitAll(one, other, all)
}

func (c feedCase) others() {
	f, change, other := c.end(c.T), someone(), someone()
	for bucketOf(other) == bucketOf(change) {
		other = someone()
	}
	e := c.listener(f, bucketOf(change))
	c.announce(f, other)
	c.announce(f, change)
	e.awaitAll(change)
	if e.received(other.Key.UID) {
		c.Errorf("received %v, which is of another bucket", other)
	}
}

func (c feedCase) unfollowed() {
	f, change, last := c.end(c.T), someone(), someone()
	e := c.listener(f, bucketOf(change))
	e.Unfollow(bucketOf(change))
	for bucketOf(last) == bucketOf(change) {
		last = someone()
	}
	e.Follow(bucketOf(last))
	e.await("the start of another bucket", func() bool { return e.since[bucketOf(last)] > 0 })
	for began := time.Now(); ; { // Unfollow is not ordered with Follow: some changes may still arrive
		change.Origin, last.Origin = change.Origin+1, last.Origin+1
		c.announce(f, change, last)
		e.awaitAll(last)
		if !e.has(change) {
			return
		}
		if time.Since(began) > patience {
			c.Fatalf("received %v, which is not followed any more", change)
		}
	}
}

func (c feedCase) again() {
	f, change := c.end(c.T), someone()
	b := bucketOf(change)
	e := c.listener(f, b)
	began := e.starts(b)
	for range 10 {
		e.Unfollow(b)
		e.Follow(b)
	}
	e.await("the new start", func() bool { return e.since[b] > began })
	c.reach(e, f, change)
}

func (c feedCase) everyBucket() {
	f := c.end(c.T)
	e := c.listener(f, history.AllBuckets()...)
	one := make(map[history.Bucket]history.Change)
	for len(one) < history.Buckets {
		change := someone()
		one[bucketOf(change)] = change
	}
	changes := slices.Collect(maps.Values(one))
	c.announce(f, changes...)
	e.awaitAll(changes...)
}

func (c feedCase) closed() {
	f, change := c.end(c.T), someone()
	e, left := c.listener(f, bucketOf(change)), c.listener(f, bucketOf(change))
	if err := e.Close(); err != nil {
		c.Fatal(err)
	}
	e.Follow(bucketOf(someone()))
	c.announce(f, change)
	left.awaitAll(change)
	if e.received(change.Key.UID) {
		c.Errorf("received %v after Close", change)
	}
}

func (c feedCase) nothing() { c.announce(c.end(c.T)) }

func (c feedCase) interruption() {
	f, change, other := c.end(c.T), someone(), someone()
	for bucketOf(other) == bucketOf(change) {
		other = someone()
	}
	e := c.listener(c.end(c.T), bucketOf(change))
	before := e.times(bucketOf(change))
	if err := f.Interrupt(c.Context(), []history.Bucket{bucketOf(other), bucketOf(change)}); err != nil {
		c.Fatal(err)
	}
	e.await("the interruption", func() bool { return e.since[bucketOf(change)] > before })
	if e.times(bucketOf(other)) > 0 {
		c.Error("received a change of an unwatched bucket")
	}
}

// times returns the number of joins of a bucket.
func (e *listener) times(b history.Bucket) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since[b]
}

func (c feedCase) concurrent() {
	f, change := c.end(c.T), someone()
	e := c.listener(f, bucketOf(change))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			b := bucketOf(someone())
			for b == bucketOf(change) {
				b = bucketOf(someone())
			}
			for range 50 {
				e.Follow(b)
				_ = f.Announce(c.Context(), []history.Change{someone(), change}) // the one below reports errors
				e.Unfollow(b)
			}
		})
	}
	all.Wait()
	last := change
	last.Origin = 1 // distinct from earlier ones
	c.announce(f, last)
	e.awaitAll(last)
}
