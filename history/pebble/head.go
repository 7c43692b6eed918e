package pebble

import (
	"bytes"
	"slices"

	"github.com/playhead/playhead/history"
)

// head is the newest part of a user who was read lately, enough for the first
// pages. Writes keep it up to date; whatever else changes a user makes it forgotten.
// The lock of the cache guards it, not the bytes, which never change.
type head struct {
	ready  bool         // or the first reader is still at work
	stale  bool         // something was written meanwhile
	user   history.User // as it is stored
	newest []found      // newest first
	last   place        // every record down to here is in newest; zero for all
}

// Of users times two, and records of each.
const (
	recentHeads = 512
	headSize    = 64
)

// fill makes the head of what a first reader has found.
func (h *head) fill(p *pager) {
	h.ready, h.user, h.newest, h.last = true, p.user, p.found, place{}
	if p.cut {
		h.last = h.newest[len(h.newest)-1].place
	}
}

// write takes a new record of the user in.
func (h *head) write(object, record []byte) {
	if !h.ready {
		h.stale = true
		return
	}
	h.newest = slices.DeleteFunc(h.newest, func(f found) bool { return bytes.Equal(f.object, object) })
	r := peek(record)
	at := place{r.version, object}
	if r.state == history.StateDeleted || comparePlaces(at, h.last) > 0 {
		return
	}
	h.newest = insertFound(h.newest, found{at, record}.clone())
	if len(h.newest) > headSize {
		h.newest = h.newest[:headSize]
		h.last = h.newest[headSize-1].place
	}
}

// read makes a page and reports whether all of it is to be found here.
func (h *head) read(p *pager) bool {
	p.steady = true
	for _, f := range h.newest {
		if p.see(f.object, f.record) != nil {
			return false
		}
		if len(p.found) > p.query.Limit { // and one more, to know that there is more
			return true
		}
	}
	return h.last.object == nil
}
