package pebble

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// pager keeps the newest visible records of a query, one more than the page holds.
type pager struct {
	half   *half
	query  history.Query
	oldest int64
	after  place
	user   history.User
	found  []found // newest first
	cut    bool    // there were more
	steady bool    // what it sees never changes
	seen   *ticket // what whoever reads the page waits for
}

type place struct {
	version history.Version
	object  []byte
}

type found struct {
	place
	record []byte
}

func (h *half) newPager(q history.Query, oldest int64) *pager {
	p := &pager{half: h, query: q, oldest: oldest, after: place{version: history.MaxVersion}}
	if q.After != (history.Cursor{}) {
		p.after = place{q.After.Version, []byte(q.After.Object.String())}
	}
	return p
}

// comparePlaces orders newest first, and of one version the greater text first.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(b.version, a.version), bytes.Compare(b.object, a.object))
}

// see takes a record in if the query asks for it. One that is damaged so that nobody knows
// its time stands last. The bytes are copied if they are kept and not steady.
func (p *pager) see(object, record []byte) error {
	r := peek(record)
	at := place{r.version, object}
	if r.state == history.StateDeleted || comparePlaces(at, p.after) <= 0 {
		return nil
	}
	if t := r.version.Time(); r.version != 0 && (t < p.query.Since || p.query.Until != 0 && t > p.query.Until) {
		return nil
	}
	if r.version.Time() < p.oldest && p.half.outlived(record, p.oldest) {
		return nil
	}
	visible, err := p.visible(object, r.version.Time())
	if err != nil || !visible {
		return err
	}
	p.insert(found{at, record})
	return nil
}

// visible applies what depends on the object's type, which is parsed only if
// anything does.
func (p *pager) visible(object []byte, at int64) (bool, error) {
	if p.query.Type == 0 && len(p.user.Cleared) == 0 {
		return true, nil
	}
	o, err := parseObject(object)
	return (p.query.Type == 0 || o.Type == p.query.Type) && (at == 0 || at > p.user.ClearedAt(o.Type)), err
}

func (p *pager) insert(f found) {
	n := p.query.Limit + 1
	if len(p.found) == n {
		p.cut = true
		if comparePlaces(f.place, p.found[n-1].place) > 0 {
			return
		}
		p.found = p.found[:n-1]
	}
	if !p.steady {
		f = f.clone()
	}
	p.found = insertFound(p.found, f)
}

// insertFound inserts f where it belongs.
func insertFound(newest []found, f found) []found {
	i, _ := slices.BinarySearchFunc(newest, f, func(a, b found) int { return comparePlaces(a.place, b.place) })
	return slices.Insert(newest, i, f)
}

func (f found) clone() found {
	return found{place{f.version, bytes.Clone(f.object)}, bytes.Clone(f.record)}
}

func (p *pager) page() (history.Page, error) {
	page := history.Page{User: p.user}
	if len(p.found) > p.query.Limit {
		page.More, p.found = true, p.found[:p.query.Limit]
	}
	for _, f := range p.found {
		item, err := p.item(f)
		if err != nil {
			return history.Page{}, err
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func (p *pager) item(f found) (item history.Item, err error) {
	if item.Object, err = parseObject(f.object); err != nil {
		return item, err
	}
	r, err := wire.Record(f.record)
	if err != nil || r == nil || r.State == 0 { // whoever loads it tells
		r = &history.Record{Revision: wire.Revision(f.record), Version: f.version, Partial: true}
	}
	if item.Record = r; r.Version != 0 {
		item.Record = r.Visible(item.Object, &p.user)
	}
	return item, nil
}
