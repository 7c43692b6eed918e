package historytest

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// freshUID returns a user that no earlier run has written.
func freshUID() string { return "u-" + rand.Text() }

// keyOf returns the key of a user and an object as text, "100_1".
func keyOf(uid, object string) history.Key {
	o, err := history.ParseObject(object)
	if err != nil {
		panic(fmt.Sprintf("object %q of the suite: %v", object, err))
	}
	return history.Key{UID: uid, Object: o}
}

// freshKey returns a key of a new user.
func freshKey() history.Key { return keyOf(freshUID(), "100_1") }

// hourAgo is the time that the suite counts from: neither expired nor to come.
func hourAgo() int64 { return time.Now().Add(-time.Hour).UnixMilli() }

// cellAt returns what a viewing leaves that was at position at the given time.
func cellAt(k history.Key, at, position int64) history.Cell {
	return history.Cell{Key: k, Record: &history.Record{
		Revision: uint64(at)<<8 | uint64(position), CellTime: at, Version: history.VersionOf(at, history.RankProgress),
		State: history.StatePlaying, Position: position,
	}}
}

// deletedAt returns what a delete leaves.
func deletedAt(k history.Key, at int64) history.Cell {
	return history.Cell{Key: k, Record: &history.Record{
		Revision: uint64(at), CellTime: at, Version: history.VersionOf(at, history.RankDelete), State: history.StateDeleted, Reset: at,
	}}
}

// next returns what a later event makes of the first of the cells.
func next(before, event history.Cell) history.Cell {
	return history.Cell{Key: event.Key, Record: history.Merge(before.Record, event.Record).Successor(nil)}
}

// cellsOf returns n cells of one user, one object each, in the order of their
// objects' text.
func cellsOf(uid string, n int, at int64) []history.Cell {
	cells := make([]history.Cell, n)
	for i := range cells {
		cells[i] = cellAt(keyOf(uid, fmt.Sprintf("%06d_%d", i, 1+i%3)), at+int64(i), int64(i+1))
	}
	return cells
}
