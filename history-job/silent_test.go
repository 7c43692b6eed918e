package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
)

// An unresponsive shard of a store stops the archiving of its own keys only, however long it lasts.

// promoted expects every given key to be archived as cached.
func (w *world) promoted(keys ...history.Key) {
	w.Helper()
	for _, k := range keys {
		if r := w.load(k); !r.Clean() || !history.Same(w.archived(k), r) {
			w.Errorf("%s: the cache has %+v, the archive %+v", k, r, w.archived(k))
		}
	}
}

// alone runs a job that sweeps all buckets every 10 s because the queue is down.
func (w *world) alone(dead archive.DeadLetters) {
	cfg := w.config()
	cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
	cfg.recovery.Consumer, cfg.archive.Dead = idle{}, dead
	w.runs(cfg)
}

// TestDeadLettersAreAway rejects one cell permanently while the dead letters are down. The sweep continues
// with the others, and marks that one clean once its letter is stored.
func TestDeadLettersAreAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		w.cell = func(c history.Cell) error {
			if c.Key == object(2) {
				return history.ErrPermanent
			}
			return nil
		}
		w.on("dead_letter", func(context.Context) error { return errDown })
		w.writes(3)
		w.alone(g)
		w.wait(5 * time.Minute)
		w.promoted(object(0), object(1))
		later := w.write(progress(7, 0))
		w.wait(5 * time.Minute)
		w.promoted(later)
		w.marked(object(2))
		w.on("dead_letter", nil)
		w.wait(time.Minute)
		if left := w.marks(); len(left) > 0 {
			t.Errorf("marks %v are left, want none", left)
		}
		if len(g.letters) != 1 || g.letters[0].Key != object(2) || g.letters[0].Record == nil {
			t.Errorf("dead letters: %+v, want object 2 with its record", g.letters)
		}
	})
}

// TestDamagedCellWithoutALetter has a partial record over a damaged cell while the dead letters are down.
// The job does not overwrite the damaged bytes, and archives all other keys.
func TestDamagedCellWithoutALetter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		w.on("dead_letter", func(context.Context) error { return errDown })
		for i := range 3 {
			w.put(object(i), record(completed(i, -9000, "a")))
			w.store(progress(i, 0), true, true)
		}
		w.unreadable = object(2)
		w.alone(g)
		w.wait(5 * time.Minute)
		w.promoted(object(0), object(1))
		w.marked(object(2))
		if got := w.archived(object(2)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want the cell untouched", got)
		}
		w.on("dead_letter", nil)
		w.wait(time.Minute)
		w.clean(object(2))
		if len(g.letters) != 1 {
			t.Errorf("dead letters: %+v, want one", g.letters)
		}
	})
}

// TestPutOfASilentPart has an archive shard that accepts no cells, with other keys or alone in its message.
func TestPutOfASilentPart(t *testing.T) {
	for name, at := range map[string]func(w *world, keys []history.Key){
		"in one message": func(w *world, keys []history.Key) { w.announce(keys...) },
		"in a message for each": func(w *world, keys []history.Key) {
			for _, k := range keys {
				w.announce(k)
				w.wait(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				var back atomic.Bool
				w.cell = func(c history.Cell) error {
					if c.Key == object(0) && !back.Load() {
						return errDown
					}
					return nil
				}
				w.sweeping()
				at(w, w.writes(4))
				w.wait(3 * time.Minute)
				w.promoted(object(1), object(2), object(3))
				w.marked(object(0))
				w.comesBack(&back, object(0))
			})
		})
	}
}

// comesBack keeps a shard silent while others are archived, until it is back and its key is clean.
func (w *world) comesBack(back *atomic.Bool, silent history.Key) {
	w.Helper()
	w.wait(10 * time.Minute)
	later := w.write(progress(7, 0))
	w.announce(later)
	w.wait(3 * time.Minute)
	w.promoted(later)
	back.Store(true)
	w.wait(5 * time.Minute)
	w.clean(silent)
}

