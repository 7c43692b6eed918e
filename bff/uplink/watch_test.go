package uplink_test

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestWatch(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		tv := listening(c, "u1", 1)
		tv.hears(t, "resync")
		phone, other := listening(c, "u1", 2), listening(c, "u2", 3)
		tv.hears(t)
		phone.hears(t, "resync")
		other.hears(t, "resync")
		i.desk.tell(t, film("u1", 1, 1), film("u1", 2, 0), &historyv1.Change{Uid: "u1", Origin: 2, Removed: []*historyv1.Object{{Id: "book"}}}, film("x", 1, 0))
		tv.hears(t, "film@2", "-book")
		phone.hears(t, "film@1", "film@2")
		other.hears(t)
		i.desk.tell(t, &historyv1.Change{Uid: "u1", Resync: true})
		tv.hears(t, "resync")
		phone.hears(t, "resync")
		c.Unwatch("u1", 1)
		c.Unwatch("u2", 3)
		c.Unwatch("u3", 3)
		rest()
		if got := i.desk.watched(); !reflect.DeepEqual(got, map[string][]uint64{"u1": {2}}) {
			t.Errorf("the instance was told to watch %v", got)
		}
		i.desk.tell(t, film("u1", 3, 0))
		tv.hears(t)
		phone.hears(t, "film@3")
	})
}

// A broken stream is reopened with all its watchers, who then resync.
func TestAWatchThatBreaks(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		tv := listening(c, "u1", 1)
		tv.hears(t, "resync")
		i.desk.mu.Lock()
		i.desk.deaf = true
		close(i.desk.broken)
		i.desk.mu.Unlock()
		time.Sleep(time.Minute) // virtual time
		tv.hears(t)
		phone := listening(c, "u1", 2)
		i.desk.mu.Lock()
		if n := i.desk.streams; n < 12 || n > 30 {
			t.Errorf("%d streams in a minute", n)
		}
		i.desk.deaf = false
		i.desk.mu.Unlock()
		time.Sleep(6 * time.Second) // virtual time
		tv.hears(t, "resync")
		phone.hears(t, "resync")
		if got := i.desk.watched(); !reflect.DeepEqual(got, map[string][]uint64{"u1": {1, 2}}) {
			t.Errorf("the instance was told to watch %v", got)
		}
	})
}

// Watchers follow their users' calls to another instance.
func TestWatchersMove(t *testing.T) {
	const n = 100
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var devices []*device
		for k := range n {
			devices = append(devices, listening(c, fmt.Sprint("u", k), uint64(k+1)))
		}
		rest()
		first, second := len(all[0].desk.watched()), len(all[1].desk.watched())
		if first < n/4 || second < n/4 || first+second != n {
			t.Errorf("%d and %d users", first, second)
		}
		all[0].health.Shutdown() // as in a drain
		time.Sleep(time.Second)  // virtual time
		if got := len(all[1].desk.watched()); got != n {
			t.Errorf("%d users when the other one has left, want %d", got, n)
		}
		all[0].health.Resume()
		time.Sleep(10 * time.Second) // virtual time
		if got := len(all[0].desk.watched()); got != first || len(all[1].desk.watched()) != second {
			t.Errorf("%d and %d users when it is back, want %d and %d", got, len(all[1].desk.watched()), first, second)
		}
		moved := 0
		for _, d := range devices {
			switch len(d.take()) {
			case 1: // initially
			case 3:
				moved++
			default:
				t.Errorf("%s was told %v", d.uid, d.heard)
			}
		}
		if moved != first {
			t.Errorf("%d were told that they moved there and back, want %d", moved, first)
		}
	})
}

func TestWatchBeforeAnInstanceIsUp(t *testing.T) {
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		i.health.Shutdown()
		synctest.Wait()
		tv := listening(c, "u1", 1)
		tv.hears(t)
		i.health.Resume()
		time.Sleep(time.Second) // virtual time
		tv.hears(t, "resync")
	})
}

// Many watchers are registered in chunks, over a while.
func TestManyWatchersComeInParts(t *testing.T) {
	const n = 20_000
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		var mu sync.Mutex
		heard := 0
		for k := range n {
			c.Watch(fmt.Sprint("u", k), 1, func(*historyv1.Change) {
				mu.Lock()
				defer mu.Unlock()
				heard++
			})
		}
		at := func(d time.Duration) int {
			time.Sleep(d) // virtual time
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return heard
		}
		if early, late := at(time.Second), at(2*time.Second); early < n/4 || early > n*3/4 || late != n || i.desk.largest > 1000 {
			t.Errorf("%d after a second, %d after three, %d at once", early, late, i.desk.largest)
		}
	})
}

// A watching device costs the edge a few hundred bytes.
func TestWatchersAreSmall(t *testing.T) {
	const n, limit = 20_000, 600
	bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
		uids := users(n)
		before := memory()
		for k, uid := range uids {
			c.Watch(uid, uint64(k+1), func(*historyv1.Change) {})
		}
		time.Sleep(5 * time.Second) // virtual time
		i.desk.mu.Lock()
		known := len(i.desk.users)
		i.desk.users = nil // owned by the instance
		i.desk.mu.Unlock()
		got := (memory() - before) / n
		t.Logf("%d bytes for each of %d users who are watched", got, known)
		if got > limit || known != n {
			t.Errorf("%d bytes for each of %d users, want at most %d", got, known, limit)
		}
		runtime.KeepAlive(uids)
	})
}

func memory() int {
	runtime.GC()
	runtime.GC() // the first one only empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

func TestWatchersAtOnce(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		var devices sync.WaitGroup
		for k := range 8 {
			devices.Go(func() {
				for n := range 100 {
					uid := fmt.Sprint("u", n%10)
					c.Watch(uid, uint64(k+1), func(*historyv1.Change) {})
					c.Unwatch(uid, uint64(k+1))
				}
			})
		}
		devices.Wait()
		synctest.Wait()
		time.Sleep(time.Second) // virtual time
		if a, b := all[0].desk.watched(), all[1].desk.watched(); len(a)+len(b) > 0 {
			t.Errorf("left over: %v and %v", a, b)
		}
	})
}
