package historytest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// CacheDamage tests that a record which cannot be read takes nothing else away, and is not
// taken for absent. spoil stores bytes as the record of a key that has one, past the cache.
func CacheDamage(t *testing.T, store history.Cache, spoil func(k history.Key, value []byte)) {
	for name, value := range map[string][]byte{
		"garbage": []byte("\xff\xff"), "no event": {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, "torn": {0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x42, 100},
	} {
		t.Run(name, func(t *testing.T) {
			(&cacheCase{T: t, Cache: store, start: hourAgo()}).damage(spoil, value)
		})
	}
}

func (c *cacheCase) damage(spoil func(k history.Key, value []byte), value []byte) {
	uid := c.user()
	spoiled := key(uid, 1, 2)
	newest, before := c.item(key(uid, 1, 3), c.record(3)), c.put(spoiled, c.record(2))
	oldest := c.item(key(uid, 1, 1), c.record(1))
	spoil(spoiled, value)

	c.holds(key(uid, 1, 3), newest.Record)
	e := c.load(spoiled)
	if !saysNothing(e.Record) {
		c.Fatalf("Load: got %+v, want a partial record without a state", e.Record)
	}
	for limit := 1; limit <= 3; limit++ {
		c.damagedPages(uid, limit, spoiled.Object, newest, oldest)
	}
	if page := c.list(uid, history.Query{Limit: 3, Type: 2}); len(page.Items) != 0 {
		c.Errorf("list of another type: got %v, want none", objects(page.Items))
	}

	w := history.Write{Key: spoiled, Record: history.Merge(e.Record, before).Successor(nil), Base: e.Record.Revision}
	c.applied(w)
	c.lists(uid, history.Query{Limit: 3}, newest, history.Item{Object: spoiled.Object, Record: w.Record}, oldest)
}

// damagedPages goes through all pages: each object is on one of them, the damaged one too.
func (c *cacheCase) damagedPages(uid string, limit int, spoiled history.Object, others ...history.Item) {
	c.Helper()
	var all []history.Item
	for q := (history.Query{Limit: limit}); ; {
		page := c.list(uid, q)
		all = append(all, page.Items...)
		if !page.More || len(all) > 3 {
			break
		}
		q.After = cursor(all[len(all)-1])
	}
	var sound, damaged []history.Item
	for _, item := range all {
		if item.Object == spoiled {
			damaged = append(damaged, item)
		} else {
			sound = append(sound, item)
		}
	}
	c.items("beside damage", sound, others)
	if len(damaged) != 1 || !saysNothing(damaged[0].Record) {
		c.Errorf("pages of %d: got %+v for what is damaged, want one partial record without a state", limit, damaged)
	}
}

// ArchiveDamage tests that a cell which cannot be read takes nothing else away. spoil
// stores bytes as the cell of a key, under a cell time, past the archive.
func ArchiveDamage(t *testing.T, store history.Archive, spoil func(k history.Key, at int64, value []byte)) {
	torn := append(wire.AppendRecord(nil, cellAt(freshKey(), hourAgo()-1000, 1).Record), 0x42, 100) // the head can be read
	for name, value := range map[string][]byte{"garbage": []byte("\xff\xff"), "no record": {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, "torn": torn} {
		t.Run(name, func(t *testing.T) { archive{t: t, store: store}.damage(spoil, value) })
	}
}

func (a archive) damage(spoil func(k history.Key, at int64, value []byte), value []byte) {
	uid, now := freshUID(), hourAgo()
	first, last := cellAt(keyOf(uid, "a_1"), now, 1), cellAt(keyOf(uid, "c_1"), now, 3)
	spoiled := keyOf(uid, "b_1")
	a.put(first, last)
	spoil(spoiled, now, value)

	a.wantRow(uid, []history.Cell{first, last})
	damaged := a.row(uid).Damaged
	if len(damaged) != 1 || damaged[0].Object != spoiled.Object || !bytes.Equal(damaged[0].Bytes, value) || !errors.Is(damaged[0].Err, history.ErrPermanent) {
		a.t.Errorf("row: got damage %+v, want %s with its bytes", damaged, spoiled)
	}
	got := a.entries(first.Key, spoiled, last.Key)
	for i, want := range map[int]*history.Record{0: first.Record, 2: last.Record} {
		if got[i].Err != nil || !a.same(got[i].Record, want) {
			a.t.Errorf("beside damage: got %+v, want %+v", got[i], want)
		}
	}
	var e *history.DamageError
	if !errors.As(got[1].Err, &e) || !errors.Is(e, history.ErrPermanent) || e.Key != spoiled || !bytes.Equal(e.Bytes, value) {
		a.t.Errorf("damage: got %v, want the key %s and its bytes", got[1].Err, spoiled)
	}

	// Even an event of before takes the place of what nobody can read, whatever its user was warmed with.
	row := a.row(uid)
	for at, u := range []*history.User{&row.User, &got[1].User} {
		spoil(spoiled, now+int64(at)*10, value)
		late := history.Cell{Key: spoiled, Record: cellAt(spoiled, now-100, 2).Record.Successor(u)}
		if at > 0 {
			late.Record.CellTime += 10
		}
		a.put(late)
		a.want(spoiled, late.Record)
		if left := a.row(uid).Damaged; len(left) != 0 {
			a.t.Errorf("row: got damage %+v after it was replaced", left)
		}
	}
}

func saysNothing(r *history.Record) bool { return r != nil && r.Partial && r.State == 0 }
