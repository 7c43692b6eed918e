package wal_test

import (
	"math"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/wal"
)

// item is a record of a user whose hash is its key's length, so keys of one length collide.
func item(user, key, value string) wal.Item {
	return wal.Item{Hash: uint64(len(key)), User: user, Key: []byte(key), Value: []byte(value)}
}

func get(m *wal.Memory, key string) string { return string(m.Get(uint64(len(key)), []byte(key))) }

// TestMemory reads records before, during and after a flush.
func TestMemory(t *testing.T) {
	m := wal.NewMemory()
	m.Put(item("u", "k", "1"))
	if added, ok := m.Put(item("u", "k", "2")); added || !ok {
		t.Errorf("a replaced record: got added %t, in memory %t", added, ok)
	}
	m.Put(item("u", "kk", "old"))
	flushing := m.Rotate()
	m.Put(item("u", "kk", "new"))
	m.Put(item("v", "kkk", "3"))
	for key, want := range map[string]string{"k": "2", "kk": "new", "kkk": "3", "kkkk": ""} {
		if got := get(m, key); got != want {
			t.Errorf("%s during the flush: got %q, want %q", key, got, want)
		}
	}
	for _, x := range flushing.Items() {
		if string(x.Key) == "kk" && x.Value != nil {
			t.Error("the flush would overwrite a new record")
		}
	}
	if !m.OnlyFlushing(1, []byte("k")) || m.OnlyFlushing(2, []byte("kk")) {
		t.Error("only k is nowhere but in the flush")
	}
	if got := m.Of("u"); len(got) != 2 || string(got[0].Key) != "k" || string(got[1].Value) != "new" {
		t.Errorf("records of u: got %v", got)
	}
	m.Flushed()
	if got := get(m, "k"); got != "" {
		t.Errorf("k after the flush: got %q", got)
	}
	m.Drop(2, []byte("kk"))
	if got := get(m, "kk"); got != "" {
		t.Errorf("a dropped record: got %q", got)
	}
	if added, ok := m.Put(item("u", "kk", "again")); !added || !ok {
		t.Errorf("a record after its drop: got added %t, in memory %t", added, ok)
	}
}

// TestCollision sends the second of two keys with one hash to Pebble, also past a flush that has it.
func TestCollision(t *testing.T) {
	m := wal.NewMemory()
	m.Put(item("u", "b", "old"))
	flushing := m.Rotate()
	m.Put(item("u", "a", "1"))
	if _, ok := m.Put(item("u", "b", "2")); ok {
		t.Error("a colliding record stayed in memory")
	}
	if got := get(m, "a"); got != "1" {
		t.Errorf("the first key: got %q, want 1", got)
	}
	if x := flushing.Items()[0]; x.Value != nil {
		t.Error("the flush would overwrite the record in Pebble")
	}
}

func TestOnly(t *testing.T) {
	m := wal.NewMemory()
	m.Put(item("u", "k", "1"))
	if !m.Only("u") || m.Only("v") {
		t.Error("u has one key, v none")
	}
	m.Rotate()
	m.Put(item("u", "kk", "2"))
	if m.Only("u") {
		t.Error("u has a key in the flush too")
	}
}

// TestMarks lists dirty marks in order, without those removed.
func TestMarks(t *testing.T) {
	m := wal.NewMemory()
	for mark := history.Mark(1); mark <= 4; mark++ {
		if mark == 3 {
			m.Rotate()
		}
		m.Mark(wal.Dirty{Mark: mark, Key: []byte{byte(mark)}})
	}
	if m.Unmark(1) {
		t.Error("Pebble may have a mark that is being flushed")
	}
	if !m.Unmark(3) {
		t.Error("Pebble cannot have a new mark")
	}
	for bound, want := range map[history.Mark][]history.Mark{math.MaxInt64: {2, 4}, 4: {2}, 2: nil} {
		got, first := m.Marks(bound)
		if len(got) != len(want) || first != 1 {
			t.Errorf("below %d: got %v from %d, want %v from 1", bound, got, first, want)
			continue
		}
		for i := range want {
			if got[i].Mark != want[i] {
				t.Errorf("below %d: got %v, want %v", bound, got, want)
			}
		}
	}
}
