// Package index keeps the order of long rows in memory: the versions and objects of a user's records, newest first.
package index

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/playhead/playhead/history"
)

// Place is where a record stands among a user's others.
type Place struct {
	Version history.Version
	Object  []byte // its text
}

// Compare orders newest first. Equal versions are in descending order of the text.
func Compare(a, b Place) int {
	return cmp.Or(cmp.Compare(b.Version, a.Version), bytes.Compare(b.Object, a.Object))
}

// Order is a user's row in [history.NewestFirst] order, without cleared records. It is immutable once it is sorted.
type Order struct {
	User    history.User // clear marks, pause, and the cut time of the cleared records
	Damaged []history.Damage
	spots   []spot
	texts   []byte // concatenated object texts
}

// spot is the position of a record, with its object's text in texts.
type spot struct {
	version  history.Version
	from, to uint32
}

func (o *Order) bytes(e spot) []byte { return o.texts[e.from:e.to] }

func (o *Order) place(e spot) Place { return Place{e.version, o.bytes(e)} }

// size returns the approximate size in bytes.
func (o *Order) size() int { return 16*len(o.spots) + len(o.texts) }

// Add adds a record at the end.
func (o *Order) Add(version history.Version, object []byte) {
	from := uint32(len(o.texts)) //nolint:gosec // four GiB of objects' texts are no row
	o.texts = append(o.texts, object...)
	o.spots = append(o.spots, spot{version, from, uint32(len(o.texts))}) //nolint:gosec // as above
}

// Len returns the number of records.
func (o *Order) Len() int { return len(o.spots) }

// Sort ends a sequence of Add.
func (o *Order) Sort() {
	slices.SortFunc(o.spots, func(a, b spot) int {
		return Compare(o.place(a), o.place(b))
	})
}

// after returns the first spot after the query's cursor and not later than its Until.
func (o *Order) after(q history.Query) int {
	top := Place{Version: history.MaxVersion} // the empty text sorts last in a version
	if q.Until > 0 {
		top.Version = history.VersionOf(q.Until+1, 0)
	}
	if q.After != (history.Cursor{}) && q.After.Version < top.Version {
		top = Place{q.After.Version, []byte(q.After.Object.String())}
	}
	i, found := slices.BinarySearchFunc(o.spots, top, func(e spot, top Place) int {
		return Compare(o.place(e), top)
	})
	if found {
		i++
	}
	return i
}

// Texts yields the objects' texts of the records that a query asks for. Since has those of the objects changed after o.
func Texts(q history.Query, o, since *Order, changed []string) iter.Seq[string] {
	s := selection{orders: [2]*Order{o, since}, next: [2]int{o.after(q), since.after(q)}, changed: changed}
	return func(yield func(string) bool) {
		for {
			text, version, ok := s.pop()
			if !ok || version.Time() < q.Since {
				return
			}
			if (q.Type == 0 || TypeOf(text) == q.Type) && !yield(text) {
				return
			}
		}
	}
}

// TypeOf returns the type in an object's text, 0 if invalid.
func TypeOf[T ~string | ~[]byte](text T) uint32 {
	i := strings.LastIndexByte(string(text), '_')
	typ, err := strconv.ParseUint(string(text[i+1:]), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(typ)
}

// selection walks through an order and its later changes.
type selection struct {
	orders  [2]*Order
	next    [2]int // next spot of each order
	changed []string
}

// pop takes the first spot of both orders. Changed records count only in the second one.
func (s *selection) pop() (text string, v history.Version, ok bool) {
	for {
		old, since := s.orders[0], s.orders[1]
		a, b := old.spots[s.next[0]:], since.spots[s.next[1]:]
		switch {
		case len(a) == 0 && len(b) == 0:
			return "", 0, false
		case len(a) == 0 || len(b) > 0 && Compare(since.place(b[0]), old.place(a[0])) < 0:
			s.next[1]++
			return string(since.bytes(b[0])), b[0].version, true
		}
		s.next[0]++
		if text := string(old.bytes(a[0])); !slices.Contains(s.changed, text) {
			return text, a[0].version, true
		}
	}
}

// Cache has the orders of recently read long rows. Its user locks it.
type Cache struct {
	byUser map[string]*Row
	size   int // of all orders, in bytes
	most   int // limit of size
}

// NewCache returns a cache of at most that many bytes.
func NewCache(most int) *Cache { return &Cache{byUser: make(map[string]*Row), most: most} }

// Row is an order, nil during the scan, and the texts of later changes, possibly repeated.
type Row struct {
	Order   *Order
	Changed []string
}

// Limits of the cache.
const (
	longRow    = 512 // records; shorter rows are scanned each time
	maxChanged = 64  // objects; with more, the keys are scanned again
)

// Row returns a user's row.
func (c *Cache) Row(uid string) *Row {
	r := c.byUser[uid]
	if r == nil {
		r = new(Row)
		c.byUser[uid] = r
	}
	return r
}

// Put caches an order, nil for none, unless the row has changed since the request or another call was faster.
func (c *Cache) Put(uid string, asked *Row, made *Order) {
	if c.byUser[uid] != asked || asked.Order != nil {
		return
	}
	if made == nil || len(made.spots) < longRow || made.size() > c.most || len(made.Damaged) > 0 {
		delete(c.byUser, uid)
		return
	}
	for other, r := range c.byUser { // evict any
		if c.size+made.size() <= c.most {
			break
		}
		c.forget(other, r)
	}
	c.byUser[uid] = &Row{Order: made}
	c.size += made.size()
}

// Change notes a change of a record, or of the user with an empty object. It precedes the change.
func (c *Cache) Change(uid, object []byte) {
	r := c.byUser[string(uid)]
	switch {
	case r == nil:
	case r.Order == nil || len(object) == 0 || len(r.Changed) >= maxChanged:
		c.forget(string(uid), r)
	default:
		r.Changed = append(r.Changed, string(object))
	}
}

func (c *Cache) forget(uid string, r *Row) {
	delete(c.byUser, uid)
	if r.Order != nil {
		c.size -= r.Order.size()
	}
}
