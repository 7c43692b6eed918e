package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// unread notes an unanswered read of the judge, made at rest (calm). [World.answerReads] repeats these reads.
func (w *World) unread(c *client, calm bool, again func()) {
	if calm && w.calm {
		c.refused = append(c.refused, again)
	}
}

func (w *World) settings(c *client) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	p := &w.oracle.users[c.uid].pause
	then, calm := p.state(), w.calm
	c.busy++
	w.ask(s, "settings of "+c.uid, func(ctx context.Context) (any, error) {
		return s.rpc.GetSettings(ctx, &historyv1.GetSettingsRequest{Uid: c.uid})
	}, func(answer any, err error) {
		c.busy--
		if err != nil {
			w.unread(c, calm, func() { w.settings(c) })
			return
		}
		got := answer.(*historyv1.GetSettingsResponse).Settings
		if then.sure && p.sure && then.changes == p.changes && (got.Recording == p.isOff || p.isOff && got.PausedMs != p.since) {
			w.fail("settings of %s: recording is shown as %v, and was switched off %t at %d", c.uid, got, p.isOff, p.since)
		}
		if calm {
			p.read(got)
			if !p.exact && !p.halfway && p.open == 0 {
				p.learn(w.archivedAt(history.UserKey(c.uid)).User.Pause)
			}
		}
	})
}

func (w *World) points(c *client, objects []history.Object) {
	s := w.serving(c.uid)
	if s == nil {
		return
	}
	req := &historyv1.PointsRequest{Uid: c.uid}
	for _, o := range objects {
		req.Objects = append(req.Objects, &historyv1.Object{Id: o.ID, Type: o.Type})
	}
	begun, then, calm := w.oracle.now(), w.oracle.users[c.uid].pause.state(), w.calm
	c.busy++
	w.ask(s, fmt.Sprintf("points of %s %v", c.uid, objects), func(ctx context.Context) (any, error) { return s.rpc.Points(ctx, req) }, func(answer any, err error) {
		c.busy--
		if err != nil {
			w.tracef("%-7s -> points of %s: %v", s.name, c.uid, err)
			w.unread(c, calm, func() { w.points(c, objects) })
			return
		}
		for i, it := range answer.(*historyv1.PointsResponse).Items {
			k := history.Key{UID: c.uid, Object: objects[i]}
			if w.shown(c, k, it, begun); !incomplete(it) {
				w.oracle.paused(k, viewOf(it), then)
			}
		}
	})
}

// shown judges an item in a client's answer.
func (w *World) shown(c *client, k history.Key, it *historyv1.Item, begun int64) {
	v := viewOf(it)
	if w.traced() {
		w.tracef("%-7s is shown %s: %s", c.device, k, v)
	}
	if v.found {
		c.etags[k.Object] = it.Etag
	}
	if incomplete(it) { // the item itself says that archived data, deletes included, is missing
		return
	}
	if v.found {
		c.named[it.Etag] = v.at
	}
	if wrong := cmp.Or(w.oracle.check(k, v, begun), w.oracle.checkDismissed(k, v, begun)); wrong != "" {
		w.fail("shown to %s: %s", c.device, wrong)
	}
}

// listing is a client's walk through pages.
type listing struct {
	client *client
	req    *historyv1.ListRequest
	begun  int64
	seen   map[history.Object]*historyv1.Item
	last   *historyv1.Item
	pass   map[history.Object]bool // listed since the walk last restarted at the top
	top    int64                   // time of the very first item
	// incomplete are objects listed as incomplete; their places follow the incomplete records.
	incomplete map[history.Object]bool
}

func (w *World) list(c *client, req *historyv1.ListRequest) {
	l := &listing{client: c, req: req, begun: w.oracle.now(), seen: make(map[history.Object]*historyv1.Item), incomplete: make(map[history.Object]bool)}
	c.busy++
	w.page(l)
}

