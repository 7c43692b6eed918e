package sim

import (
	"context"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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
