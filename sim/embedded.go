package sim

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// Embedded is an embedded archive with segments, in place of the model. Its calls end at once.
type Embedded struct {
	history.Archive
	// Compact moves a user's old records into segments. It calls between wherever others may run.
	Compact func(uid string, between func()) error
	Close   func() error
}

// store is the archive of a seed without HBase.
type store interface {
	put(c history.Cell)
	get(k history.Key) history.Entry
	Page(ctx context.Context, uid string, q history.Query) (history.Page, error)
	PutUser(ctx context.Context, uid string, u history.User) error
}

// embedded is an [Embedded] in a world.
type embedded struct {
	Embedded
	w     *World
	busy  atomic.Bool           // a compaction is running
	wrong atomic.Pointer[error] // a compaction failed
}

func (e *embedded) put(c history.Cell) {
	if errs := e.Put(context.Background(), []history.Cell{c}); errs != nil {
		e.w.fail("the archive does not put %s: %v", c.Key, errs[0])
	}
}

func (e *embedded) get(k history.Key) history.Entry {
	if k.IsUser() {
		page, err := e.Page(context.Background(), k.UID, history.Query{})
		return history.Entry{User: page.User, Err: err}
	}
	entries, err := e.Get(context.Background(), []history.Key{k})
	if err != nil {
		return history.Entry{Err: err}
	}
	return entries[0]
}

// event compacts a user in a job. Between the steps of the compaction it waits like any exchange, and may be
// killed.
func (e *embedded) event(d *dice) {
	w := e.w
	uid, j := w.anyNamespace(d), w.jobs[d.n(len(w.jobs))]
	if j.dead.Load() || !e.busy.CompareAndSwap(false, true) {
		return
	}
	w.tracef("%-7s begins to compact %s", j.name, uid)
	go func() {
		defer e.busy.Store(false)
		err := e.Compact(uid, func() { _ = j.read(j.ctx, "compact", history.UserKey(uid), func() {}) })
		if err != nil && !errors.Is(err, history.ErrConflict) {
			e.wrong.Store(&err)
		}
	}()
	w.gather()
}

func (e *embedded) judge() {
	if err := e.wrong.Load(); err != nil {
		e.w.fail("compaction: %v", *err)
	}
}
