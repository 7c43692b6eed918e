package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// ask sends a request to a service. It calls done once, with an error if the outcome is unknown.
func (w *World) ask(s *service, what string, request func(context.Context) (any, error), done func(any, error)) {
	w.calls++
	c := &call{number: w.calls, err: errNoAnswer, done: done}
	if w.traced() {
		w.tracef("%-7s <- %d %s", s.name, c.number, what)
	}
	if d, wrong := w.src.chance(streamWire, w.faults()/2); wrong && d.one(2) {
		c.done = func(any, error) {
			w.tracef("%-7s -> %d the answer is lost", s.name, c.number)
			done(nil, errNoAnswer)
		}
	}
	go func() {
		defer func() {
			if v := recover(); v != nil && !s.dead.Load() { // one of its goroutines ended with its process
				panic(v)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.completed = append(w.completed, c)
		}()
		ctx, cancel := context.WithTimeout(context.WithValue(s.ctx, callKey{}, c.number), 3*requestLimit)
		defer cancel()
		if answer, err := request(ctx); !s.dead.Load() {
			c.answer, c.err = answer, err
		}
	}()
}

// serving returns the service for a client's call, or nil.
func (w *World) serving(uid string) *service {
	if w.through != anyService && !w.services[w.through].dead.Load() {
		return w.services[w.through]
	}
	n := int(history.BucketOf(uid)) % len(w.services)
	if d, ok := w.src.chance(streamEdge, w.traits.astray); ok {
		n = d.n(len(w.services))
	}
	for i := range w.services {
		if s := w.services[(n+i)%len(w.services)]; !s.dead.Load() {
			return s
		}
	}
	return nil
}

// answered notes the statuses of reports; nil if unknown.
func (c *client) answered(s *submission, statuses []historyv1.Status, items []*historyv1.Item) {
	c.busy--
	for i, hb := range s.heartbeats {
		if statuses == nil || statuses[i] == historyv1.Status_STATUS_UNAVAILABLE {
			c.after = time.Now().Add(50 * time.Millisecond)
			continue // retried later
		}
		if i < len(items) && items[i].GetObject() != nil {
			c.etags[history.Object{ID: hb.ObjectId, Type: hb.ObjectType}] = items[i].GetEtag()
			if !incomplete(items[i]) {
				c.named[items[i].GetEtag()] = items[i].GetEventTimeMs()
			}
		}
		c.outbox = slices.DeleteFunc(c.outbox, func(o *historyv1.Heartbeat) bool { return o == hb })
		if c.done = append(c.done, hb); len(c.done) > 4 {
			c.done = c.done[1:]
		}
	}
}

// flush sends one batch of waiting messages, usually to the first user's service.
func (e *edge) flush(w *World) {
	batch := []*submission{e.waiting[0]}
	left := e.waiting[:0:0]
	for _, s := range e.waiting[1:] {
		if s.ack == batch[0].ack {
			batch = append(batch, s)
		} else {
			left = append(left, s)
		}
	}
	e.waiting = left
	w.submit(batch, 3)
}

// stamped returns a heartbeat as the edge forwards it.
func (s *submission) stamped(hb *historyv1.Heartbeat) *historyv1.Heartbeat {
	if hb.SentAtMs == 0 || s.received == 0 {
		return hb
	}
	hb = proto.CloneOf(hb)
	hb.ReceivedAtMs = s.received
	return hb
}

// submit sends a batch of messages to a service, and retries at another if there is no answer.
func (w *World) submit(batch []*submission, tries int) {
	s := w.serving(batch[0].client.uid)
	if s == nil || tries == 0 {
		for _, b := range batch {
			b.client.answered(b, nil, nil)
		}
		return
	}
	req := &historyv1.ApplyRequest{Ack: batch[0].ack, ReturnRecords: true}
	var attempts []*attempt
	now := s.clock.nowMS()
	for _, b := range batch {
		for _, hb := range b.heartbeats {
			hb = b.stamped(hb)
			req.Heartbeats = append(req.Heartbeats, hb)
			a := w.oracle.report(history.Key{UID: hb.Uid, Object: history.Object{ID: hb.ObjectId, Type: hb.ObjectType}}, factOf(hb, now), b.ack)
			if a.knows = b.client.named[hb.IfMatch]; w.cold[hb.Uid] { // the archive may hide that record
				a.knows = 0
			}
			attempts = append(attempts, a)
		}
	}
	w.ask(s, applyText(w, attempts, req), func(ctx context.Context) (any, error) { return s.rpc.Apply(ctx, req) }, func(answer any, err error) {
		resp, _ := answer.(*historyv1.ApplyResponse)
		if err != nil {
			for _, a := range attempts {
				w.oracle.answer(a, 0, s.number)
			}
			w.tracef("%-7s -> apply %v", s.name, err)
			w.submit(batch, tries-1)
			return
		}
		w.applied(s, batch, attempts, resp)
	})
}

func (w *World) applied(s *service, batch []*submission, attempts []*attempt, resp *historyv1.ApplyResponse) {
	for i, a := range attempts {
		if w.traced() {
			w.tracef("%-7s -> %s/%s %s", s.name, a.uid, a.object, strings.ToLower(strings.TrimPrefix(resp.Statuses[i].String(), "STATUS_")))
		}
		if wrong := w.oracle.answer(a, resp.Statuses[i], s.number); wrong != "" {
			w.fail("%s/%s: %s: %s", a.uid, a.object, wrong, &a.k.fact)
		}
	}
	for i, it := range resp.Records[:min(len(attempts), len(resp.Records))] {
		w.told(attempts[i], resp.Statuses[i], it)
	}
	for _, b := range batch {
		n := len(b.heartbeats)
		b.client.answered(b, resp.Statuses[:n], resp.Records[:min(n, len(resp.Records))])
		resp.Statuses, resp.Records = resp.Statuses[n:], resp.Records[min(n, len(resp.Records)):]
	}
}

// told judges the record in an answer: it must show exactly what a read would, including the answered report.
func (w *World) told(a *attempt, status historyv1.Status, it *historyv1.Item) {
	stored := status == historyv1.Status_STATUS_STORED
	if it.GetObject() == nil && !stored || incomplete(it) || a.sent < w.oracle.lost {
		return
	}
	if was := a.k.acked; stored && was > a.sent {
		a.k.acked = a.sent - 1
		defer func() { a.k.acked = was }()
	}
	if wrong := w.oracle.check(history.Key{UID: a.uid, Object: a.object}, viewOf(it), a.sent); wrong != "" {
		w.fail("the record in an answer: %s", wrong)
	}
}

func (w *World) remove(c *client, obj history.Object, req *historyv1.DeleteRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	sure := w.keepsAll() && !w.cold[c.uid]
	cut := w.oracle.remove(history.Key{UID: c.uid, Object: obj}, req.AtMs, s.clock.nowMS(), sure)
	c.busy++
	w.ask(s, fmt.Sprintf("delete %s/%s at %d if %x", c.uid, obj, req.AtMs, req.IfMatch), func(ctx context.Context) (any, error) { return s.rpc.Delete(ctx, req) }, func(_ any, err error) {
		c.busy--
		w.tracef("%-7s -> delete %s/%s %v", s.name, c.uid, obj, err)
		if err == nil {
			cut.close(w.oracle.users[c.uid].book(obj))
		}
		if err == nil && req.IfMatch == 0 { // deleting a deleted object changes nothing
			w.oracle.done(cut, s.number)
		}
	})
}

func (w *World) clear(c *client, req *historyv1.ClearRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	sure := w.keepsAll() && !w.cold[c.uid]
	cut := w.oracle.clear(req, s.clock.nowMS())
	c.busy++
	w.ask(s, fmt.Sprintf("clear %s type %d until %d", c.uid, req.Type, req.UntilMs), func(ctx context.Context) (any, error) { return s.rpc.Clear(ctx, req) }, func(answer any, err error) {
		c.busy--
		w.tracef("%-7s -> clear %s %v", s.name, c.uid, err)
		if err == nil && w.oracle.done(cut, s.number) {
			cut.at, cut.raised = answer.(*historyv1.ClearResponse).ClearedMs, false
			if left := w.oracle.leaves(c.uid, cut); left != nil && req.UntilMs == 0 && sure && !w.cold[c.uid] {
				w.fail("clear of %s: it is up to %s, and leaves what was acknowledged before: %s", c.uid, moment(cut.at), &left.fact)
			}
		}
	})
}

func (w *World) pause(c *client, req *historyv1.PutSettingsRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	u, now := w.oracle.users[c.uid], s.clock.nowMS()
	u.switching(now)
	p := &u.pause
	c.busy++
	w.ask(s, fmt.Sprintf("recording of %s %t", c.uid, req.Recording), func(ctx context.Context) (any, error) { return s.rpc.PutSettings(ctx, req) }, func(answer any, err error) {
		c.busy--
		resp, _ := answer.(*historyv1.PutSettingsResponse)
		w.tracef("%-7s -> recording of %s: %v %v", s.name, c.uid, resp.GetSettings(), err)
		if err != nil {
			p.answered(nil, s.number, max(now, s.clock.nowMS()))
			return
		}
		p.answered(resp.Settings, s.number, max(now, s.clock.nowMS()))
		p.remember(w.cache.load(history.UserKey(c.uid)).User.Pause)
	})
}

func (w *World) mark(c *client, obj history.Object, req *historyv1.MarkRequest) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	k, f := history.Key{UID: c.uid, Object: obj}, fact{at: min(req.AtMs, s.clock.nowMS()), mark: req.Mark}
	b, begun := w.oracle.users[c.uid].book(obj), w.oracle.now()
	again := slices.ContainsFunc(b.facts, func(k *known) bool { return k.mark != 0 && k.at == f.at })
	sure, cold := w.oracle.sure(k, begun) != nil, w.cold[c.uid] // the archive may hide the record
	a := w.oracle.report(k, f, historyv1.Ack_ACK_UNSPECIFIED)
	needs := req.Mark != historyv1.Mark_MARK_WATCHED || req.OnlyRecorded // an existing record
	a.makes = !needs && !req.UnlessCompleted
	done := w.oracle.completed(k, begun)
	req.Uid, req.Objects = c.uid, []*historyv1.MarkedObject{{Object: &historyv1.Object{Id: obj.ID, Type: obj.Type}}}
	c.busy++
	w.ask(s, fmt.Sprintf("%s/%s %s", c.uid, obj, &f), func(ctx context.Context) (any, error) { return s.rpc.Mark(ctx, req) }, func(answer any, err error) {
		c.busy--
		var status historyv1.Status // unknown
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
		case a.makes || a.sent < w.oracle.lost:
		case req.UnlessCompleted && status == historyv1.Status_STATUS_STORED && !cold && done && w.oracle.completed(k, begun):
			w.fail("%s: what was completed is marked again: %s", k, &f)
		case needs && status == historyv1.Status_STATUS_STORED && !cold && !slices.ContainsFunc(b.facts, func(k *known) bool { return k != a.k && k.may() }):
			w.fail("%s: what nobody played is marked: %s", k, &f)
		case !req.UnlessCompleted && status == historyv1.Status_STATUS_UNCHANGED && !again && sure && w.oracle.sure(k, begun) != nil:
			w.fail("%s: what was played is not marked: %s", k, &f)
		}
	})
}

