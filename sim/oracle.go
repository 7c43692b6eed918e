package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func newOracle(uids []string, divided bool) *oracle {
	o := &oracle{users: make(map[string]*userBook)}
	for _, uid := range uids {
		o.users[uid] = &userBook{keys: make(map[history.Object]*book), pause: pauseBook{divided: divided, exact: true}}
	}
	return o
}

func (o *oracle) now() int64 {
	o.time++
	return o.time
}

// attempt is one report in flight to a service.
type attempt struct {
	k      *known
	object history.Object
	uid    string
	pauses pauseState // as known when it was sent
	ack    historyv1.Ack
	sent   int64
	knows  int64 // Time of the record that its etag names; 0 without one.
	exact  bool  // The pauses were certain when it was sent.
	makes  bool  // A mark that creates a missing record.
}

// report notes a report on its way, as the service accepts it.
func (o *oracle) report(key history.Key, f fact, ack historyv1.Ack) *attempt {
	u := o.users[key.UID]
	b := u.book(key.Object)
	k := b.by[f]
	if k == nil {
		k = &known{fact: f, sent: o.now(), began: u.pause.changes, unsure: !u.pause.certain()}
		b.by[f], b.facts = k, append(b.facts, k)
	}
	k.open++
	return &attempt{k: k, object: key.Object, uid: key.UID, pauses: u.pause.state(), ack: ack, sent: o.now(), exact: u.pause.certain()}
}

// answer notes the answer to an attempt: an unspecified status for none. It returns what is wrong with the
// answer.
func (o *oracle) answer(a *attempt, status historyv1.Status, service int) string {
	a.k.open--
	u := o.users[a.uid]
	if status == historyv1.Status_STATUS_UNCHANGED && a.k.mark != 0 && !a.makes {
		status = 0 // there may be nothing to mark
	}
	switch status {
	case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
		queued := a.ack == historyv1.Ack_ACK_QUEUED
		switch a.k.safe = a.k.safe || queued; {
		case a.sent < o.lost: // the cache may have lost it since
			a.k.unknown++
			a.k.promised = a.k.promised || queued
			if !o.torn(u, a.object, a.k) {
				a.k.saidBeside(service)
			}
		case a.k.acked == 0:
			a.k.acked = o.now()
			a.k.judged(&u.pause)
		}
		if a.sent > o.lost {
			a.k.said(service)
		}
		if u.pause.off(a.pauses, a.k.at) || a.k.late || u.pause.gone(a) {
			return "a report was recorded although recording is switched off"
		}
		if status == historyv1.Status_STATUS_STORED && o.namesGone(a) {
			return "a report was recorded although it names a record that is gone"
		}
	case historyv1.Status_STATUS_CLEARED:
		if !u.cleared(a.object.Type, a.k.at) && !u.book(a.object).deleted(a.k.at) {
			return "a report was refused as cleared, and nobody cleared that"
		}
	case historyv1.Status_STATUS_PAUSED:
		if u.pause.on(a.pauses, a.k.at) {
			return "a report was refused although recording is switched on"
		}
	case historyv1.Status_STATUS_CONFLICT, historyv1.Status_STATUS_EXPIRED:
	default:
		a.k.unknown++
	}
	return ""
}

// namesGone reports whether the record named by an attempt was deleted or cleared before the attempt. A later
// report of the same viewing may have replaced that record.
func (o *oracle) namesGone(a *attempt) bool {
	if a.knows == 0 || a.sent < o.lost || o.restored(history.Key{UID: a.uid, Object: a.object}) {
		return false
	}
	u := o.users[a.uid]
	b := u.book(a.object)
	gone := func(c *cut) bool {
		return c.acked > 0 && c.acked < a.sent && c.at >= a.knows && (c.typ == 0 || c.typ == a.object.Type)
	}
	return (slices.ContainsFunc(b.deletes, gone) || slices.ContainsFunc(u.clears, gone)) && !slices.ContainsFunc(b.facts, func(f *known) bool {
		return f != a.k && f.at > a.knows && f.viewing() == a.k.viewing() && f.may()
	})
}