// TestGetFromASilentPart has an unreadable archive shard: one of its keys fails the whole batch.
func TestGetFromASilentPart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var back atomic.Bool
		var keys []history.Key
		for i := range 4 {
			w.put(object(i), record(completed(i, -9000, "a")))
			keys = append(keys, w.store(progress(i, 0), true, true))
		}
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
		cfg.archive.Archive = silentGet{spyArchive{w.archive, w}, object(0), &back}
		w.runs(cfg)
		w.announce(keys...)
		w.wait(3 * time.Minute)
		w.promoted(object(1), object(2), object(3))
		w.marked(object(0))
		if got := w.archived(object(0)); got.Plays() != 1 || got.Version.Time() == start {
			t.Errorf("archive: got %+v, want nothing put without what it has", got)
		}
		back.Store(true)
		w.wait(5 * time.Minute)
		w.clean(object(0))
		if got := w.archived(object(0)); got.Plays() != 1 || got.Version.Time() != start {
			t.Errorf("archive: got %+v, want the play and the progress", got)
		}
	})
}

// silentGet is an archive with one unreadable key.
type silentGet struct {
	spyArchive
	key  history.Key
	back *atomic.Bool
}

func (a silentGet) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if slices.Contains(keys, a.key) && !a.back.Load() {
		return nil, errDown
	}
	return a.spyArchive.Get(ctx, keys)
}

// TestUserOfASilentPart has an archive shard that accepts no clear marks of one user.
func TestUserOfASilentPart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var back atomic.Bool
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
		cfg.archive.Archive = silentUser{spyArchive{w.archive, w}, &back}
		w.runs(cfg)
		silent, other := w.clear("silent", 0, 0), w.clear("other", 0, 0)
		w.announce(append(w.writes(2), silent, other)...)
		w.wait(8 * time.Minute) // more than twenty attempts; the job then puts the silent user's clear separately
		w.promoted(object(0), object(1))
		if got := w.marks(); !slices.Equal(got, []history.Key{silent}) {
			t.Errorf("marks: got %v, want that of the silent user alone", got)
		}
		w.wait(10 * time.Minute)
		back.Store(true)
		w.wait(5 * time.Minute)
		if got := w.marks(); len(got) != 0 {
			t.Errorf("marks: got %v, want none", got)
		}
		page, err := w.archive.Page(t.Context(), "silent", history.Query{})
		if err != nil || page.User.Cleared[0] != start {
			t.Errorf("archive: got %+v, %v, want the clear mark", page.User, err)
		}
	})
}

type silentUser struct {
	spyArchive
	back *atomic.Bool
}

func (a silentUser) PutUser(ctx context.Context, uid string, u history.User) error {
	if uid == "silent" && !a.back.Load() {
		<-ctx.Done()
		return errDown
	}
	return a.spyArchive.PutUser(ctx, uid, u)
}

// TestMarkOfWhatIsClean has a mark on a clean content, left by a server that lost its last step. The sweep
// removes it.
func TestMarkOfWhatIsClean(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		k := w.write(progress(1, 0))
		if err := w.cache.MarkClean(t.Context(), []history.Content{{Key: k, Revision: w.load(k).Revision}}); err != nil {
			t.Fatal(err)
		}
		marked := &markedOnce{Cache: w.cache, key: k}
		w.cache = marked
		w.sweeping()
		w.wait(time.Minute)
		if !marked.gone {
			t.Error("the mark stands")
		}
	})
}

// markedOnce is a cache that reports a key overdue until a mark clean of its current content.
type markedOnce struct {
	Cache
	key history.Key

	mu   sync.Mutex
	gone bool
}

func (m *markedOnce) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	keys, err := m.Cache.Overdue(ctx, buckets, age, limit)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.gone {
		keys = append(keys, m.key)
	}
	return keys, err
}

func (m *markedOnce) MarkClean(ctx context.Context, contents []history.Content) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range contents {
		if e := m.Load(ctx, []history.Key{c.Key})[0]; c.Key == m.key && history.SameContent(e.Record.Revision, c.Revision) {
			m.gone = true
		}
	}
	return m.Cache.MarkClean(ctx, contents)
}

// TestSweepThatLeftOut: a sweep that skipped keys does not count as complete. When the cache is lost, the
// job rereads the queue from before it.
func TestSweepThatLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg, queue := w.rereading()
		var back atomic.Bool
		w.cell = func(c history.Cell) error {
			if c.Key == object(1) && !back.Load() {
				return errDown
			}
			return nil
		}
		w.runs(cfg)
		w.wait(time.Second)
		said := completed(1, 0, "a")
		w.write(said)
		queue.add(object(1), said.Record())
		for i := range 30 { // the archive answers for others
			w.wait(time.Minute)
			w.write(progress(10+i%3, int64(i)))
		}
		m.restart(true)
		back.Store(true)
		w.wait(10 * time.Minute)
		if got := w.archived(object(1)); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// TestQueueIsAwayWhileTheCacheDiesTwice: the job cannot reread the queue after the first epoch, and still
