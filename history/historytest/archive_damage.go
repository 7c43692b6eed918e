package historytest

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/playhead/playhead/history"
)

// ArchiveDamage tests that a cell which cannot be read takes nothing else away. spoil
// stores bytes as the cell of a key, under a cell time, past the archive.
func ArchiveDamage(t *testing.T, store history.Archive, spoil func(k history.Key, at int64, value []byte)) {
	for name, value := range map[string][]byte{"garbage": []byte("\xff\xff"), "no record": {0x09, 1, 2, 3, 4, 5, 6, 7, 8}} {
		t.Run(name, func(t *testing.T) { archive{t, store}.damage(spoil, value) })
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
		if got[i].Err != nil || !reflect.DeepEqual(got[i].Record, want) {
			a.t.Errorf("beside damage: got %+v, want %+v", got[i], want)
		}
	}
	var e *history.DamageError
	if !errors.As(got[1].Err, &e) || !errors.Is(e, history.ErrPermanent) || e.Key != spoiled || !bytes.Equal(e.Bytes, value) {
		a.t.Errorf("damage: got %v, want the key %s and its bytes", got[1].Err, spoiled)
	}

	// Even an event of before takes the place of what nobody can read.
	late := history.Cell{Key: spoiled, Record: cellAt(spoiled, now-100, 2).Record.Successor(&got[1].User)}
	a.put(late)
	a.want(spoiled, late.Record)
	if left := a.row(uid).Damaged; len(left) != 0 {
		a.t.Errorf("row: got damage %+v after it was replaced", left)
	}
}
