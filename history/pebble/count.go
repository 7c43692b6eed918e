package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// Counting makes [DB.Promote] count the records of some types in the batch that archives them.
type Counting struct {
	Types count.Types
	// Counted receives the results; nil ignores them. It must be quick.
	Counted func([]count.Result)
}

// Counters implements [count.Counters] on a [DB]: marks by user, totals by object, both changed in one batch.
type Counters struct{ keyspace }

var _ count.Counters = (*Counters)(nil)

// Counters returns the counters of the store.
func (d *DB) Counters() *Counters {
	return &Counters{keyspace{db: d, space: spaceCounted, lock: &d.counting, memory: d.countMemory, unsynced: &d.countUnsynced}}
}

// Count implements [count.Counters]. It is durable when it returns.
func (c *Counters) Count(ctx context.Context, statements []count.Statement) []count.Result {
	results := make([]count.Result, len(statements))
	if len(statements) == 0 {
		return results
	}
	err := c.update(ctx, durable, func(e *edit) error {
		t := c.tally()
		for i := range statements {
			results[i] = t.count(&statements[i])
		}
		return t.store(e.batch)
	})
	if err != nil {
		for i := range results {
			results[i] = count.Result{Err: fmt.Errorf("count: %w", err)}
		}
	}
	return results
}

// tally collects the changes of a batch. The lock of the counters is held.
type tally struct {
	db     *DB
	now    int64
	rows   map[history.Object]*count.Row // that are about to change
	marks  map[history.Key]*count.Mark
	erased map[string]int64
	key    []byte // reused
}

func (c *Counters) tally() *tally {
	return &tally{
		db: c.db, now: c.db.now(),
		rows: make(map[history.Object]*count.Row), marks: make(map[history.Key]*count.Mark), erased: make(map[string]int64),
	}
}

// count changes nothing if it fails.
func (t *tally) count(s *count.Statement) count.Result {
	mark, ignored, err := t.read(s)
	if err != nil || ignored {
		return count.Result{Rows: 1, Err: err}
	}
	r := count.Result{Counted: true, Rows: 1}
	closed := count.Closed(s.Object, t.db.config.Rules, t.now)
	next, change := mark.Count(s, closed)
	if row := t.rows[s.Object]; row != nil {
		row.Add(change)
		row.Close(closed)
		r.Negative = row.Negative()
	}
	*mark = next
	return r
}

// read reads what the count of a statement needs: the mark, and the object's row if it may change.
func (t *tally) read(s *count.Statement) (mark *count.Mark, ignored bool, err error) {
	mark, err = t.mark(s.Key())
	until := int64(0)
	if err == nil {
		until, err = t.erasedUntil(s.UID)
	}
	if ignored = err == nil && mark.Ignores(s, t.db.config.Rules, t.now, until); err == nil && !ignored && !slices.Equal(mark.Played, s.Played) {
		_, err = t.row(s.Object)
	}
	if err != nil {
		err = fmt.Errorf("count %s: %w", s.Object, err)
	}
	return mark, ignored, err
}

// row returns an object's row, to change in place.
func (t *tally) row(o history.Object) (*count.Row, error) {
	if r := t.rows[o]; r != nil {
		return r, nil
	}
	r, err := t.db.countedRow(o)
	if err != nil {
		return nil, err
	}
	t.rows[o] = &r
	return &r, nil
}

func (t *tally) mark(k history.Key) (*count.Mark, error) {
	if m := t.marks[k]; m != nil {
		return m, nil
	}
	var m count.Mark
	if !t.lacks(appendKey(t.key[:0], spaceCounted, k)) {
		var err error
		if m, err = t.db.countedMark(k); err != nil {
			return nil, err
		}
	}
	t.marks[k] = &m
	return &m, nil
}

// lacks reports whether the store certainly has no such key: most marks are new, and most users were never erased.
func (t *tally) lacks(key []byte) bool {
	t.key = key
	return t.db.countMemory.presence.lacks(t.db.countMemory.hash(key))
}

func (t *tally) erasedUntil(uid string) (until int64, err error) {
	until, ok := t.erased[uid]
	if !ok && !t.lacks(appendUser(t.key[:0], spaceCounted, uid)) {
		until, err = t.db.erasedCounts(uid)
		t.erased[uid] = until
	}
	return until, err
}

// store adds the changes to a batch. Marks that were only read are written again: they may not be on disk yet, and the
// answer relies on them.
func (t *tally) store(b *pebble.Batch) error {
	for k, m := range t.marks {
		if m.CellTime == 0 {
			continue
		}
		if err := set(b, appendKey(nil, spaceCounted, k), count.AppendMark(nil, m)); err != nil {
			return err
		}
	}
	for o, r := range t.rows {
		if err := set(b, totalsKey(o), count.AppendRow(nil, r)); err != nil {
			return err
		}
	}
	return nil
}