// notices the third.
func TestQueueIsAwayWhileTheCacheDiesTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		queue := &absentJournal{}
		cfg.recovery.Queue, cfg.archive.SweepAge, cfg.archive.SweepEvery, cfg.recovery.Consumer = queue, 4*time.Minute, 10*time.Second, idle{}
		w.runs(cfg)
		w.wait(time.Second)
		queue.away.Store(true)
		for range 2 {
			m.restart(false)
			w.wait(10 * time.Second)
		}
		k := w.write(progress(1, 0))
		w.wait(5 * time.Minute)
		w.clean(k)
		said := completed(2, 0, "a")
		queue.add(object(2), said.Record())
		queue.away.Store(false)
		w.wait(time.Minute)
		if got := w.load(object(2)); got == nil {
			t.Error("the cache lacks what was queued")
		}
	})
}

// absentJournal is a queue that may be down.
type absentJournal struct {
	sinceJournal
	away atomic.Bool
}

func (j *absentJournal) CommitMetadata(ctx context.Context) ([]string, error) {
	if j.away.Load() {
		return nil, errDown
	}
	return j.sinceJournal.CommitMetadata(ctx)
}

func (j *absentJournal) Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	if j.away.Load() {
		return errDown
	}
	return j.sinceJournal.Reread(ctx, buckets, since, use)
}

// TestRepairBesideADamagedCell compares an older cache with an archive that has one damaged cell. Even
// while the dead letters are down, the others are restored and archiving continues.
func TestRepairBesideADamagedCell(t *testing.T) {
	for name, away := range map[string]bool{"kept": false, "away": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m, cfg := w.mortal()
				g := &deadLetters{world: w}
				cfg.archive.Dead = g
				if away {
					w.on("dead_letter", func(context.Context) error { return errDown })
				}
				w.runs(cfg)
				w.announce(w.writes(3)...)
				w.wait(time.Second)
				m.remember(w, false)
				w.unreadable = object(1)
				m.restart(true)
				w.wait(time.Minute)
				if w.load(object(0)) == nil || w.load(object(2)) == nil || w.load(object(1)) != nil {
					t.Error("the cache has not what the archive has")
				}
				if kept := len(g.letters) > 0; kept == away {
					t.Errorf("dead letters: %+v", g.letters)
				}
				later := w.write(progress(7, 0))
				w.announce(later)
				w.wait(time.Minute)
				w.promoted(later)
			})
		})
	}
}

// silentUsers is the shard of the users called silent, down until back is set.
type silentUsers struct{ back atomic.Bool }

func (s *silentUsers) among(keys []history.Key) bool {
	return !s.back.Load() && slices.ContainsFunc(keys, func(k history.Key) bool { return strings.HasPrefix(k.UID, "silent") })
}

// silentCache is a cache with a shard that accepts no writes, and may be readable.
type silentCache struct {
	spyCache
	part  *silentUsers
	reads bool
}

func (c silentCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	entries := c.spyCache.Load(ctx, keys)
	for i := range keys {
		if !c.reads && c.part.among(keys[i:i+1]) {
			entries[i] = history.Entry{Err: errDown}
		}
	}
	return entries
}

func (c silentCache) Write(ctx context.Context, writes []history.Write) []history.Outcome {
	outcomes := make([]history.Outcome, len(writes))
	for i := range writes {
		if c.part.among([]history.Key{writes[i].Key}) {
			outcomes[i].Err = errDown
		} else {
			outcomes[i] = c.spyCache.Write(ctx, writes[i:i+1])[0]
		}
	}
	return outcomes
}

type silentArchive struct {
	spyArchive
	part *silentUsers
}

func (a silentArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if a.part.among(keys) {
		return nil, errDown
	}
	return a.spyArchive.Get(ctx, keys)
}

func (a silentArchive) Put(ctx context.Context, cells []history.Cell) []error {
	errs := make([]error, len(cells))
	for i := range cells {
		if errs[i] = errDown; !a.part.among([]history.Key{cells[i].Key}) {
			errs[i] = errors.Join(a.spyArchive.Put(ctx, cells[i:i+1])...)
		}
	}
	return errs
}

func (a silentArchive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if a.part.among([]history.Key{history.UserKey(uid)}) {
		return history.Page{}, errDown
	}
	return a.spyArchive.Page(ctx, uid, q)
}

