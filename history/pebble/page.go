package pebble

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// Page implements [history.Archive]. A user's keys are in the order of the objects, and a page
// is in that of the versions. So the keys are gone through once for the order of the versions,
// and the order of a long row is remembered until something of it changes. Only the records of the
// page are read then.
func (a *Archive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if err := a.db.enter(ctx); err != nil {
		return history.Page{}, err
	}
	defer a.db.leave()
	m, err := a.moment(uid)
	if err != nil {
		return history.Page{}, err
	}
	if m.snapshot != nil {
		defer m.snapshot.Close()
	}
	page, err := a.pageOf(uid, m, q)
	if err == nil {
		err = a.db.wait(m.waitFor)
	}
	if err != nil {
		return history.Page{}, err
	}
	return page, nil
}

// moment is a user's row at one moment, and what an answer by it waits for.
type moment struct {
	prefix   []byte           // of the keys
	snapshot *pebble.Snapshot // nil for a row that has nothing
	order    *order           // to be made where it has not been
	waitFor  *syncWaiter
}

func (a *Archive) moment(uid string) (m moment, err error) {
	m.prefix = appendUser(nil, a.space, uid)
	a.lock.Lock()
	defer a.lock.Unlock()
	m.waitFor = a.unsynced.of(m.prefix)
	if a.memory.presence.lacksRow(m.prefix) {
		return m, nil
	}
	m.snapshot = a.db.pebble.NewSnapshot()
	m.order = a.db.orders.of(uid)
	return m, nil
}

func (a *Archive) pageOf(uid string, m moment, q history.Query) (page history.Page, err error) {
	if m.snapshot == nil {
		return page, nil
	}
	o := m.order
	if !o.made {
		o, err = a.newOrder(uid, m)
		a.remember(uid, m.order, o)
		if err != nil {
			return page, err
		}
	}
	page.User = o.user
	if q.After == (history.Cursor{}) {
		page.Damaged = slices.Clone(o.damaged)
	}
	if q.Limit <= 0 {
		return page, nil
	}
	return page, a.fill(&page, uid, m, o.after(q))
}

// remember keeps an order that was made, nil for none, unless the row has changed since.
func (a *Archive) remember(uid string, asked, made *order) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.db.orders.put(uid, asked, made)
}

