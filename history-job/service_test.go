package main

import (
	"slices"
	"strconv"

	"github.com/playhead/playhead/history"
)

const uid = "viewer"

func object(n int) history.Key {
	return history.Key{UID: uid, Object: history.Object{ID: strconv.Itoa(n), Type: 1}}
}

// start is when the clock of a bubble starts, in Unix milliseconds.
const start = 946_684_800_000

// progress returns an event of object n, ms milliseconds from the start.
func progress(n int, ms int64) history.Event {
	return history.Event{
		Key: object(n), Kind: history.KindProgress, At: start + ms,
		Position: 1000, Duration: 100_000, Session: "s",
	}
}

// completed returns an event that ends another play.
func completed(n int, ms int64, session string) history.Event {
	e := progress(n, ms)
	e.Kind, e.Position, e.Session = history.KindFinish, e.Duration, session
	return e
}

// deleted returns a delete of object 1, ms milliseconds from the start.
func deleted(ms int64) history.Event {
	return history.Event{Key: object(1), Kind: history.KindDelete, At: start + ms}
}

// write folds an event into the cache with a new mark, as a service does for a key that it does not hold.
// The record is complete.
func (w *world) write(e history.Event) history.Key {
	w.Helper()
	return w.store(e, true, false)
}

// store is write with an optional mark and a partial or complete record. A complete record requires a
// complete user.
func (w *world) store(e history.Event, mark, partial bool) history.Key {
	w.Helper()
	if !partial {
		w.complete(e.Key.UID)
	}
	said := e.Record()
	said.Partial = partial
	old := w.load(e.Key)
	user := w.cache.Load(w.Context(), []history.Key{e.Key})[0].User
	write := history.WriteOn(old, e.Key, history.Merge(old, said).Successor(nil), &user)
	write.BeginsHold = mark
	out := w.cache.Write(w.Context(), []history.Write{write})[0]
	if out.Status != history.Applied {
		w.Fatalf("write %s: status %d, %v", e.Key, out.Status, out.Err)
	}
	return e.Key
}

// complete makes an unknown user complete in the cache.
func (w *world) complete(uid string) {
	w.Helper()
	if err := w.cache.Warm(w.Context(), uid, history.WarmSet{}); err != nil {
		w.Fatal(err)
	}
}

// writes stores objects 0 to n-1 with marks, and returns their keys.
func (w *world) writes(n int) []history.Key {
	w.Helper()
	keys := make([]history.Key, n)
	for i := range keys {
		keys[i] = w.write(progress(i, int64(i-n)))
	}
	return keys
}

// clear clears a user's history of a type up to a time after the start.
func (w *world) clear(uid string, typ uint32, ms int64) history.Key {
	w.Helper()
	if _, err := w.cache.Clear(w.Context(), uid, history.Clear{Type: typ, Until: start + ms}); err != nil {
		w.Fatal(err)
	}
	return history.UserKey(uid)
}

// announce publishes keys, as a service does when their holds end.
func (w *world) announce(keys ...history.Key) {
	w.Helper()
	all := make([]history.Announcement, len(keys))
	for i := range keys {
		all[i].Key = keys[i]
	}
	if unsent, err := w.queue.Publish(w.Context(), all); err != nil {
		w.Fatalf("publish %d keys: %d unsent, %v", len(keys), len(unsent), err)
	}
}

// queued publishes a content, as a service does for a queued write.
func (w *world) queued(k history.Key, r *history.Record) {
	w.Helper()
	if _, err := w.queue.Publish(w.Context(), []history.Announcement{{Key: k, Record: r}}); err != nil {
		w.Fatal(err)
	}
}

// put stores a cell in the archive without the job.
func (w *world) put(k history.Key, r *history.Record) {
	w.Helper()
	if r == nil {
		return
	}
	if errs := w.archive.Put(w.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
		w.Fatal(errs)
	}
}

// record returns the fold of events as archived.
func record(events ...history.Event) *history.Record {
	var r *history.Record
	for _, e := range events {
		r = history.Merge(r, e.Record())
	}
	if r == nil {
		return nil
	}
	whole := r.Successor(nil)
	whole.Partial = false
	return whole
}

func (w *world) load(k history.Key) *history.Record {
	w.Helper()
	e := w.cache.Load(w.Context(), []history.Key{k})[0]
	if e.Err != nil {
		w.Fatalf("load %s: %v", k, e.Err)
	}
	return e.Record
}

func (w *world) archived(k history.Key) *history.Record {
	w.Helper()
	entries, err := w.archive.Get(w.Context(), []history.Key{k})
	if err != nil {
		w.Fatalf("get %s: %v", k, err)
	}
	return entries[0].Record
}

// marks returns the keys with a dirty mark.
func (w *world) marks() []history.Key {
	w.Helper()
	all, err := w.cache.Overdue(w.Context(), history.AllBuckets(), 0, 1<<20)
	if err != nil {
		w.Fatalf("overdue: %v", err)
	}
	return all
}

// clean expects no dirty mark, and every key archived as cached.
func (w *world) clean(keys ...history.Key) {
	w.Helper()
	if left := w.marks(); len(left) > 0 {
		w.Errorf("marks %v are left, want none", left)
	}
	for _, k := range keys {
		e := w.cache.Load(w.Context(), []history.Key{k})[0]
		if got, want := w.archived(k), e.Record.After(e.User.ClearedAt(k.Object.Type)); !history.Same(got, want) {
			w.Errorf("%s in the archive:\ngot  %+v\nwant %+v", k, got, want)
		}
	}
}

// marked expects a key to have a mark.
func (w *world) marked(k history.Key) {
	w.Helper()
	if marks := w.marks(); !slices.Contains(marks, k) {
		w.Errorf("no mark of %s, only %v", k, marks)
	}
}
