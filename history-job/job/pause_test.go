package job_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
)

// pause switches recording, ms milliseconds after start.
func (w *world) pause(recording bool, ms int64) history.Key {
	w.Helper()
	k := history.UserKey(uid)
	p := w.cache.Load(w.Context(), []history.Key{k})[0].User.Pause
	if err := w.cache.Pause(w.Context(), uid, p, p.Switched(recording, start+ms, 0)); err != nil {
		w.Fatal(err)
	}
	return k
}

func TestPauseArchived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.start(w.config())() //nolint:errcheck // TestOrder looks at it
		w.announce(w.write(progress(1, -1000)), w.pause(false, 100))
		synctest.Wait()
		row, err := w.archive.Row(t.Context(), uid)
		if err != nil || row.Pause != (history.Pause{Since: start + 100}) || len(row.Items) != 1 {
			t.Errorf("archive: got %+v, %v; want the pause and the record", row, err)
		}
		w.announce(w.pause(true, 200))
		synctest.Wait()
		row, err = w.archive.Row(t.Context(), uid)
		if err != nil || row.Pause != (history.Pause{Since: start + 100, Until: start + 200}) {
			t.Errorf("archive: got %+v, %v; want the end of the pause", row, err)
		}
		w.settled(object(1), history.UserKey(uid))
	})
}

// TestPauseRepaired has a cache come back without what a user decided.
func TestPauseRepaired(t *testing.T) {
	for name, tt := range map[string]struct{ has, archived, want history.Pause }{
		"lost the pause":            {history.Pause{}, history.Pause{Since: 100}, history.Pause{Since: 100}},
		"lost its end":              {history.Pause{Since: 100}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"lost both":                 {history.Pause{}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"lost an end and the next":  {history.Pause{Since: 100}, history.Pause{Since: 300}, history.Pause{Since: 300}},
		"lost all but an older one": {history.Pause{Since: 1, Until: 2}, history.Pause{Since: 300, Until: 400}, history.Pause{Since: 300, Until: 400}},
		"lost nothing":              {history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 100, Until: 200}},
		"knows more":                {history.Pause{Since: 300}, history.Pause{Since: 100, Until: 200}, history.Pause{Since: 300}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { repairPause(t, tt.has, tt.archived, tt.want) })
		})
	}
}

func repairPause(t *testing.T, has, archived, want history.Pause) {
	w := newWorld(t)
	m, cfg := w.mortal()
	defer w.start(cfg)()           //nolint:errcheck // TestOrder looks at it
	w.announce(w.clear(uid, 7, 0)) // has the job remember the user
	w.wait(time.Second)
	if err := w.archive.PutUser(t.Context(), uid, history.User{Pause: archived}); err != nil {
		t.Fatal(err)
	}
	if err := m.older.Warm(t.Context(), uid, history.WarmSet{Pause: has}); err != nil {
		t.Fatal(err)
	}
	m.restart(true)
	w.wait(2 * time.Second)
	e := w.cache.Load(t.Context(), []history.Key{history.UserKey(uid)})[0]
	if e.Err != nil || e.User.Pause != want {
		t.Errorf("cache: got %+v, %v; want %+v", e.User.Pause, e.Err, want)
	}
}