// lose notes that the cache may have lost everything since the last rest. Three things return by the next rest:
// queued acknowledgements, archived records, and the memory of services that live until then.
func (o *oracle) lose(archived func(history.Key) history.Entry, remembers memory) {
	begun := o.now()
	for uid, u := range o.users {
		for obj, b := range u.keys {
			key := history.Key{UID: uid, Object: obj}
			o.archived(key, archived(key))
			for _, k := range b.all() {
				k.late = false // the pause is lost too
				k.unsure = k.unsure || k.acked == 0
				switch was := k.acked > o.rested; {
				case was:
					k.acked, k.exact, k.unsure = 0, false, true
					k.unknown++
					fallthrough
				case k.promised:
					if k.lost(key, k.safe, remembers); o.torn(u, obj, k) {
						k.witnesses = witnesses{}
					}
				}
			}
			for _, k := range b.restored {
				k.acked = 0
			}
			forget(b.deletes, o.rested, key, remembers)
		}
		forget(u.clears, o.rested, history.UserKey(uid), remembers)
		if p := &u.pause; p.sure && p.open == 0 || p.promised {
			p.lost(history.UserKey(uid), false, remembers)
		}
		u.pause.sure, u.pause.exact, u.pause.halfway = false, false, u.pause.divided
		u.pause.unknown++
	}
	o.lost = begun
}

// reported reports whether a report of an object may have been stored since a time.
func (o *oracle) reported(uid string, obj history.Object, since int64) bool {
	return slices.ContainsFunc(o.users[uid].book(obj).facts, func(k *known) bool { return k.acked == 0 || k.acked >= since })
}

// torn reports whether a lost delete or clear may cover a lost report: the service that held the report may have
// dropped it.
func (o *oracle) torn(u *userBook, obj history.Object, k *known) bool {
	covers := func(c *cut) bool { return c.sent > o.rested && c.covers(obj.Type, k.at) }
	return slices.ContainsFunc(u.book(obj).deletes, covers) || slices.ContainsFunc(u.clears, covers)
}

// archived notes which acknowledged facts of a key the archive has. It notes none unless the archive shows them
// all. It notes none while an unacknowledged report may exist: one play may replace another.
func (o *oracle) archived(k history.Key, e history.Entry) {
	b, removed := o.users[k.UID].book(k.Object), int64(0)
	if len(b.restored) > 0 {
		return
	}
	for _, f := range b.facts {
		if f.acked == 0 && f.may() && !f.archived {
			return
		}
	}
	least, _ := o.span(o.users[k.UID], k.Object, o.time+1)
	if !o.shows(b, k, least, e) {
		return
	}
	for _, f := range b.facts {
		f.archived = f.archived || f.acked > 0 && f.at > least
	}
	if e.Record != nil {
		removed = e.Record.RemovedAt
	}
	for _, c := range b.deletes {
		c.archived = c.archived || c.acked > 0 && c.at <= removed
	}
}

// shows reports whether the archive shows its earlier facts and all facts acknowledged since. The event time
// tells apart two reports with equal positions.
func (o *oracle) shows(b *book, k history.Key, least int64, e history.Entry) bool {
	for _, f := range b.facts {
		if f.archived && f.acked == 0 {
			f.acked = 1
			defer func() { f.acked = 0 }()
		}
	}
	bs := o.bounds(k, least, o.time+1)
	r := e.Record.Visible(k.Object, &e.User)
	if f := latest(bs.must, nonEarly); f != nil && r != nil && r.LeftOff().Version.Time() < f.at {
		return false
	}
	return bs.judge(recordView(r)) == ""
}

func forget(cuts []*cut, since int64, k history.Key, remembers memory) {
	for _, c := range cuts {
		if c.acked > since || c.promised {
			c.acked = 0
			c.lost(k, false, remembers)
		}
	}
}

func (o *oracle) died(service int) {
	for _, u := range o.users {
		for _, b := range u.keys {
			for _, k := range b.all() {
				k.died(service, k.safe)
			}
			for _, c := range b.deletes {
				c.died(service, false)
			}
		}
		for _, c := range u.clears {
			c.died(service, false)
		}
		u.pause.died(service, false)
	}
}

func (o *oracle) rest() {
	for _, u := range o.users {
		for _, b := range u.keys {
			for _, k := range b.all() {
				if k.promised && k.acked == 0 {
					k.acked = o.now()
				}
				k.promised, k.archived = false, false
			}
			o.restCuts(b.deletes, b)
		}
		o.restCuts(u.clears, slices.Collect(maps.Values(u.keys))...)
		if p := &u.pause; p.promised {
			p.promised, p.sure, p.unknown = false, true, 0
		}
	}
	o.rested = o.now()
}

func (o *oracle) restCuts(cuts []*cut, books ...*book) {
	for _, c := range cuts {
		c.close(books...)
		if c.promised && c.acked == 0 {
			c.acked = o.now()
		}
		c.promised, c.archived = false, false
	}
}

