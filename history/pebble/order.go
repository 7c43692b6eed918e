package pebble

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// order is a user's row in the order of [history.NewestFirst], without what the clear marks hide.
// It is never changed.
type order struct {
	user    history.User // the marks, the pause, and the cut time of what they hide
	spots   []spot
	texts   []byte // of the objects, one behind the other
	damaged []history.Damage
}

// spot is where a record stands, and where its object's text does.
type spot struct {
	version  history.Version
	from, to uint32
}

func (o *order) bytes(e spot) []byte { return o.texts[e.from:e.to] }

func (o *order) place(e spot) place { return place{e.version, o.bytes(e)} }

// size is about how many bytes an order takes.
func (o *order) size() int { return 16*len(o.spots) + len(o.texts) }

func (o *order) sort() {
	slices.SortFunc(o.spots, func(a, b spot) int {
		return comparePlaces(o.place(a), o.place(b))
	})
}

// typeOf returns the type of an object by its text, 0 where that is none.
func typeOf[T ~string | ~[]byte](text T) uint32 {
	i := strings.LastIndexByte(string(text), '_')
	typ, err := strconv.ParseUint(string(text[i+1:]), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(typ)
}

// selection is what of an order, and of what has changed since, a query asks for.
type selection struct {
	query   history.Query
	orders  [2]*order
	next    [2]int // spots of each
	changed []string
}

// newSelection finds the place of a query's first record.
func newSelection(q history.Query, o, since *order, changed []string) selection {
	return selection{query: q, orders: [2]*order{o, since}, next: [2]int{o.after(q), since.after(q)}, changed: changed}
}

// after returns the first spot that is behind the cursor of a query and not after its time.
func (o *order) after(q history.Query) int {
	top := place{version: history.MaxVersion} // of one version the empty text is the last
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

// all yields the texts of what the query asks for and has not expired.
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

// pop takes the first of both orders. A changed record stands in the second one alone.
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

// orders remembers the orders of long rows that were asked for lately. The lock of the archive
// guards it.
type orders struct {
	byUser map[string]*remembered
	size   int // of all orders, in bytes
	most   int // that it may be
}

// remembered is an order, nil while it is being made, and the texts of what has changed since.
// The same object may be among them several times.
type remembered struct {
	order   *order
	changed []string
}

// Bounds of what is remembered.
const (
	longRow    = 512 // records; shorter ones are gone through each time
	maxChanged = 64  // objects; with more the keys are gone through again
)

// of returns what is known of the order of a user's row as it is now.
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

// put remembers an order that was made, unless the row has changed since it was asked for, or
// another call was first.
func (s *orders) put(uid string, asked *remembered, made *order) {
	if s.byUser[uid] != asked || asked.order != nil {
		return
	}
	if made == nil || len(made.spots) < longRow || made.size() > s.most || len(made.damaged) > 0 {
		delete(s.byUser, uid)
		return
	}
	for other, r := range s.byUser { // any of them
		if s.size+made.size() <= s.most {
			break
		}
		s.forget(other, r)
	}
	s.byUser[uid] = &remembered{order: made}
	s.size += made.size()
}

// change is called before Pebble has a key.
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
