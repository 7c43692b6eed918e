package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Users say of objects that they watched them or not, which is a report like any other, and whether
// they are to be offered to go on with, which is a decision about the record.

// mark sends a mark as of a time.
func (w *World) mark(c *client, obj history.Object, m historyv1.Mark, at int64) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	k, f := history.Key{UID: c.uid, Object: obj}, fact{at: min(at, s.clock.nowMS()), mark: m}
	b, begun := w.oracle.users[c.uid].book(obj), w.oracle.now()
	again := slices.ContainsFunc(b.facts, func(k *known) bool { return k.mark != 0 && k.at == f.at })
	sure, cold := w.oracle.sure(k, begun) != nil, w.cold[c.uid] // nobody knows what the archive hides
	a := w.oracle.report(k, f, historyv1.Ack_ACK_UNSPECIFIED)
	req := &historyv1.MarkRequest{Uid: c.uid, Objects: []*historyv1.Object{{Id: obj.ID, Type: obj.Type}}, Mark: m, AtMs: at}
	c.busy++
	w.ask(s, fmt.Sprintf("%s/%s %s", c.uid, obj, &f), func(ctx context.Context) (any, error) { return s.rpc.Mark(ctx, req) }, func(answer any, err error) {
		c.busy--
		var status historyv1.Status // nobody knows
		if err == nil {
			status = answer.(*historyv1.MarkResponse).Statuses[0]
		}
		w.tracef("%-7s -> mark %s/%s %s %v", s.name, c.uid, obj, strings.ToLower(strings.TrimPrefix(status.String(), "STATUS_")), err)
		if wrong := w.oracle.answer(a, status, s.number); wrong != "" {
			w.fail("%s: %s: %s", k, wrong, &f)
		} else if err == nil {
			w.told(a, status, answer.(*historyv1.MarkResponse).Records[0])
		}
		switch {
		case m == historyv1.Mark_MARK_WATCHED || a.sent < w.oracle.lost:
		case status == historyv1.Status_STATUS_STORED && !cold && !slices.ContainsFunc(b.facts, func(k *known) bool { return k != a.k && k.may() }):
			w.fail("%s: what nobody played is marked: %s", k, &f)
		case status == historyv1.Status_STATUS_UNCHANGED && !again && sure && w.oracle.sure(k, begun) != nil:
			w.fail("%s: what was played is not marked: %s", k, &f)
		}
	})
}

// dismiss takes an object out of what is offered to go on with, or offers it again.
func (w *World) dismiss(c *client, obj history.Object, offer bool) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	k, begun := history.Key{UID: c.uid, Object: obj}, w.oracle.now()
	sure := w.oracle.sure(k, begun) != nil
	d := w.oracle.dismiss(k, offer, s.clock.nowMS())
	req := &historyv1.DismissRequest{Uid: c.uid, Objects: []*historyv1.Object{{Id: obj.ID, Type: obj.Type}}, Offer: offer}
	c.busy++
	w.ask(s, fmt.Sprintf("dismiss %s, offer %t", k, offer), func(ctx context.Context) (any, error) { return s.rpc.Dismiss(ctx, req) }, func(answer any, err error) {
		c.busy--
		w.tracef("%-7s -> dismiss %s %v %v", s.name, k, answer, err)
		switch d.open--; {
		case err != nil || d.sent < w.oracle.lost:
			d.unknown++
		case answer.(*historyv1.DismissResponse).Found == 0: // there was nothing to decide about
			b := w.oracle.users[c.uid].book(obj)
			if b.dismissals = slices.DeleteFunc(b.dismissals, func(o *dismissal) bool { return o == d }); sure && w.oracle.sure(k, begun) != nil {
				w.fail("%s: there was nothing to dismiss, or to offer again", k)
			}
		default:
			d.acked = w.oracle.now()
			d.said(s.number)
		}
	})
}

// dismissal is a decision about whether an object is offered, with what is known of its fate. Its time is the
// earliest that it may have.
type dismissal struct {
	known
	offer  bool
	latest int64 // of the reports that were acknowledged before it
}

// dismiss notes that a decision was sent to a service whose clock shows now.
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

// checkDismissed judges what a read, begun at a time, shows of the decisions about a key.
func (o *oracle) checkDismissed(k history.Key, v view, begun int64) string {
	b := o.users[k.UID].book(k.Object)
	may := slices.ContainsFunc(b.dismissals, func(d *dismissal) bool { return !d.offer && d.may() && !b.revoked(d, begun) })
	must := slices.ContainsFunc(b.dismissals, func(d *dismissal) bool {
		return !d.offer && d.acked > 0 && d.acked < begun && o.stands(k, d)
	})
	switch {
	case !v.found:
	case v.dismissed != 0 && v.dismissed < v.at:
		return fmt.Sprintf("%s was played after it was dismissed at %s", k, moment(v.dismissed))
	case v.dismissed != 0 && !may:
		return fmt.Sprintf("%s is shown as dismissed at %s, and is not", k, moment(v.dismissed))
	case v.dismissed == 0 && must:
		return fmt.Sprintf("%s was dismissed, and is not shown so", k)
	}
	return ""
}

// revoked reports whether a later decision took an acknowledged one back.
func (b *book) revoked(d *dismissal, begun int64) bool {
	return d.acked > 0 && slices.ContainsFunc(b.dismissals, func(o *dismissal) bool {
		return o.offer && o.sent > d.acked && o.acked > 0 && o.acked < begun
	})
}

// stands reports whether nothing that came after an acknowledged decision can have ended it.
func (o *oracle) stands(k history.Key, d *dismissal) bool {
	b := o.users[k.UID].book(k.Object)
	before := func(k *known) bool { return k.acked > 0 && k.acked < d.sent }
	return !slices.ContainsFunc(b.dismissals, func(o *dismissal) bool { return o.offer && o.may() && !before(&o.known) }) &&
		!slices.ContainsFunc(b.facts, func(f *known) bool { return f.may() && f.at > d.at && !before(f) }) && !o.removed(k, d)
}

// removed reports whether what the decision is about may have been deleted or cleared since.
func (o *oracle) removed(k history.Key, d *dismissal) bool {
	u := o.users[k.UID]
	since := func(c *cut) bool {
		return (c.acked == 0 || c.acked > d.sent) && (c.typ == 0 || c.typ == k.Object.Type) && c.may(d.latest)
	}
	return slices.ContainsFunc(u.book(k.Object).deletes, since) || slices.ContainsFunc(u.clears, since)
}

// settleDismissals fixes the decisions about a key to what is seen once nothing is under way any more.
// What was lost may still be held somewhere. Where a clear is of the time between a record and the decision
// about it, the decision may be met again with what was reported in between.
func (o *oracle) settleDismissals(k history.Key, v view) {
	b := o.users[k.UID].book(k.Object)
	b.dismissals = slices.DeleteFunc(b.dismissals, func(d *dismissal) bool { return (d.acked > 0 || d.sent > o.lost) && !o.removed(k, d) })
	for _, d := range b.dismissals {
		d.acked, d.unknown = 0, 1
	}
	if v.dismissed != 0 {
		b.dismissals = append(b.dismissals, &dismissal{known: known{fact: fact{at: v.dismissed}, sent: o.now(), acked: o.now()}, latest: v.at})
	}
}