// done notes the acknowledgement of a delete or a clear.
func (o *oracle) done(c *cut, service int) bool {
	if c.sent < o.lost { // the service may have found an empty cache
		c.at = c.own
		c.saidBeside(service)
		return false
	}
	c.acked = o.now()
	c.said(service)
	return true
}

// remove notes a delete on its way. Without a time of its own it covers all acknowledged reports, if the cache
// surely has them. Otherwise the service's clock may be behind, and it does not wait for an unavailable archive.
func (o *oracle) remove(k history.Key, at, now int64, sure bool) *cut {
	b := o.users[k.UID].book(k.Object)
	c := &cut{at: now, raised: at == 0, sent: o.now()}
	if at != 0 {
		c.at = min(at, now)
	}
	if c.own = c.at; at == 0 && sure {
		for _, k := range b.facts {
			if k.acked > 0 {
				c.at = max(c.at, k.at)
			}
		}
	}
	b.deletes = append(b.deletes, c)
	return c
}

func (o *oracle) clear(req *historyv1.ClearRequest, now int64) *cut {
	u := o.users[req.Uid]
	c := &cut{typ: req.Type, at: now, raised: req.UntilMs == 0, sent: o.now()}
	if req.UntilMs != 0 {
		c.at = min(req.UntilMs, now)
	}
	c.own = c.at
	u.clears = append(u.clears, c)
	return c
}

// leaves returns a report acknowledged before a clear was sent that the clear does not cover, or nil.
func (o *oracle) leaves(uid string, c *cut) *known {
	u := o.users[uid]
	for obj, b := range u.keys {
		for _, k := range b.facts {
			if (c.typ == 0 || c.typ == obj.Type) && k.acked > 0 && k.acked < c.sent && k.at > c.at && !b.deleted(k.at) && !u.cleared(obj.Type, k.at) {
				return k
			}
		}
	}
	return nil
}

// span returns the possible cuts of a key: the certain one, and others that may be later.
func (o *oracle) span(u *userBook, obj history.Object, begun int64) (least int64, others []int64) {
	b := u.book(obj)
	each := func(c *cut) {
		if c.acked > 0 && c.acked < begun {
			least = max(least, c.at)
		}
		others = append(append(others, c.at), c.raisedBy(b)...)
	}
	for _, c := range b.deletes {
		each(c)
	}
	for _, c := range u.clears {
		if c.typ == 0 || c.typ == obj.Type {
			each(c)
		}
	}
	slices.Sort(others)
	others = slices.DeleteFunc(slices.Compact(others), func(at int64) bool { return at <= least })
	return least, others
}

// bounds returns the facts behind a cut.
func (o *oracle) bounds(key history.Key, behind, begun int64) bounds {
	u := o.users[key.UID]
	b := u.book(key.Object)
	bs := bounds{cut: behind, off: u.pause.first, may: make([]*known, 0, len(b.facts))}
	for _, k := range b.facts {
		if !k.may() {
			continue
		}
		if k.at <= behind {
			bs.removed = true
			continue
		}
		bs.may = append(bs.may, k)
		if k.acked > 0 && k.acked < begun {
			bs.must = append(bs.must, k)
		}
	}
	return bs
}

// check judges the view from a read of a key that began at a time.
func (o *oracle) check(k history.Key, v view, begun int64) string {
	if o.restored(k) {
		return o.checkRestored(k, v, begun)
	}
	u := o.users[k.UID]
	cuts := o.cuts(k, begun)
	if _, fits := o.fits(k, v, begun, cuts); fits {
		return ""
	}
	bs := o.bounds(k, cuts[0], begun)
	wrong := bs.judge(v)
	var text strings.Builder
	fmt.Fprintf(&text, "%s: %s\n  shown: %s\n  nothing up to %s, perhaps %v, exists; known:\n", k, wrong, v, moment(cuts[0]), cuts[1:])
	for _, f := range u.book(k.Object).facts {
		if f.at > cuts[0] && f.may() {
			fmt.Fprintf(&text, "    %s %s\n", f.fate(begun), &f.fact)
		}
	}
	return text.String()
}

// cuts returns the possible cuts of a key, the least first.
func (o *oracle) cuts(k history.Key, begun int64) []int64 {
	least, others := o.span(o.users[k.UID], k.Object, begun)
	return append([]int64{least}, others...)
}

