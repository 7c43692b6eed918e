package job_test

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

// progress is an event of an object, so many milliseconds from the start.
func progress(n int, ms int64) history.Event {
	return history.Event{
		Key: object(n), Kind: history.KindProgress, At: start + ms,
		Position: 1000, Duration: 100_000, Session: "s",
	}
}

// completed is an event that says that another viewing reached the end.
func completed(n int, ms int64, session string) history.Event {
	e := progress(n, ms)
	e.Kind, e.Position, e.Session = history.KindFinish, e.Duration, session
	return e
}

// deleted is a delete of object 1, so many milliseconds from the start.
func deleted(ms int64) history.Event {
	return history.Event{Key: object(1), Kind: history.KindDelete, At: start + ms}
}

// write folds an event into the cache with a new mark, as the service does for a
// key that it does not hold. The record is complete.
func (w *world) write(e history.Event) history.Key {
	w.Helper()
	return w.store(e, true, false)
}

// store is write with or without a mark, and with a record that is partial or not: that
// takes a complete user.
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
	out := w.cache.Apply(w.Context(), []history.Write{write})[0]
	if out.Status != history.Applied {
		w.Fatalf("write %s: status %d, %v", e.Key, out.Status, out.Err)
	}
	return e.Key
}

// complete makes a user whom the cache does not know one of whom it has everything.
func (w *world) complete(uid string) {
	w.Helper()
	if err := w.cache.Warm(w.Context(), uid, history.WarmSet{}); err != nil {
		w.Fatal(err)
	}
}

// writes stores n new objects with marks, from 0 on, and returns them.
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

// announce publishes keys, as the service does when their holds are over.
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

// queued publishes a content, as the service does for a write that the queue is to have.
func (w *world) queued(k history.Key, r *history.Record) {
	w.Helper()
	if _, err := w.queue.Publish(w.Context(), []history.Announcement{{Key: k, Record: r}}); err != nil {
		w.Fatal(err)
	}
}

// put stores a cell in the archive, past the job.
func (w *world) put(k history.Key, r *history.Record) {
	w.Helper()
	if r == nil {
		return
	}
	if errs := w.archive.Put(w.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
		w.Fatal(errs)
	}
}

// record returns the fold of events as the archive holds it.
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

// clean expects no mark to be left and every key to be archived as it is cached.
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
