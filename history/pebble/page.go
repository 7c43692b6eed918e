package pebble

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
)

// Page implements [history.Archive]. A user's keys are in the order of the objects, and a page
// is in that of the versions. So the keys are gone through once for the order of the versions, and
// that of a long row is remembered, with what has changed since. Only the records of the page are
// read then.
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
	page.User.Parts = 0
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
	asked    *remembered
	order    *order   // nil where it has to be made
	changed  []string // since
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
	m.asked = a.db.orders.of(uid)
	m.order, m.changed = m.asked.order, m.asked.changed
	return m, nil
}

func (a *Archive) pageOf(uid string, m moment, q history.Query) (page history.Page, err error) {
	if m.snapshot == nil {
		return page, nil
	}
	o := m.order
	if o == nil {
		o, err = a.newOrder(uid, m)
		a.remember(uid, m.asked, o)
		if err != nil {
			return page, err
		}
	}
	since, err := a.changes(uid, m, o)
	if err != nil {
		return page, err
	}
	page.User = since.user
	if q.After == (history.Cursor{}) {
		page.Damaged = slices.Concat(o.damaged, since.damaged)
	}
	if q.Limit <= 0 {
		return page, nil
	}
	read := a.fill
	if page.User.Parts > 0 {
		read = a.stitch
	}
	return page, read(&page, uid, m, newSelection(q, o, since, m.changed))
}

// remember keeps an order that was made, nil for none, unless the row has changed since.
func (a *Archive) remember(uid string, asked *remembered, made *order) {
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

// newOrder goes through a user's keys.
func (a *Archive) newOrder(uid string, m moment) (*order, error) {
	it, err := m.snapshot.NewIter(rangeOf(m.prefix))
	if err != nil {
		return nil, unavailable(err)
	}
	o, oldest := new(order), a.oldest()
	for key, v := range steps(it, &err) {
		switch text := key[len(m.prefix):]; {
		case len(text) == 0:
			var u history.User
			u, err = a.state(v, oldest)
			o.user = history.User{Cleared: u.Cleared, CutTime: u.CutTime, Pause: u.Pause, Parts: u.Parts}
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
	o.sort()
	a.noteLong(uid, len(o.spots))
	return o, nil
}

// changes returns the order of what has changed since another one was made.
func (a *Archive) changes(uid string, m moment, o *order) (*order, error) {
	since, oldest, key := &order{user: o.user}, a.oldest(), bytes.Clone(m.prefix)
	for i, text := range m.changed {
		if slices.Contains(m.changed[:i], text) {
			continue
		}
		key = append(key[:len(m.prefix)], text...)
		err := get(m.snapshot, key, func(v []byte) error {
			if v != nil && !a.expired(v, oldest) {
				a.addTo(since, uid, key[len(m.prefix):], v)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	since.sort()
	return since, nil
}

func (o *order) sort() {
	slices.SortFunc(o.spots, func(a, b spot) int {
		return comparePlaces(o.place(a), o.place(b))
	})
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
}

// remembered is an order, nil while it is being made, and the texts of what has changed since.
// The same object may be among them several times.
type remembered struct {
	order   *order
	changed []string
}

// Bounds of what is remembered.
const (
	longRow     = 512      // records; shorter ones are gone through each time
	maxChanged  = 64       // objects; with more the keys are gone through again
	ordersBytes = 64 << 20 // of all orders together
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
	if made == nil || len(made.spots) < longRow || made.size() > ordersBytes || len(made.damaged) > 0 {
		delete(s.byUser, uid)
		return
	}
	for other, r := range s.byUser { // any of them
		if s.size+made.size() <= ordersBytes {
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
