package pebble

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/trace"
)

// Archive implements [history.Archive] on a [DB].
type Archive struct{ keyspace }

// Archive returns the archive of the store.
func (d *DB) Archive() *Archive {
	return &Archive{keyspace{db: d, space: spaceArchive, lock: &d.archive, memory: d.archiveMemory, unsynced: &d.archiveUnsynced}}
}

// Get implements [history.Archive].
func (a *Archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	ctx, span := trace.Store(ctx, "pebble", "get", len(keys))
	entries, err := a.load(ctx, keys)
	if span.End(err); err != nil {
		return nil, err
	}
	for i := range entries {
		e, k := &entries[i], keys[i]
		if damage, ok := errors.AsType[*history.DamageError](e.Err); ok {
			a.db.damage.cell(history.Pseudonym(k.UID), k.Object.String(), damage)
		} else if e.Err != nil {
			return nil, e.Err
		}
		e.Record = e.User.Cut(e.Record, k.Object.Type)
		e.User.Segments = 0
	}
	return entries, nil
}

// Put implements [history.Archive]. The cells of a call become visible together, are on disk when it returns, and
// fail together.
func (a *Archive) Put(ctx context.Context, cells []history.Cell) []error {
	ctx, span := trace.Store(ctx, "pebble", "put", len(cells))
	err := a.put(ctx, cells)
	if span.End(err); err == nil {
		return nil
	}
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (a *Archive) put(ctx context.Context, cells []history.Cell) error {
	p := putter{archive: a, own: make(map[history.Key][]byte, len(cells)), values: make([]byte, 0, recordSize*len(cells))}
	err := a.update(ctx, durable, func(e *edit) error {
		p.edit = e
		for _, cell := range cells {
			if err := p.put(cell); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.db.wait(p.waitFor)
}

// putter collects the cells that replace the archive's cell or an earlier one of the call. own has its cells so far, which the store does not show yet.
type putter struct {
	archive *Archive
	edit    *edit
	own     map[history.Key][]byte
	key     []byte
	values  []byte      // concatenated
	waitFor *wal.Waiter // for the stored cells that stay
}

func (p *putter) put(cell history.Cell) error {
	p.key = appendKey(p.key[:0], p.archive.space, cell.Key)
	start := len(p.values)
	p.values = wire.AppendRecord(p.values, cell.Record)
	value := p.values[start:len(p.values):len(p.values)]
	if current := p.own[cell.Key]; current != nil {
		return p.set(cell.Key, newer(current, value))
	}
	if p.archive.memory.presence.lacks(p.archive.memory.hash(p.key)) {
		return p.set(cell.Key, value)
	}
	return get(p.archive.db.pebble, p.key, func(current []byte) error {
		return p.set(cell.Key, newer(current, value))
	})
}

// set adds a cell. A nil value keeps the stored one.
func (p *putter) set(k history.Key, value []byte) error {
	if value == nil {
		p.waitFor = wal.Later(p.waitFor, p.archive.unsynced.of(p.key))
		return nil
	}
	p.own[k] = value
	p.archive.notePut(k.UID, value)
	p.edit.awaited = append(p.edit.awaited, bucketOf(p.key))
	return set(p.edit.batch, p.key, value)
}

// newer returns the replacement of a stored cell, nil to keep it. The later cell time wins. Different contents
// with one cell time are merged. An unreadable cell is always replaced.
func newer(current, put []byte) []byte {
	if wire.Peek(put).CellTime > wire.Peek(current).CellTime {
		return put
	}
	a, err := wire.Record(current)
	if err != nil || a == nil || a.Version == 0 {
		return put
	}
	b, err := wire.Record(put)
	if err != nil || b.CellTime < a.CellTime || history.Same(a, b) {
		return nil
	}
	return wire.AppendRecord(nil, history.Merge(a, b))
}

// PutUser implements [history.Archive]. It is durable when it returns.
func (a *Archive) PutUser(ctx context.Context, uid string, put history.User) error {
	return a.update(ctx, durable, func(e *edit) error {
		u, _, err := a.stored(uid)
		if err != nil {
			return err
		}
		u.MergeCleared(put.Cleared)
		u.Pause = u.Pause.Newer(put.Pause)
		u.CutTime = max(u.CutTime, put.CutTime)
		segments, err := a.db.segmentsOf(a.db.pebble, uid, u.Segments)
		if err != nil {
			return err
		}
		chunks := segments.Chunks
		if u.Segments > 0 {
			a.noteRemoval(uid)
		}
		// A record put from an outdated base may hide a newer one in segments that is not cleared.
		hides := func(o history.Object) bool {
			return slices.ContainsFunc(chunks, func(i segment.Info) bool { return i.Newest.Time() > u.ClearedAt(o.Type) && i.MayHave(o) })
		}
		if err := e.dropCleared(uid, &u, hides); err != nil {
			return err
		}
		cutSegments(chunks, &u)
		a.noteSummaries(uid)
		return e.store(uid, u, 0)
	})
}

// cutSegments raises a user's cut time to that of segment records hidden by clear marks. It counts every record of
// a possibly affected chunk, so the result may be slightly high.
func cutSegments(chunks []segment.Info, u *history.User) {
	at := int64(0)
	for _, until := range u.Cleared {
		at = max(at, until)
	}
	for _, i := range chunks {
		if i.Oldest.Time() <= at {
			u.CutTime = max(u.CutTime, i.CellTime)
		}
	}
}

// Page implements [history.Archive]. Keys are in object order, pages in version order. The order of versions needs
// a scan of the keys. For long rows it is cached with later changes. Only the page's records are then read.
func (a *Archive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if err := a.db.enter(ctx); err != nil {
		return history.Page{}, err
	}
	defer a.db.leave()
	m, err := a.moment(uid)
	if err != nil {
		return history.Page{}, err
	}
	if m.snapshot != nil {
		defer m.snapshot.Close()
	}
	page, err := a.pageOf(uid, m, q)
	page.User.Segments = 0
	page.Unchanged = func() bool {
		a.lock.Lock()
		defer a.lock.Unlock()
		return a.db.archivePuts[bucketOf(m.prefix)] == m.puts
	}
	if err == nil {
		err = a.db.wait(m.waitFor)
	}
	if err != nil {
		return history.Page{}, err
	}
	return page, nil
}

// moment is a user's row at one point in time.
type moment struct {
	prefix   []byte           // of the keys
	snapshot *pebble.Snapshot // nil for an empty row
	asked    *index.Row
	order    *index.Order // nil if not cached
	changed  []string     // objects changed since order
	waitFor  *wal.Waiter
	puts     uint64 // see DB.archivePuts
}

func (a *Archive) moment(uid string) (m moment, err error) {
	m.prefix = appendUser(nil, a.space, uid)
	a.lock.Lock()
	defer a.lock.Unlock()
	m.waitFor, m.puts = a.unsynced.of(m.prefix), a.db.archivePuts[bucketOf(m.prefix)]
	if a.memory.presence.lacksRow(m.prefix) {
		return m, nil
	}
	m.snapshot = a.db.pebble.NewSnapshot()
	m.asked = a.db.orders.Row(uid)
	m.order, m.changed = m.asked.Order, m.asked.Changed
	return m, nil
}

func (a *Archive) pageOf(uid string, m moment, q history.Query) (page history.Page, err error) {
	if m.snapshot == nil {
		return page, nil
	}
	o := m.order
	if o == nil {
		o, err = a.newOrder(uid, m)
		a.lock.Lock()
		a.db.orders.Put(uid, m.asked, o)
		a.lock.Unlock()
		if err != nil {
			return page, err
		}
	}
	since, err := a.changes(uid, m, o)
	if err != nil {
		return page, err
	}
	page.User = since.User
	if q.After == (history.Cursor{}) {
		page.Damaged = slices.Concat(o.Damaged, since.Damaged)
	}
	if q.Limit <= 0 {
		return page, nil
	}
	oldest := a.oldest(uid)
	q.Since = max(q.Since, oldest.clean)
	texts := index.Texts(q, o, since, m.changed)
	return page, a.fill(&liveRow{archive: a, page: &page, uid: uid, prefix: m.prefix, oldest: oldest}, m.snapshot, texts, q)
}

// fill reads the records of a page, with those in segments.
func (a *Archive) fill(l *liveRow, from *pebble.Snapshot, texts iter.Seq[string], q history.Query) error {
	page := l.page
	segments, err := a.db.segmentsOf(from, l.uid, page.User.Segments)
	if err != nil {
		return err
	}
	it, err := from.NewIter(rangeOf(l.prefix))
	if err != nil {
		return unavailable(err)
	}
	defer it.Close()
	l.row = seeker{it}
	q.Since = max(q.Since, page.User.ClearedAt(q.Type)+1)
	for it, err := range segment.Stitch(segment.Live{Items: l.items(texts), Get: l.get}, segments, q) {
		if err != nil {
			return err
		}
		if it.Record = it.Record.After(page.User.ClearedAt(it.Object.Type)); it.Record == nil {
			continue
		}
		if len(page.Items) == q.Limit {
			page.More = true
			return nil
		}
		page.Items = append(page.Items, it)
	}
	return nil
}

// liveRow reads the live segment of a user's row.
type liveRow struct {
	archive *Archive
	page    *history.Page // receives damaged records
	uid     string
	prefix  []byte // of the keys
	row     seeker
	oldest  horizon
}

// items yields the records of some objects. It skips unreadable ones and adds them to Damaged.
func (l *liveRow) items(texts iter.Seq[string]) func(func(history.Item, error) bool) {
	return func(yield func(history.Item, error) bool) {
		for text := range texts {
			var it history.Item
			err := l.read(text, func(v []byte) {
				var damage *history.Damage
				if it, damage = l.archive.item(l.uid, text, v, l.oldest); damage != nil {
					l.page.Damaged = append(l.page.Damaged, *damage)
				}
			})
			if (err != nil || it.Record != nil) && !yield(it, err) {
				return
			}
		}
	}
}

// get returns a readable live record, nil for none.
func (l *liveRow) get(o history.Object) (r *history.Record, err error) {
	err = l.read(o.String(), func(v []byte) {
		if found, damage := l.archive.record(v, l.oldest); damage == nil {
			r = found
		}
	})
	return r, err
}

func (l *liveRow) read(text string, use func(value []byte)) error {
	return l.row.get(append(slices.Clip(l.prefix), text...), func(v []byte) error {
		if v != nil {
			use(v)
		}
		return nil
	})
}

// item decodes a cell. An expired one has no record. An unreadable one is damage.
func (a *Archive) item(uid, text string, value []byte, oldest horizon) (history.Item, *history.Damage) {
	o, err := history.ParseObject(text)
	var r *history.Record
	if err == nil {
		r, err = a.record(value, oldest)
	}
	if err != nil {
		damage := damaged(history.Key{UID: uid, Object: o}, value, err)
		a.db.damage.cell(history.Pseudonym(uid), text, damage)
		return history.Item{}, &history.Damage{Object: o, Bytes: damage.Bytes, Err: damage}
	}
	return history.Item{Object: o, Record: r}, nil
}

func (a *Archive) newOrder(uid string, m moment) (o *index.Order, err error) {
	o = new(index.Order)
	oldest := a.oldest(uid)
	for key, v := range each(m.snapshot, m.prefix, after(m.prefix), &err) {
		switch text := key[len(m.prefix):]; {
		case len(text) == 0:
			var u history.User
			u, err = a.state(v, oldest)
			o.User = history.User{Cleared: u.Cleared, CutTime: u.CutTime, Pause: u.Pause, Segments: u.Segments}
		case a.expired(v, oldest):
		default:
			a.addTo(o, uid, text, v)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	o.Sort()
	a.noteLong(uid, o.Len())
	return o, nil
}

// changes returns the order of the records changed since o.
func (a *Archive) changes(uid string, m moment, o *index.Order) (*index.Order, error) {
	since, oldest, key := &index.Order{User: o.User}, a.oldest(uid), bytes.Clone(m.prefix)
	for i, text := range m.changed {
		if slices.Contains(m.changed[:i], text) {
			continue
		}
		key = append(key[:len(m.prefix)], text...)
		err := get(m.snapshot, key, func(v []byte) error {
			if v != nil && !a.expired(v, oldest) {
				a.addTo(since, uid, key[len(m.prefix):], v)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	since.Sort()
	return since, nil
}

// addTo adds a cell to an order, by its first bytes.
func (a *Archive) addTo(o *index.Order, uid string, text, value []byte) {
	head := wire.Peek(value)
	if head.Version == 0 { // report as damaged
		if _, damage := a.item(uid, string(text), value, horizon{}); damage != nil {
			o.Damaged = append(o.Damaged, *damage)
		}
		return
	}
	if len(o.User.Cleared) > 0 && head.Version.Time() <= o.User.ClearedAt(index.TypeOf(text)) {
		o.User.CutTime = max(o.User.CutTime, head.CellTime)
		return
	}
	o.Add(head.Version, text)
}