// fits returns the first cut that explains the view.
func (o *oracle) fits(k history.Key, v view, begun int64, cuts []int64) (int64, bool) {
	for _, at := range cuts {
		if v.found && at >= v.at {
			break // it would be hidden
		}
		if bs := o.bounds(k, at, begun); bs.judge(v) == "" {
			return at, true
		}
	}
	return 0, false
}

func (k *known) fate(begun int64) string {
	switch {
	case k.acked > 0 && k.acked < begun:
		return "acknowledged"
	case k.acked > 0:
		return "acknowledged meanwhile"
	}
	return "perhaps"
}

// paused judges a view from a read that began while recording was off. A report from the pause that is not
// visible by then can never land.
func (o *oracle) paused(k history.Key, v view, then pauseState) {
	u, cuts := o.users[k.UID], o.cutsFromNow(k)
	for _, f := range u.book(k.Object).facts {
		if f.acked == 0 && f.may() && f.sent > o.lost && !o.restored(k) && u.pause.off(then, f.at) && o.decide(k, v, f, cuts) == out {
			f.unknown, f.late = 0, true
		}
	}
}

// sure returns the latest fact of a key that every read since a time shows. It returns nil if there may be none,
// or a later one.
func (o *oracle) sure(k history.Key, begun int64) *fact {
	bs := o.leastBounds(k, begun)
	first, last := latest(bs.must, any1), latest(bs.may, any1)
	if first == nil || o.restored(k) || compareFacts(first, last) != 0 {
		return nil
	}
	return first
}

// stays returns a fact that keeps a key listed at one place, or nil if it may move or be absent. A late report
// from before top may move the key to a part of the list that was already read.
func (o *oracle) stays(k history.Key, begun, top int64) *fact {
	bs := o.leastBounds(k, begun)
	first := latest(bs.must, any1)
	if first == nil || o.restored(k) || slices.ContainsFunc(bs.may, func(f *known) bool { return f.at <= top && compareFacts(&f.fact, first) > 0 }) {
		return nil
	}
	return first
}

// leastBounds returns the facts behind every possible cut of a read since a time.
func (o *oracle) leastBounds(k history.Key, begun int64) bounds {
	least, others := o.span(o.users[k.UID], k.Object, begun)
	for _, at := range others {
		least = max(least, at)
	}
	return o.bounds(k, least, begun)
}

// completed reports whether every read since a time shows a play that is no scrub, and no mark can remove it.
func (o *oracle) completed(k history.Key, begun int64) bool {
	bs := o.leastBounds(k, begun)
	surely := func(f *fact) bool { return f.completes() && f.sure() }
	unwatched := func(f *fact) bool { return f.mark == historyv1.Mark_MARK_UNWATCHED }
	return !o.restored(k) && latest(bs.must, surely) != nil && latest(bs.may, unwatched) == nil
}

// resolve fixes unanswered reports of a key to the view at rest, where the view tells.
func (o *oracle) resolve(k history.Key, v view) {
	cuts := o.cutsFromNow(k)
	for _, f := range o.users[k.UID].book(k.Object).facts {
		if f.acked > 0 || !f.may() {
			continue
		}
		switch o.decide(k, v, f, cuts) {
		case in:
			f.acked = o.now()
		case out:
			if f.sent > o.lost { // a lost report may still be held somewhere
				f.unknown = 0
			}
		}
	}
}

// fate is what a view tells about a fact.
type fate int

const (
	undecided fate = iota
	in
	out
)

// cutsFromNow returns the possible cuts from now on. It computes them once if no report can raise one.
func (o *oracle) cutsFromNow(k history.Key) func() []int64 {
	u := o.users[k.UID]
	cuts := func() []int64 { return o.cuts(k, o.time+1) }
	if rises := func(c *cut) bool { return c.raised && !c.closed }; slices.ContainsFunc(u.book(k.Object).deletes, rises) || slices.ContainsFunc(u.clears, rises) {
		return cuts
	}
	return sync.OnceValue(cuts)
}

// decide returns the fate of a fact in a view.
func (o *oracle) decide(k history.Key, v view, f *known, cuts func() []int64) fate {
	was := *f
	defer func() { *f = was }()
	shown := func() bool {
		_, fits := o.fits(k, v, o.time+1, cuts())
		return fits
	}
	f.unknown, f.acked = 0, 1
	with := shown()
	*f = known{fact: was.fact, sent: was.sent}
	without := shown()
	switch {
	case with && !without:
		return in
	case without && !with:
		return out
	}
	return undecided
}