// dismiss dismisses an object from Continue Watching, or offers it again.
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
		case answer.(*historyv1.DismissResponse).Found == 0: // no record to dismiss
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

// takeBackup exports a user's records, or imports the records of the last backup. An import must not duplicate
// anything, or restore anything removed since.
func (w *World) takeBackup(c *client) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	c.busy++
	if records := c.backup; records != nil {
		c.backup = nil
		w.ask(s, fmt.Sprintf("import %d records of %s", len(records), c.uid), func(ctx context.Context) (any, error) {
			return s.rpc.Import(ctx, &historyv1.ImportRequest{Uid: c.uid, Records: records})
		}, func(answer any, err error) {
			c.busy--
			w.tracef("%-7s -> import of %s: %v %v", s.name, c.uid, answer, err)
		})
		return
	}
	begun := w.oracle.now()
	w.ask(s, "export of "+c.uid, func(ctx context.Context) (any, error) {
		return s.rpc.List(ctx, &historyv1.ListRequest{Uid: c.uid, Limit: 100, Records: true})
	}, func(answer any, err error) {
		c.busy--
		if err != nil || begun < w.oracle.lost {
			return
		}
		resp := answer.(*historyv1.ListResponse)
		for i, it := range resp.Items {
			if !incomplete(it) {
				c.backup = append(c.backup, &historyv1.ImportedRecord{Object: it.Object, Record: resp.Records[i]})
			}
		}
	})
}

