package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/playhead/playhead/history"
)

// Archive is a [history.Archive] in memory, written from the contract alone.
type Archive struct {
	mu sync.Mutex // for concurrent callers; the simulator has none
	// Now is the clock for expiry, in Unix milliseconds.
	Now  func() int64
	rows map[string]*row
}

type row struct {
	puts  int
	user  history.User // clear marks and pause
	cells map[history.Object]*history.Record
}

var _ history.Archive = (*Archive)(nil)

// NewArchive returns an empty archive.
func NewArchive(now func() int64) *Archive { return &Archive{Now: now, rows: make(map[string]*row)} }

func (a *Archive) row(uid string) *row {
	r := a.rows[uid]
	if r == nil {
		r = &row{cells: make(map[history.Object]*history.Record)}
		a.rows[uid] = r
	}
	return r
}

// Put implements [history.Archive].
func (a *Archive) Put(_ context.Context, cells []history.Cell) []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range cells {
		a.put(c)
	}
	return nil
}

// put stores a cell; the last of equal cell times wins.
func (a *Archive) put(c history.Cell) {
	r := a.row(c.Key.UID)
	r.puts++
	if old := r.cells[c.Key.Object]; old != nil && old.CellTime > c.Record.CellTime {
		return
	}
	r.cells[c.Key.Object] = c.Record
}

func (a *Archive) live(r *history.Record) *history.Record {
	if r == nil || r.CellTime <= a.Now()-history.DefaultRetention {
		return nil
	}
	return r
}

// Get implements [history.Archive].
func (a *Archive) Get(_ context.Context, keys []history.Key) ([]history.Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		entries[i] = a.get(k)
	}
	return entries, nil
}

func (a *Archive) get(k history.Key) history.Entry {
	r := a.rows[k.UID]
	if r == nil {
		return history.Entry{}
	}
	e := history.Entry{User: history.User{Cleared: r.user.Cleared, Pause: r.user.Pause}}
	if k.IsUser() {
		return e
	}
	cell := a.live(r.cells[k.Object])
	if e.Record = cell.After(r.user.ClearedAt(k.Object.Type)); cell != nil && e.Record == nil {
		e.User.CutTime = cell.CellTime
	}
	return e
}

// Page implements [history.Archive].
func (a *Archive) Page(_ context.Context, uid string, q history.Query) (history.Page, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.row(uid)
	puts := r.puts
	out := history.Page{User: history.User{Cleared: r.user.Cleared, Pause: r.user.Pause}, Unchanged: func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return r.puts == puts
	}}
	for o := range r.cells {
		e := a.get(history.Key{UID: uid, Object: o})
		out.User.CutTime = max(out.User.CutTime, e.User.CutTime)
		if e.Record != nil && q.Wants(history.Cursor{Version: e.Record.Version, Object: o}) {
			out.Items = append(out.Items, history.Item{Object: o, Record: e.Record})
		}
	}
	slices.SortFunc(out.Items, history.NewestFirst)
	if len(out.Items) > q.Limit {
		out.Items, out.More = out.Items[:q.Limit], q.Limit > 0
	}
	return out, nil
}

// PutUser implements [history.Archive].
func (a *Archive) PutUser(_ context.Context, uid string, u history.User) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.row(uid)
	r.puts++
	r.user.Cleared, r.user.Pause = later(r.user.Cleared, u.Cleared), r.user.Pause.Newer(u.Pause)
	for o, c := range r.cells {
		// A covered cell with a later cell time stays, hidden: the key's next content must come after it.
		if c.CellTime <= r.user.ClearedAt(o.Type) {
			delete(r.cells, o)
		}
	}
	return nil
}

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