var silentObject = history.Key{UID: "silent", Object: object(1).Object}

// TestQueuedForASilentPart has queued contents for an unresponsive shard. Later messages are archived but
// not committed. The contents are restored once the shard answers.
func TestQueuedForASilentPart(t *testing.T) {
	for name, store := range map[string]func(w *world, part *silentUsers, cfg *config){
		"cache": func(w *world, part *silentUsers, cfg *config) {
			cfg.archive.Cache = silentCache{spyCache{w.cache, w}, part, false}
		},
		"writes of the cache": func(w *world, part *silentUsers, cfg *config) {
			cfg.archive.Cache = silentCache{spyCache{w.cache, w}, part, true}
		},
		"archive": func(w *world, part *silentUsers, cfg *config) {
			cfg.archive.Archive = silentArchive{spyArchive{w.archive, w}, part}
		},
	} {
		for in, alone := range map[string]bool{"alone": true, "beside others": false} {
			t.Run(name+", "+in, func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					part := new(silentUsers)
					cfg := w.config()
					store(w, part, &cfg)
					w.runs(cfg)
					e := completed(1, -5000, "a")
					said := e.Record()
					all := []history.Announcement{{Key: silentObject, Record: said}}
					for _, k := range w.writes(3) {
						all = append(all, history.Announcement{Key: k})
					}
					for len(all) > 0 {
						n := len(all)
						if alone {
							n = 1
						}
						if _, err := w.queue.Publish(t.Context(), all[:n]); err != nil {
							t.Fatal(err)
						}
						all = all[n:]
						w.wait(time.Second)
					}
					w.wait(5 * time.Minute)
					w.promoted(object(0), object(1), object(2))
					later := w.write(progress(7, 0))
					w.announce(later)
					w.wait(time.Minute)
					w.promoted(later)
					if got := w.did("commit"); len(got) > 0 {
						t.Errorf("committed before what is queued is in the cache again: %q", got)
					}
					part.back.Store(true)
					w.wait(time.Minute)
					w.promoted(silentObject)
					if got := w.archived(silentObject); !sameButPartial(got, said) {
						t.Errorf("archive: got %+v, want %+v", got, said)
					}
					if got := w.did("commit"); len(got) != 1 {
						t.Errorf("commits: got %q, want one", got)
					}
				})
			})
		}
	}
}

// TestRestorePendingForTooLong has a queued content for an archive shard that never answers. After a day it
// goes to the dead letters, and later messages are committed. Until then pending_restores counts it.
func TestRestorePendingForTooLong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		g := &deadLetters{world: w}
		cfg := w.config()
		cfg.archive.Archive, cfg.archive.Dead = silentArchive{spyArchive{w.archive, w}, new(silentUsers)}, g
		w.runs(cfg)
		e := completed(1, -5000, "a")
		said := e.Record()
		if _, err := w.queue.Publish(t.Context(), []history.Announcement{{Key: silentObject, Record: said}}); err != nil {
			t.Fatal(err)
		}
		w.wait(23 * time.Hour)
		w.counted("pending_restores", 1)
		if got := w.did("commit"); len(got) > 0 || len(g.letters) > 0 {
			t.Errorf("after 23 hours: commits %q and letters %+v, want none", got, g.letters)
		}
		w.wait(2 * time.Hour)
		w.counted("pending_restores", 0)
		if len(g.letters) != 1 || g.letters[0].Key != silentObject || !history.Same(g.letters[0].Record, said) {
			t.Errorf("dead letters: %+v, want the content", g.letters)
		}
		if got := w.did("commit"); len(got) != 1 {
			t.Errorf("commits: got %q, want one", got)
		}
	})
}