// A user may restore removed records from a backup, as of the moment after the removal. The judge does not
// compute the restored view. Instead, it checks the rest: the view exists until the next removal, later
// acknowledgements count, and both stores agree at rest. Then the user clears everything, and nothing may remain.

// restore restores the removed records of a backup.
func (w *World) restore(c *client, records []*historyv1.ImportedRecord) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	back := make([]*known, len(records))
	for i, r := range records {
		back[i] = w.oracle.restore(history.Key{UID: c.uid, Object: history.Object{ID: r.Object.Id, Type: r.Object.Type}}, s.clock.nowMS())
	}
	c.busy++
	w.ask(s, fmt.Sprintf("restore %d records of %s", len(records), c.uid), func(ctx context.Context) (any, error) {
		return s.rpc.Import(ctx, &historyv1.ImportRequest{Uid: c.uid, Records: records, Restore: true})
	}, func(answer any, err error) {
		c.busy--
		w.tracef("%-7s -> restore of %s: %v %v", s.name, c.uid, answer, err)
		for i, k := range back {
			k.open--
			k.unknown++
			if err != nil || k.sent < w.oracle.lost {
				continue
			}
			switch answer.(*historyv1.ImportResponse).Statuses[i] {
			case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
				k.acked = w.oracle.now()
			}
		}
	})
}

