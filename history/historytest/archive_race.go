package historytest

import (
	"sync"

	"github.com/playhead/playhead/history"
)

// concurrent has writers race for the same cells in opposite orders while readers
// look on: whatever a reader sees of a cell never gets older.
func (a archive) concurrent() {
	const writers, rounds = 8, 20
	uid, now := freshUID(), hourAgo()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for r := range rounds {
				if w%2 == 0 {
					r = rounds - 1 - r
				}
				a.put(cellsOf(uid, 10, now+int64(r*writers+w))...)
			}
		})
	}
	for range 2 {
		wg.Go(func() { a.neverOlder(uid, now, rounds) })
	}
	wg.Wait()
	a.wantRow(uid, cellsOf(uid, 10, now+rounds*writers-1))
}

func (a archive) neverOlder(uid string, now int64, rounds int) {
	var keys []history.Key
	for _, c := range cellsOf(uid, 10, now) {
		keys = append(keys, c.Key)
	}
	seen := make([]history.Version, len(keys))
	for range rounds {
		got, err := a.store.Get(a.t.Context(), keys)
		if err != nil {
			a.t.Errorf("get %s: %v", uid, err)
			return
		}
		for i, e := range got {
			r := e.Record
			if r == nil && seen[i] > 0 || r != nil && r.Version < seen[i] {
				a.t.Errorf("get %s: got %+v after version %d", keys[i], r, seen[i])
			} else if r != nil {
				seen[i] = r.Version
			}
		}
	}
}

// concurrentClear clears while puts from before and after the mark arrive.
func (a archive) concurrentClear() {
	const rounds = 20
	uid, now := freshUID(), hourAgo()
	cells, cleared := around(uid, now), map[uint32]int64{0: now, 2: now + 10}
	var wg sync.WaitGroup
	for _, typ := range []uint32{0, 2} {
		wg.Go(func() {
			for r := int64(rounds); r >= 0; r-- {
				if err := a.store.PutUser(a.t.Context(), uid, history.User{Cleared: map[uint32]int64{typ: cleared[typ] - r}}); err != nil {
					a.t.Errorf("clear %s: %v", uid, err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range rounds {
				a.put(cells...)
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			if _, err := a.store.Row(a.t.Context(), uid); err != nil {
				a.t.Errorf("row %s: %v", uid, err)
			}
		}
	})
	wg.Wait()
	a.wantCleared(uid, cells, cleared)
}
