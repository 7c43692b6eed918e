package aggregate

import "iter"

// list is entries, first to last. The entries have the links, so that to move
// one costs nothing. Its callers hold the mutex of the shard.
type list struct {
	first, last *entry
	n           int
}

func (l *list) push(e *entry) {
	e.in, e.prev, e.next = l, l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last, l.n = e, l.n+1
}

func (l *list) remove(e *entry) {
	if e.prev == nil {
		l.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.last = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.in, e.prev, e.next, l.n = nil, nil, nil, l.n-1
}

// all yields the entries of a list, first to last. The one at hand may be moved.
func (l *list) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := l.first; e != nil; {
			next := e.next
			if !yield(e) {
				return
			}
			e = next
		}
	}
}