// restore notes a restored record, from a service whose clock shows now. Its time is the latest possible one: the
// restore may hide reports up to then.
func (o *oracle) restore(key history.Key, now int64) *known {
	u := o.users[key.UID]
	b := u.book(key.Object)
	k := &known{fact: fact{at: now}, sent: o.now(), open: 1}
	for _, f := range b.facts {
		k.at = max(k.at, f.at)
	}
	for _, c := range slices.Concat(b.deletes, u.clears) {
		k.at = max(k.at, c.at)
	}
	for _, r := range b.restored { // possibly deleted since, as of their own times
		k.at = max(k.at, r.at)
	}
	k.at += history.MaxLift + 1
	b.restored = append(b.restored, k)
	return k
}

// restored reports whether any of a key's records may have been restored.
func (o *oracle) restored(k history.Key) bool { return len(o.users[k.UID].book(k.Object).restored) > 0 }

// checkRestored judges the view of a restored record from a read that began at a time.
func (o *oracle) checkRestored(k history.Key, v view, begun int64) string {
	u := o.users[k.UID]
	b := u.book(k.Object)
	behind, others := o.span(u, k.Object, begun)
	for _, at := range others {
		behind = max(behind, at)
	}
	for _, r := range b.restored {
		behind = max(behind, r.at)
		if !v.found && r.acked > 0 && r.acked < begun && !o.removedSince(u, k.Object, r.sent) {
			return fmt.Sprintf("%s: nothing is shown of what was brought back", k)
		}
	}
	bs := o.bounds(k, behind, begun)
	plays, least := bs.plays().least, bs.leastWatched()
	switch {
	case len(bs.must) == 0:
		return ""
	case !v.found:
		return fmt.Sprintf("%s: nothing is shown of what was acknowledged after it was brought back", k)
	case v.plays < plays || v.watched < least:
		return fmt.Sprintf("%s: what was acknowledged after it was brought back is not all in %s", k, v)
	}
	return bs.judgeFurthestAtLeast(k, v)
}

func (b *bounds) judgeFurthestAtLeast(k history.Key, v view) string {
	for _, f := range b.must {
		if f.position > v.furthest && (f.sure() || !f.completes()) || f.at > v.at {
			return fmt.Sprintf("%s: what was acknowledged after it was brought back is not in %s: %s", k, v, f)
		}
	}
	return ""
}

// removedSince reports whether a delete or a clear may have come since.
func (o *oracle) removedSince(u *userBook, obj history.Object, since int64) bool {
	may := func(c *cut) bool { return (c.typ == 0 || c.typ == obj.Type) && (c.acked == 0 || c.acked > since) }
	return slices.ContainsFunc(u.book(obj).deletes, may) || slices.ContainsFunc(u.clears, may)
}