func (w *World) page(l *listing) {
	s := w.serving(l.client.uid)
	if s == nil {
		l.client.busy--
		return
	}
	begun, calm := w.oracle.now(), w.calm
	what := ""
	if w.traced() {
		what = fmt.Sprintf("list %v", l.req)
	}
	req := &historyv1.ListRequest{Uid: l.req.Uid, Limit: l.req.Limit, Cursor: l.req.Cursor, Type: l.req.Type, SinceMs: l.req.SinceMs, UntilMs: l.req.UntilMs}
	w.ask(s, what, func(ctx context.Context) (any, error) { return s.rpc.List(ctx, req) }, func(answer any, err error) {
		if err != nil {
			l.client.busy--
			w.tracef("%-7s -> list of %s: %v", s.name, l.client.uid, err)
			w.unread(l.client, calm, func() {
				l.client.busy++
				w.page(l)
			})
			return
		}
		resp := answer.(*historyv1.ListResponse)
		w.turn(l, resp, begun)
		if l.req.Cursor = resp.Cursor; resp.HasMore && w.failure == "" {
			w.page(l)
			return
		}
		l.client.busy--
		w.listed(l)
	})
}

// turn judges a page. An object played meanwhile may be listed again in a further pass, and so may the objects it
// passed.
func (w *World) turn(l *listing, resp *historyv1.ListResponse, begun int64) {
	if resp.HasMore && len(resp.Items) == 0 || len(resp.Items) > int(l.req.Limit) {
		w.fail("list of %s: a page of %d items, more %t", l.client.uid, len(resp.Items), resp.HasMore)
	}
	if l.pass == nil {
		if l.pass, l.top = make(map[history.Object]bool), math.MaxInt64; len(resp.Items) > 0 {
			l.top = resp.Items[0].EventTimeMs
		}
	}
	first := true
	for _, it := range resp.Items {
		o := history.Object{ID: it.Object.Id, Type: it.Object.Type}
		w.shown(l.client, history.Key{UID: l.client.uid, Object: o}, it, begun)
		l.incomplete[o] = l.incomplete[o] || incomplete(it) || w.oracle.restored(history.Key{UID: l.client.uid, Object: o})
		if first && l.last != nil && (newer(it, l.last) || l.seen[o] == l.last && w.oracle.reported(l.client.uid, o, l.begun)) {
			clear(l.pass)
			l.last = nil
		}
		before := l.seen[o]
		switch {
		case l.incomplete[o], l.begun < w.oracle.lost:
		case l.pass[o]:
			w.fail("list of %s: %s is listed twice", l.client.uid, o)
		case before != nil && newer(before, it):
			w.fail("list of %s: %s is listed again as it was before", l.client.uid, o)
		case l.last != nil && !newer(l.last, it):
			w.fail("list of %s: %s comes after what is older", l.client.uid, o)
		case !l.wants(o.Type, it.EventTimeMs):
			w.fail("list of %s: nobody asked for %s", l.client.uid, o)
		}
		if l.seen[o], l.pass[o] = it, true; !l.incomplete[o] {
			l.last, first = it, false
		}
	}
}

func (l *listing) wants(typ uint32, at int64) bool {
	return (l.req.Type == 0 || l.req.Type == typ) && at >= l.req.SinceMs && (l.req.UntilMs == 0 || at <= l.req.UntilMs)
}

func newer(a, b *historyv1.Item) bool {
	version := func(it *historyv1.Item) int64 {
		if it.State == historyv1.State_STATE_STOPPED || it.State == historyv1.State_STATE_FINISHED {
			return it.EventTimeMs<<2 | 1
		}
		return it.EventTimeMs << 2
	}
	text := func(it *historyv1.Item) string { return fmt.Sprintf("%s_%d", it.Object.Id, it.Object.Type) }
	if va, vb := version(a), version(b); va != vb {
		return va > vb
	}
	return text(a) > text(b)
}

