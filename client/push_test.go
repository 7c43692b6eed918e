package client_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/client"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Watch tells whoever connects to read again, as the service does.
func (w *world) Watch(_ string, id uint64, tell func(*historyv1.Change)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tells == nil {
		w.tells = make(map[uint64]func(*historyv1.Change))
	}
	w.tells[id] = tell
	go func(after time.Duration) {
		time.Sleep(after) // of the bubble
		tell(&historyv1.Change{Resync: true})
	}(w.telling)
}

// Unwatch implements [ws.Changes].
func (w *world) Unwatch(_ string, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tells, id)
}

// change has all connections told that an object is gone.
func (w *world) change(id string) {
	w.tell(&historyv1.Change{Removed: []*historyv1.Object{{Id: id, Type: 1}}})
}

func (w *world) tell(c *historyv1.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tell := range w.tells {
		tell(c)
	}
}

// Pushes come between answers, and after every connection one that says to read again.
func TestChanges(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	changed := func(c *historyv1.Change) {
		mu.Lock()
		defer mu.Unlock()
		if c.Resync {
			heard = append(heard, "resync")
		}
		for _, o := range c.Removed {
			heard = append(heard, o.Id)
		}
	}
	bubble(t, client.Config{Changed: changed}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		w.change("a")
		w.report("1", "2")
		w.change("b")
		w.flush(time.Second)
		synctest.Wait() // for what was told to arrive
		w.door.Cut()
		time.Sleep(time.Second) // of the bubble
		w.change("c")
		synctest.Wait()
		if err := stop(); err != nil {
			w.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"resync", "a", "b", "resync", "c"}; !slices.Equal(heard, want) || len(w.answered) != 2 {
			w.Errorf("heard %v, want %v; answered %v", heard, want, w.answered)
		}
	})
}

func TestNobodyToTell(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		if len(w.tells) != 0 {
			w.Errorf("asked for changes that nobody wants")
		}
		_ = stop()
	})
}
