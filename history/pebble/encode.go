package pebble

import (
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// encoded are keys and values of writes, made before any lock is taken.
type encoded struct {
	bytes   []byte
	entries []entry
}

// entry says where a key and a value end in the bytes; they follow each other.
type entry struct {
	key, value int
	hash       uint64
}

// recordSize is a guess, to have room for most.
const recordSize = 256

// encode leaves room for the mark in front of each record. No new content is settled,
// whatever the caller says.
func (c *Cache) encode(writes []history.Write) *encoded {
	e := &encoded{bytes: make([]byte, 0, recordSize*len(writes)), entries: make([]entry, len(writes))}
	for i := range writes {
		start := len(e.bytes)
		e.bytes = appendKey(e.bytes, c.space, writes[i].Key)
		e.entries[i].key = len(e.bytes)
		e.entries[i].hash = c.memory.hash(e.bytes[start:])
		e.bytes = append(e.bytes, make([]byte, markSize)...)
		record := len(e.bytes)
		e.bytes = wire.AppendRecord(e.bytes, writes[i].Record)
		e.bytes[record+wire.RevisionEnd-1] &= 0xff >> 1
		e.entries[i].value = len(e.bytes)
	}
	return e
}

// at returns a write of a user as it is to wait.
func (e *encoded) at(i int, uid string) item {
	start := 0
	if i > 0 {
		start = e.entries[i-1].value
	}
	x := e.entries[i]
	return item{uid: uid, hash: x.hash, key: e.bytes[start:x.key], value: e.bytes[x.key:x.value]}
}