// listed judges what the walk left out.
func (w *World) listed(l *listing) {
	for _, o := range w.objects() {
		k := history.Key{UID: l.client.uid, Object: o}
		f := w.oracle.sure(k, l.begun)
		if l.req.UntilMs == 0 {
			f = w.oracle.stays(k, l.begun, l.top)
		}
		if f != nil && l.begun > w.oracle.lost && l.seen[o] == nil && !l.incomplete[o] && l.wants(o.Type, f.at) {
			w.fail("list of %s: %s is left out: %s", l.client.uid, o, f)
		}
	}
}

// follower is an app that reads a user's history once and then its changes. At every rest it must know the
// current history.
type follower struct {
	token   string
	known   map[history.Object]*historyv1.Item
	busy    bool
	resumed bool // its pages are from before a failure, and may have changed since
}

// sync reads all pending changes.
func (w *World) sync(c *client) {
	f := w.followers[c.uid]
	if f.busy {
		return
	}
	f.busy = true
	c.busy++
	w.changes(c, f)
}

func (w *World) changes(c *client, f *follower) {
	stop := func() {
		c.busy--
		f.busy = false
	}
	s := w.serving(c.uid)
	if s == nil {
		stop()
		return
	}
	begun, calm := w.oracle.now(), w.calm
	req := &historyv1.ChangesRequest{Uid: c.uid, Since: f.token, Limit: 2}
	w.ask(s, "changes of "+c.uid, func(ctx context.Context) (any, error) { return s.rpc.Changes(ctx, req) }, func(answer any, err error) {
		if err != nil {
			w.tracef("%-7s -> changes of %s: %v", s.name, c.uid, err)
			stop()
			f.resumed = true
			w.unread(c, calm, func() { w.sync(c) })
			return
		}
		resp := answer.(*historyv1.ChangesResponse)
		f.token = resp.Token
		if resp.Resync {
			w.tracef("%-7s is to read everything of %s", c.device, c.uid)
			f.known = make(map[history.Object]*historyv1.Item)
			w.readAll(c, f, "")
			return
		}
		for _, it := range resp.Items {
			o := history.Object{ID: it.Object.Id, Type: it.Object.Type}
			f.known[o] = it
			w.shown(c, history.Key{UID: c.uid, Object: o}, it, begun)
		}
		for _, removed := range resp.Removed {
			o := history.Object{ID: removed.Id, Type: removed.Type}
			delete(f.known, o)
			w.shown(c, history.Key{UID: c.uid, Object: o}, nil, begun)
		}
		again := resp.HasMore
		if !again && f.resumed {
			again, f.resumed = true, false
		}
		if again && w.failure == "" {
			w.changes(c, f)
			return
		}
		stop()
	})
}

// readAll reads the page after a cursor and all further ones into f.known, then the changes since f.token. The
// token is older than the first page. After a failed page the app starts over.
func (w *World) readAll(c *client, f *follower, cursor string) {
	s, calm := w.serving(c.uid), w.calm
	again := func(err error) {
		f.token, f.busy = "", false
		c.busy--
		w.tracef("        all of %s cannot be read: %v", c.uid, err)
		w.unread(c, calm, func() { w.sync(c) })
	}
	if s == nil {
		again(errNoAnswer)
		return
	}
	req := &historyv1.ListRequest{Uid: c.uid, Limit: 3, Cursor: cursor}
	w.ask(s, "all of "+c.uid, func(ctx context.Context) (any, error) { return s.rpc.List(ctx, req) }, func(answer any, err error) {
		if err != nil {
			again(err)
			return
		}
		resp := answer.(*historyv1.ListResponse)
		for _, it := range resp.Items {
			f.known[history.Object{ID: it.Object.Id, Type: it.Object.Type}] = it
		}
		if resp.HasMore {
			w.readAll(c, f, resp.Cursor)
			return
		}
		w.changes(c, f)
	})
}

// followed judges the app's knowledge.
func (w *World) followed(uid string, begun int64) {
	for _, o := range w.objects() {
		if wrong := w.oracle.check(history.Key{UID: uid, Object: o}, viewOf(w.followers[uid].known[o]), begun); wrong != "" {
			w.fail("at rest, what an app of %s knows from the changes: %s", uid, wrong)
		}
	}
}