// fixCuts narrows the cuts of a key to those that the view allows, and drops the facts before them. With classes,
// an unanswered clear may have reached readers only. Until the clear is repeated, a service merges into its held
// record, and its answers show that record.
func (o *oracle) fixCuts(k history.Key, v view) {
	u := o.users[k.UID]
	b, begun := u.book(k.Object), o.time+1
	cuts := o.cuts(k, begun)
	least := cuts[0]
	if at, fits := o.fits(k, v, begun, cuts); fits && at > least {
		least = at
		halfway := func(c *cut) bool { return c.acked == 0 && c.covers(k.Object.Type, least) }
		if u.pause.divided && slices.ContainsFunc(u.clears, halfway) {
			return
		}
		b.deletes = append(b.deletes, &cut{at: least, sent: begun, acked: o.now()})
	}
	b.facts = slices.DeleteFunc(b.facts, func(f *known) bool {
		gone := f.at <= least && f.open == 0 || !f.may()
		if gone {
			delete(b.by, f.fact)
		}
		return gone
	})
}

// dismiss notes a decision sent to a service whose clock shows now.
func (o *oracle) dismiss(k history.Key, offer bool, now int64) *dismissal {
	b := o.users[k.UID].book(k.Object)
	d := &dismissal{known: known{sent: o.now(), open: 1}, offer: offer}
	for _, f := range b.facts {
		if f.acked > 0 {
			d.latest = max(d.latest, f.at)
		}
	}
	d.at = max(now, d.latest)
	b.dismissals = append(b.dismissals, d)
	return d
}

// checkDismissed judges the dismissal in a view from a read that began at a time.
func (o *oracle) checkDismissed(k history.Key, v view, begun int64) string {
	b := o.users[k.UID].book(k.Object)
	may := slices.ContainsFunc(b.dismissals, func(d *dismissal) bool { return !d.offer && d.may() && !b.revoked(d, begun) })
	must := slices.ContainsFunc(b.dismissals, func(d *dismissal) bool {
		return !d.offer && d.acked > 0 && d.acked < begun && o.stands(k, d)
	})
	switch {
	case !v.found || o.restored(k):
	case v.dismissed != 0 && v.dismissed < v.at && !slices.ContainsFunc(b.facts, func(f *known) bool { return f.mark != 0 && f.at == v.at }):
		return fmt.Sprintf("%s was played after it was dismissed at %s", k, moment(v.dismissed))
	case v.dismissed != 0 && !may:
		return fmt.Sprintf("%s is shown as dismissed at %s, and is not", k, moment(v.dismissed))
	case v.dismissed == 0 && must:
		return fmt.Sprintf("%s was dismissed, and is not shown so", k)
	}
	return ""
}

// stands reports whether nothing later can have ended an acknowledged decision.
func (o *oracle) stands(k history.Key, d *dismissal) bool {
	b := o.users[k.UID].book(k.Object)
	before := func(k *known) bool { return k.acked > 0 && k.acked < d.sent }
	return !slices.ContainsFunc(b.dismissals, func(o *dismissal) bool { return o.offer && o.may() && !before(&o.known) }) &&
		!slices.ContainsFunc(b.facts, func(f *known) bool { return f.may() && f.at > d.at && !before(f) }) && !o.removed(k, d)
}

// removed reports whether a delete or a clear may have removed the dismissed record since.
func (o *oracle) removed(k history.Key, d *dismissal) bool {
	u := o.users[k.UID]
	since := func(c *cut) bool {
		return (c.acked == 0 || c.acked > d.sent) && (c.typ == 0 || c.typ == k.Object.Type) && c.may(d.latest)
	}
	return slices.ContainsFunc(u.book(k.Object).deletes, since) || slices.ContainsFunc(u.clears, since)
}

// fixDismissals fixes the decisions about a key to the view at rest. A lost decision may still be held somewhere.
// If a clear falls between a record and its dismissal, a report in between may restore the dismissal.
func (o *oracle) fixDismissals(k history.Key, v view) {
	b := o.users[k.UID].book(k.Object)
	b.dismissals = slices.DeleteFunc(b.dismissals, func(d *dismissal) bool { return (d.acked > 0 || d.sent > o.lost) && !o.removed(k, d) })
	for _, d := range b.dismissals {
		d.acked, d.unknown = 0, 1
	}
	if v.dismissed != 0 {
		b.dismissals = append(b.dismissals, &dismissal{known: known{fact: fact{at: v.dismissed}, sent: o.now(), acked: o.now()}, latest: v.at})
	}
}