// fill reads the records of a page, of those that may be in it.
func (a *Archive) fill(page *history.Page, uid string, m moment, s selection) error {
	oldest := a.oldest()
	key := bytes.Clone(m.prefix)
	for text := range s.all(oldest) {
		if len(page.Items) == s.query.Limit {
			page.More = true
			return nil
		}
		key = append(key[:len(m.prefix)], text...)
		err := get(m.snapshot, key, func(v []byte) error {
			if v != nil {
				a.add(page, uid, text, v, oldest)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a cell to a page. One that cannot be read is left out and named.
func (a *Archive) add(page *history.Page, uid, text string, value []byte, oldest int64) { //nolint:revive // what a cell is, and where it goes
	o, err := history.ParseObject(text)
	var r *history.Record
	if err == nil {
		r, err = a.record(value, oldest)
	}
	if err != nil {
		damage := damaged(history.Key{UID: uid, Object: o}, value, err)
		a.db.damage.cell(uid, text, damage)
		page.Damaged = append(page.Damaged, history.Damage{Object: o, Bytes: damage.Bytes, Err: damage})
		return
	}
	if r = r.After(page.User.ClearedAt(o.Type)); r != nil {
		page.Items = append(page.Items, history.Item{Object: o, Record: r})
	}
}

// order is a user's row in the order of [history.NewestFirst], without what the clear marks hide.
// It is never changed.
type order struct {
	made    bool
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

func (o *order) text(e spot) string { return string(o.texts[e.from:e.to]) }

// size is about how many bytes an order takes.
func (o *order) size() int { return 16*len(o.spots) + len(o.texts) }

// newOrder goes through a user's keys.
func (a *Archive) newOrder(uid string, m moment) (*order, error) {
	it, err := m.snapshot.NewIter(&pebble.IterOptions{LowerBound: m.prefix, UpperBound: after(m.prefix)})
	if err != nil {
		return nil, unavailable(err)
	}
	o, oldest := &order{made: true}, a.oldest()
	for key, v := range steps(it, &err) {
		switch text := key[len(m.prefix):]; {
		case len(text) == 0:
			var u history.User
			u, err = a.state(v, oldest)
			o.user = history.User{Cleared: u.Cleared, CutTime: u.CutTime, Pause: u.Pause}
		case a.expired(v, oldest):
		default:
			a.addTo(o, uid, text, v)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(o.spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(b.version, a.version), bytes.Compare(o.texts[b.from:b.to], o.texts[a.from:a.to]))
	})
	return o, nil
}

// addTo adds what a cell's first bytes say of it.
func (a *Archive) addTo(o *order, uid string, text, value []byte) {
	head := peek(value)
	if head.version == 0 { // to be named as damaged
		page := history.Page{User: o.user}
		a.add(&page, uid, string(text), value, 0)
		o.damaged = append(o.damaged, page.Damaged...)
		return
	}
	if len(o.user.Cleared) > 0 && head.version.Time() <= o.user.ClearedAt(typeOf(text)) {
		o.user.CutTime = max(o.user.CutTime, head.cellTime)
		return
	}
	from := uint32(len(o.texts)) //nolint:gosec // four GiB of objects' texts are no row
	o.texts = append(o.texts, text...)
	o.spots = append(o.spots, spot{head.version, from, uint32(len(o.texts))}) //nolint:gosec // as above
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

// selection is what of an order a query asks for.
type selection struct {
	order *order
	query history.Query
	from  int // the first entry behind the cursor
}

// after finds the spot of a query's first record.
func (o *order) after(q history.Query) selection {
	top := history.MaxVersion
	if q.Until > 0 {
		top = history.VersionOf(q.Until+1, 0) - 1
	}
	from, _ := slices.BinarySearchFunc(o.spots, top, func(e spot, top history.Version) int {
		return cmp.Compare(top, e.version)
	})
	if q.After != (history.Cursor{}) {
		text := []byte(q.After.Object.String())
		i, found := slices.BinarySearchFunc(o.spots, q.After.Version, func(e spot, v history.Version) int {
			return cmp.Or(cmp.Compare(v, e.version), bytes.Compare(text, o.texts[e.from:e.to]))
		})
		if found {
			i++
		}
		from = max(from, i)
	}
	return selection{o, q, from}
}

// all yields the texts of what the query asks for and has not expired.
func (s selection) all(oldest int64) func(func(string) bool) {
	since := max(s.query.Since, oldest)
	return func(yield func(string) bool) {
		for _, e := range s.order.spots[s.from:] {
			if e.version.Time() < since {
				return
			}
			text := s.order.text(e)
			if (s.query.Type == 0 || typeOf(text) == s.query.Type) && !yield(text) {
				return
			}
		}
	}
}

// orders remembers the orders of long rows that were asked for lately. The lock of the archive
// guards it.
type orders struct {
	byUser map[string]*order
	size   int
}

// Bounds of what is remembered.
const (
	longRow     = 512      // records; shorter ones are gone through each time
	ordersBytes = 64 << 20 // of all orders together
)

// of returns the order of a user's row, or an empty one that stands for the row as it is now.
func (s *orders) of(uid string) *order {
	if s.byUser == nil {
		s.byUser = make(map[string]*order)
	}
	o := s.byUser[uid]
	if o == nil {
		o = new(order)
		s.byUser[uid] = o
	}
	return o
}

// put has an order take the spot of the one that stood for the row when it was read.
func (s *orders) put(uid string, asked, made *order) {
	if s.byUser[uid] != asked {
		return // the row has changed, or another page was first
	}
	delete(s.byUser, uid)
	if made == nil || len(made.spots) < longRow || made.size() > ordersBytes || len(made.damaged) > 0 {
		return
	}
	for other, o := range s.byUser { // any of them
		if s.size+made.size() <= ordersBytes {
			break
		}
		s.forget(other, o)
	}
	s.byUser[uid] = made
	s.size += made.size()
}

// changed is called before Pebble has a key.
func (s *orders) changed(key []byte) {
	if len(s.byUser) == 0 {
		return
	}
	uid := key[keyPrefix:]
	uid = uid[:bytes.IndexByte(uid, endOfUID)]
	if o := s.byUser[string(uid)]; o != nil {
		s.forget(string(uid), o)
	}
}

func (s *orders) forget(uid string, o *order) {
	delete(s.byUser, uid)
	s.size -= o.size()
}
