package pebble

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// order is a user's row in [history.NewestFirst] order, without cleared records. It is immutable.
type order struct {
	user    history.User // clear marks, pause, and the cut time of the cleared records
	spots   []spot
	texts   []byte // concatenated object texts
	damaged []history.Damage
}

// spot is the position of a record, with its object's text in texts.
type spot struct {
	version  history.Version
	from, to uint32
}

func (o *order) bytes(e spot) []byte { return o.texts[e.from:e.to] }

func (o *order) place(e spot) place { return place{e.version, o.bytes(e)} }

// size returns the approximate size in bytes.
func (o *order) size() int { return 16*len(o.spots) + len(o.texts) }

func (o *order) sort() {
	slices.SortFunc(o.spots, func(a, b spot) int {
		return comparePlaces(o.place(a), o.place(b))
	})
}

// typeOf returns the type in an object's text, 0 if invalid.
func typeOf[T ~string | ~[]byte](text T) uint32 {
	i := strings.LastIndexByte(string(text), '_')
	typ, err := strconv.ParseUint(string(text[i+1:]), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(typ)
}

// selection is the part of an order, and of its later changes, that a query requests.
type selection struct {
	query   history.Query
	orders  [2]*order
	next    [2]int // next spot of each order
	changed []string
}

// newSelection starts at a query's first record.
func newSelection(q history.Query, o, since *order, changed []string) selection {
	return selection{query: q, orders: [2]*order{o, since}, next: [2]int{o.after(q), since.after(q)}, changed: changed}
}

// after returns the first spot after the query's cursor and not later than its Until.
func (o *order) after(q history.Query) int {
	top := place{version: history.MaxVersion} // the empty text sorts last in a version
	if q.Until > 0 {
		top.version = history.VersionOf(q.Until+1, 0)
	}
	if q.After != (history.Cursor{}) && q.After.Version < top.version {
		top = place{q.After.Version, []byte(q.After.Object.String())}
	}
	i, found := slices.BinarySearchFunc(o.spots, top, func(e spot, top place) int {
		return comparePlaces(o.place(e), top)
	})
	if found {
		i++
	}
	return i
}

// all yields the texts of the requested, unexpired records.
func (s selection) all(oldest int64) func(func(string) bool) {
	since := max(s.query.Since, oldest)
	return func(yield func(string) bool) {
		for {
			text, version, ok := s.pop()
			if !ok || version.Time() < since {
				return
			}
			if (s.query.Type == 0 || typeOf(text) == s.query.Type) && !yield(text) {
				return
			}
		}
	}
}

// pop takes the first spot of both orders. Changed records count only in the second one.
func (s *selection) pop() (text string, v history.Version, ok bool) {
	for {
		old, since := s.orders[0], s.orders[1]
		a, b := old.spots[s.next[0]:], since.spots[s.next[1]:]
		switch {
		case len(a) == 0 && len(b) == 0:
			return "", 0, false
		case len(a) == 0 || len(b) > 0 && comparePlaces(since.place(b[0]), old.place(a[0])) < 0:
			s.next[1]++
			return string(since.bytes(b[0])), b[0].version, true
		}
		s.next[0]++
		if text := string(old.bytes(a[0])); !slices.Contains(s.changed, text) {
			return text, a[0].version, true
		}
	}
}

// orders caches the orders of recently read long rows. The archive lock guards it.
type orders struct {
	byUser map[string]*remembered
	size   int // of all orders, in bytes
	most   int // limit of size
}

// remembered is an order, nil during the scan, and the texts of later changes, possibly repeated.
type remembered struct {
	order   *order
	changed []string
}

// Limits of the cache.
const (
	longRow    = 512 // records; shorter rows are scanned each time
	maxChanged = 64  // objects; with more, the keys are scanned again
)

// of returns the cached order of a user's row.
func (s *orders) of(uid string) *remembered {
	if s.byUser == nil {
		s.byUser = make(map[string]*remembered)
	}
	r := s.byUser[uid]
	if r == nil {
		r = new(remembered)
		s.byUser[uid] = r
	}
	return r
}

// put caches an order unless the row has changed since the request or another call was faster.
func (s *orders) put(uid string, asked *remembered, made *order) {
	if s.byUser[uid] != asked || asked.order != nil {
		return
	}
	if made == nil || len(made.spots) < longRow || made.size() > s.most || len(made.damaged) > 0 {
		delete(s.byUser, uid)
		return
	}
	for other, r := range s.byUser { // evict any
		if s.size+made.size() <= s.most {
			break
		}
		s.forget(other, r)
	}
	s.byUser[uid] = &remembered{order: made}
	s.size += made.size()
}

// change must be called before Pebble has the key.
func (s *orders) change(key []byte) {
	if len(s.byUser) == 0 {
		return
	}
	uid, text, _ := bytes.Cut(key[keyPrefix:], []byte{endOfUID})
	r := s.byUser[string(uid)]
	switch {
	case r == nil:
	case r.order == nil || len(text) == 0 || len(r.changed) >= maxChanged:
		s.forget(string(uid), r)
	default:
		r.changed = append(r.changed, string(text))
	}
}

func (s *orders) forget(uid string, r *remembered) {
	delete(s.byUser, uid)
	if r.order != nil {
		s.size -= r.order.size()
	}
}

type place struct {
	version history.Version
	object  []byte
}

// comparePlaces orders newest first. Equal versions are in descending order of the text.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(b.version, a.version), bytes.Compare(b.object, a.object))
}