// countedRow returns an object's row, zero for none.
func (d *DB) countedRow(o history.Object) (r count.Row, err error) {
	err = get(d.pebble, totalsKey(o), func(v []byte) (err error) {
		r, err = count.ParseRow(v)
		return err
	})
	return r, err
}

// countedMark returns the mark of a user and an object, zero for none.
func (d *DB) countedMark(k history.Key) (m count.Mark, err error) {
	err = get(d.pebble, appendKey(nil, spaceCounted, k), func(v []byte) (err error) {
		m, err = count.ParseMark(v)
		return err
	})
	return m, err
}

// erasedCounts returns the time up to which a user was erased, 0 if never.
func (d *DB) erasedCounts(uid string) (until int64, err error) {
	err = get(d.pebble, appendUser(nil, spaceCounted, uid), func(v []byte) error {
		until = parseErased(v)
		return nil
	})
	return until, err
}

// totalsKey returns the key of an object's totals.
func totalsKey(o history.Object) []byte { return appendObject([]byte{spaceTotals}, o) }

// parseErased returns the time up to which a user was erased, 0 if never.
func parseErased(v []byte) int64 {
	if len(v) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v)) //nolint:gosec // as it was written
}

// Totals implements [count.Counters]. Everything archived is counted.
func (c *Counters) Totals(ctx context.Context, objects []history.Object) ([]count.Totals, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	all := make([]count.Totals, len(objects))
	now := c.db.now()
	for i, o := range objects {
		r, err := c.db.countedRow(o)
		if err != nil {
			return nil, fmt.Errorf("totals of %s: %w", o, err)
		}
		all[i] = r.Totals
		all[i].Close(count.Closed(o, c.db.config.Rules, now))
		all[i].Through = now
	}
	return all, nil
}

// Marks implements [count.Counters].
func (c *Counters) Marks(ctx context.Context, keys []history.Key) ([]count.Mark, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	all := make([]count.Mark, len(keys))
	for i, k := range keys {
		var err error
		if all[i], err = c.db.countedMark(k); err != nil {
			return nil, fmt.Errorf("mark of %s: %w", k.Private(), err)
		}
	}
	return all, nil
}

// Held implements [count.Counters].
func (c *Counters) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	if err := c.db.enter(ctx); err != nil {
		return nil, err
	}
	defer c.db.leave()
	marks := 0
	err := c.each(uid, func(_, v []byte) error {
		if m, err := count.ParseMark(v); until == 0 || err != nil || m.CellTime <= until {
			marks++
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count the marks of %s: %w", history.Pseudonym(uid), err)
	}
	return map[string]int{count.MarksPlace: marks}, nil
}

// each calls use with each mark of a user.
func (c *Counters) each(uid string, use func(key, value []byte) error) (err error) {
	prefix := appendUser(nil, spaceCounted, uid)
	for key, v := range c.db.each(prefix, after(prefix), &err) {
		if len(key) > len(prefix) {
			if err := use(key, v); err != nil {
				return err
			}
		}
	}
	return err
}

// Erase implements [count.Counters]. It also removes marks that cannot be decoded, and rewrites the files.
func (c *Counters) Erase(ctx context.Context, uid string, until int64) error {
	prefix := appendUser(nil, spaceCounted, uid)
	err := c.update(ctx, durable, func(e *edit) error {
		erased, err := c.db.erasedCounts(uid)
		if err != nil {
			return err
		}
		if err := set(e.batch, prefix, binary.BigEndian.AppendUint64(nil, uint64(max(erased, until)))); err != nil { //nolint:gosec // a time
			return err
		}
		return c.each(uid, func(key, v []byte) error {
			if m, err := count.ParseMark(v); err == nil && m.CellTime > until {
				return nil
			}
			return del(e.batch, key)
		})
	})
	if err == nil {
		err = c.db.compact(ctx, prefix, after(prefix))
	}
	if err != nil {
		return fmt.Errorf("erase the marks of %s: %w", history.Pseudonym(uid), err)
	}
	return nil
}

// Remains says where erased bytes stay.
func (c *Counters) Remains(context.Context) []string { return nil }

// dropMarks drops marks of expired records, and of erasures that no statement can precede.
func (c *Counters) dropMarks() dropper {
	rules, before := c.db.config.Rules, c.db.now()-count.Margin
	return func(e *edit, key, value []byte) (bool, error) {
		at, expired := parseErased(value), rules.NamespaceExpired("", before)
		if key[len(key)-1] != endOfUID {
			k, err := parseKey(key)
			if err != nil {
				return false, err
			}
			m, err := count.ParseMark(value)
			if err != nil {
				return false, nil //nolint:nilerr // it is reported when it is read
			}
			at, expired = m.CellTime, rules.Expired(k.Object.Type, before)
		}
		if at > expired {
			return false, nil
		}
		return true, del(e.batch, bytes.Clone(key))
	}
}
