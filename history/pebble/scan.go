package pebble

import (
	"bytes"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// each returns the keys in Pebble from lower to below upper with their values, in
// order and all of one moment. Both are good until the next step. When reading
// fails the sequence ends and *failed says why.
func (d *DB) each(lower, upper []byte, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		it, err := d.pebble.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			*failed = unavailable(err)
			return
		}
		steps(it, failed)(yield)
	}
}

// steps goes through an iterator and closes it.
func steps(it *pebble.Iterator, failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for ok := it.First(); ok; ok = it.Next() {
			v, err := it.ValueAndErr()
			if err != nil || !yield(it.Key(), v) {
				break
			}
		}
		if err := it.Close(); err != nil { // with the error of any step before
			*failed = unavailable(err)
		}
	}
}

// row is a user at one moment.
type row struct {
	prefix  []byte // of the keys
	waiting []pair
	stored  *pebble.Iterator
}

// row takes in what waits and Pebble at one moment. The lock is held; going through
// the row needs none, and must happen.
func (h *half) row(uid string) (*row, error) {
	r := &row{prefix: appendUser(nil, h.space, uid), waiting: h.memory.waiting.of(uid)}
	it, err := h.db.pebble.NewIter(&pebble.IterOptions{LowerBound: r.prefix, UpperBound: after(r.prefix)})
	if err != nil {
		return nil, unavailable(err)
	}
	r.stored = it
	return r, nil
}

// all returns the values by the text of the object, "" for the user's own state,
// which comes first. What waits stands before what is stored of the same key.
func (r *row) all(failed *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(object, value []byte) bool) {
		next := r.waiting
		for key, value := range steps(r.stored, failed) {
			object := key[len(r.prefix):]
			for len(next) > 0 && bytes.Compare(next[0].object, object) < 0 {
				if !yield(next[0].object, next[0].value) {
					return
				}
				next = next[1:]
			}
			if len(next) > 0 && bytes.Equal(next[0].object, object) {
				value, next = next[0].value, next[1:]
			}
			if !yield(object, value) {
				return
			}
		}
		for _, w := range next {
			if *failed != nil || !yield(w.object, w.value) {
				return
			}
		}
	}
}

// records returns a user's records without the user's own state. The lock is held.
func (h *half) records(uid string, failed *error) iter.Seq2[history.Object, []byte] {
	return func(yield func(o history.Object, value []byte) bool) {
		r, err := h.row(uid)
		if err != nil {
			*failed = err
			return
		}
		for text, value := range r.all(failed) {
			if len(text) == 0 {
				continue
			}
			o, err := parseObject(text)
			if err != nil {
				*failed = err
			}
			if err != nil || !yield(o, value) {
				return
			}
		}
	}
}

// parseObject fails with [history.ErrUnavailable]: only a damaged store has an
// object that is not one.
func parseObject(text []byte) (history.Object, error) {
	o, err := history.ParseObject(string(text))
	if err != nil {
		return o, unavailable(err)
	}
	return o, nil
}
