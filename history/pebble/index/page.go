package index

import (
	"bytes"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Head has the newest records of a recently read user, enough for the first pages. Writes update it; any other
// change of the user drops it. Its user locks it, except for the immutable bytes.
type Head struct {
	User   history.User // as stored
	ready  bool         // filled
	stale  bool         // written during the fill
	newest []found      // newest first
	last   Place        // newest is complete down to here; zero for all
}

// HeadSize is the number of records of a head.
const HeadSize = 64

// Fill fills the head from a pager of HeadSize-1 that has seen all records. It fails after a write meanwhile.
func (h *Head) Fill(p *Pager) bool {
	if h.stale {
		return false
	}
	h.ready, h.User, h.newest = true, p.User, p.found
	if p.cut {
		h.last = h.newest[len(h.newest)-1].Place
	}
	return true
}

// Write adds a new record of the user.
func (h *Head) Write(object, record []byte) {
	if !h.ready {
		h.stale = true
		return
	}
	h.newest = slices.DeleteFunc(h.newest, func(f found) bool { return bytes.Equal(f.Object, object) })
	r := wire.Peek(record)
	at := Place{r.Version, object}
	if r.State == history.StateDeleted || Compare(at, h.last) > 0 {
		return
	}
	h.newest = insert(h.newest, found{at, record}.clone())
	if len(h.newest) > HeadSize {
		h.newest = h.newest[:HeadSize]
		h.last = h.newest[HeadSize-1].Place
	}
}

// Ready reports whether the head is filled.
func (h *Head) Ready() bool { return h.ready }

// Read fills a page and reports whether the head has all of it.
func (h *Head) Read(p *Pager) bool {
	p.steady = true
	for _, f := range h.newest {
		if p.Add(f.Object, f.record) != nil {
			return false
		}
		if len(p.found) > p.query.Limit { // one extra shows that there is more
			return true
		}
	}
	return h.last.Object == nil
}

// Pager collects the newest visible records of a query, up to one more than the page.
type Pager struct {
	User    history.User
	query   history.Query
	expired func(history.Version, []byte) bool
	after   Place
	found   []found // newest first
	cut     bool    // more exist
	steady  bool    // input bytes are immutable
}

// NewPager returns a pager of a query. It asks expired for the version of a record and the record.
func NewPager(q history.Query, expired func(v history.Version, record []byte) bool) *Pager {
	p := &Pager{query: q, expired: expired, after: Place{Version: history.MaxVersion}}
	if q.After != (history.Cursor{}) {
		p.after = Place{q.After.Version, []byte(q.After.Object.String())}
	}
	return p
}

// Add adds an encoded record if the query asks for it. A damaged record without a readable time sorts last.
func (p *Pager) Add(object, record []byte) error {
	r := wire.Peek(record)
	at := Place{r.Version, object}
	if r.State == history.StateDeleted || Compare(at, p.after) <= 0 {
		return nil
	}
	if t := r.Version.Time(); r.Version != 0 && (t < p.query.Since || p.query.Until != 0 && t > p.query.Until) {
		return nil
	}
	if p.expired(r.Version, record) {
		return nil
	}
	visible, err := p.visible(object, r.Version.Time())
	if err != nil || !visible {
		return err
	}
	n := p.query.Limit + 1
	if len(p.found) == n {
		p.cut = true
		if Compare(at, p.found[n-1].Place) > 0 {
			return nil
		}
		p.found = p.found[:n-1]
	}
	f := found{at, record}
	if !p.steady {
		f = f.clone()
	}
	p.found = insert(p.found, f)
	return nil
}

// visible applies the conditions on the object's type. It parses the object only if needed.
func (p *Pager) visible(object []byte, at int64) (bool, error) {
	if p.query.Type == 0 && len(p.User.Cleared) == 0 {
		return true, nil
	}
	o, err := history.ParseObject(string(object))
	return (p.query.Type == 0 || o.Type == p.query.Type) && (at == 0 || at > p.User.ClearedAt(o.Type)), err
}

// Page decodes what was found.
func (p *Pager) Page() (history.Page, error) {
	page := history.Page{User: p.User}
	if len(p.found) > p.query.Limit {
		page.More, p.found = true, p.found[:p.query.Limit]
	}
	for _, f := range p.found {
		o, err := history.ParseObject(string(f.Object))
		if err != nil {
			return history.Page{}, err
		}
		r, err := wire.Record(f.record)
		if err != nil || r == nil || r.State == 0 { // Load reports it
			r = &history.Record{Revision: wire.Revision(f.record), Version: f.Version, Partial: true}
		}
		if r.Version != 0 {
			r = r.Visible(o, &p.User)
		}
		page.Items = append(page.Items, history.Item{Object: o, Record: r})
	}
	return page, nil
}

// found is an encoded record.
type found struct {
	Place
	record []byte
}

func insert(newest []found, f found) []found {
	i, _ := slices.BinarySearchFunc(newest, f, func(a, b found) int { return Compare(a.Place, b.Place) })
	return slices.Insert(newest, i, f)
}

func (f found) clone() found {
	return found{Place{f.Version, bytes.Clone(f.Object)}, bytes.Clone(f.record)}
}