// TestRepairBesideASilentPart brings the cache back older while a shard does not answer. All other records
// are compared and archived. No record made from the older content overwrites the silent user's archived
// one.
func TestRepairBesideASilentPart(t *testing.T) {
	for name, store := range map[string]func(w *world, part *silentUsers, cfg *config){
		"cache": func(w *world, part *silentUsers, cfg *config) {
			cfg.archive.Cache = silentCache{spyCache{w.cache, w}, part, false}
		},
		"archive": func(w *world, part *silentUsers, cfg *config) {
			cfg.archive.Archive = silentArchive{spyArchive{w.archive, w}, part}
		},
	} {
		for _, user := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, clear %v", name, user), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					m, cfg := w.mortal()
					part := new(silentUsers)
					part.back.Store(true)
					store(w, part, &cfg)
					cfg.archive.SweepEvery, cfg.archive.SweepAge, cfg.machine.Suspect = 10*time.Second, 4*time.Minute, time.Minute
					w.runs(cfg)
					first := completed(1, -9000, "a")
					first.Key = silentObject
					w.announce(w.write(first))
					if user {
						w.announce(w.clear("silent", 0, -8000))
					}
					w.announce(w.writes(2)...)
					w.wait(time.Second)
					w.clean(object(0), object(1))
					m.remember(w, false)
					if err := m.older.Warm(t.Context(), "silent", history.WarmSet{}); err != nil {
						t.Fatal(err)
					}
					another := silentObject // archived by another job, and not compared yet
					another.UID = "silent2"
					m.restart(true)
					w.put(another, record(first, progress(1, -7000)))
					third := progress(1, 0)
					third.Key = another
					w.write(third)
					part.back.Store(false)
					w.wait(5 * time.Minute)
					if w.load(object(0)) == nil || w.load(object(1)) == nil {
						t.Error("the cache has not what the archive has")
					}
					others := w.write(progress(7, 0))
					second := progress(1, 0)
					second.Key = silentObject
					w.announce(others, w.write(second))
					w.wait(5 * time.Minute)
					w.promoted(others)
					w.marked(silentObject)
					part.back.Store(true)
					w.wait(10 * time.Minute)
					w.clean(silentObject, another)
					if got := w.archived(another); got.Plays() != 1 {
						t.Errorf("archive: got %+v, want what another job has put", got)
					}
					want := record(first, second)
					if user {
						want = record(second)
						if page, err := m.older.List(t.Context(), "silent", history.Query{}); err != nil || page.User.Cleared[0] == 0 {
							t.Errorf("cache: got %+v, %v, want the clear mark", page.User, err)
						}
					}
					if got := w.archived(silentObject); got.Plays() != want.Plays() || got.Version != want.Version {
						t.Errorf("archive:\ngot  %+v\nwant %+v", got, want)
					}
				})
			})
		}
	}
}

// TestRereadForASilentPart rereads the queue while a cache shard does not answer. The rest is restored, a
// new epoch is noticed, and the shard gets its records once it answers.
func TestRereadForASilentPart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m, cfg := w.mortal()
		part, queue := new(silentUsers), &sinceJournal{}
		cfg.archive.Cache = silentCache{spyCache{w.cache, w}, part, false}
		cfg.recovery.Queue, cfg.archive.SweepAge, cfg.archive.SweepEvery = queue, 4*time.Minute, 10*time.Second
		w.runs(cfg)
		w.wait(time.Second)
		said := completed(1, 0, "a")
		queue.add(silentObject, record(said))
		queue.add(object(1), record(said))
		for range 2 {
			m.restart(false)
			w.wait(time.Minute)
			w.announce(w.write(progress(2, 0)))
			w.wait(time.Minute)
			w.promoted(object(1), object(2))
		}
		part.back.Store(true)
		w.wait(time.Minute)
		if got := w.archived(silentObject); got == nil || got.Plays() != 1 {
			t.Errorf("archive: got %+v, want what was queued", got)
		}
	})
}

// TestMarkCleanInASilentPart has a readable cache bucket that rejects mark clean, as in a stalled slot
// migration. The other keys of the same put are marked clean.
func TestMarkCleanInASilentPart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var back atomic.Bool
		cfg := w.config()
		cfg.archive.SweepEvery, cfg.archive.SweepAge = 10*time.Second, 4*time.Minute
		cfg.archive.Cache = silentMarkClean{spyCache{w.cache, w}, &back}
		w.runs(cfg)
		e := progress(1, 0)
		e.Key.UID = "silent"
		silent := w.write(e)
		w.announce(append(w.writes(3), silent)...)
		w.wait(3 * time.Minute)
		w.promoted(object(0), object(1), object(2))
		if got := w.marks(); !slices.Equal(got, []history.Key{silent}) {
			t.Errorf("marks: got %v, want that of the silent bucket alone", got)
		}
		w.comesBack(&back, silent)
	})
}

type silentMarkClean struct {
	spyCache
	back *atomic.Bool
}

func (c silentMarkClean) MarkClean(ctx context.Context, contents []history.Content) error {
	if !c.back.Load() && slices.ContainsFunc(contents, func(c history.Content) bool { return c.Key.UID == "silent" }) {
		return errDown
	}
	return c.spyCache.MarkClean(ctx, contents)
}
