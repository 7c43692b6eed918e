package uplink

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// watching is who is told of changes in whose history. A user is watched at the instance
// that has the user's calls.
type watching struct {
	client *Client

	mu    sync.Mutex // guards everything below, and the edits of homes
	users map[string]*watched
	homes map[*link]*home
}

// watched is one user.
type watched struct {
	home      *home      // nil while there is no instance
	listeners []listener // replaced and never changed
}

type listener struct {
	id   uint64
	tell func(*historyv1.Change)
}

func newWatching(c *Client, reg prometheus.Registerer) *watching {
	w := &watching{client: c, users: make(map[string]*watched), homes: make(map[*link]*home)}
	if reg != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "playhead_uplink_watched_users", Help: "Users whose devices are told of changes.",
		}, func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return float64(len(w.users))
		}))
	}
	return w
}

// Watch has tell called with what changes in a user's history, whoever changes it, but
// for what came over the connection itself, which id names in heartbeats too. The first
// call says resync, as soon as nothing can be missed any more, and so does one after
// something may have been. tell is called from several goroutines, does not change what
// it is given, and returns soon. It is called until [Client.Unwatch], and may be once
// more.
func (c *Client) Watch(uid string, id uint64, tell func(*historyv1.Change)) {
	w := c.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		u = &watched{home: w.homeOf(c.table.Load().owners[history.BucketOf(uid)])}
		w.users[uid] = u
	}
	u.listeners = append(slices.Clip(u.listeners), listener{id, tell})
	u.home.edit(edit{uid: uid, id: id, begin: true})
}

// Unwatch ends that.
func (c *Client) Unwatch(uid string, id uint64) {
	w := c.watching
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.users[uid]
	if u == nil {
		return
	}
	u.listeners = slices.DeleteFunc(slices.Clone(u.listeners), func(l listener) bool { return l.id == id })
	u.home.edit(edit{uid: uid, id: id})
	if len(u.listeners) == 0 {
		delete(w.users, uid)
	}
}

// follow has the users move with their buckets, until the client is closed.
func (w *watching) follow() {
	for {
		t := w.client.table.Load()
		w.settle(t)
		select {
		case <-t.changed:
		case <-w.client.ctx.Done():
			return
		}
	}
}

// settle has each user watched where the table says. Whoever moves is watched anew, and
// told to read again when that is in force.
func (w *watching) settle(t *table) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, u := range w.users {
		owner := t.owners[history.BucketOf(uid)]
		if u.home.of(owner) {
			continue
		}
		old := u.home
		u.home = w.homeOf(owner)
		for _, l := range u.listeners {
			u.home.edit(edit{uid: uid, id: l.id, begin: true, moved: old != nil})
			old.edit(edit{uid: uid, id: l.id})
		}
	}
}

// homeOf returns where users of an instance are watched, nil for none and for one that
// is not up any more: then there is another table soon. The caller holds w.mu.
func (w *watching) homeOf(l *link) *home {
	if l == nil || w.homes[l] != nil {
		return w.homes[l]
	}
	if !l.enter() {
		return nil
	}
	h := &home{watching: w, link: l, wake: make(chan struct{}, 1)}
	w.homes[l] = h
	go h.run() // which leaves
	return h
}

// tell passes a change on to those whom it concerns.
func (w *watching) tell(c *historyv1.Change) {
	w.mu.Lock()
	var all []listener
	if u := w.users[c.GetUid()]; u != nil {
		all = u.listeners
	}
	w.mu.Unlock()
	for _, l := range all {
		if own := l.part(c); own != nil {
			l.tell(own)
		}
	}
}

// part is what a change means to one listener, nil for nothing.
func (l listener) part(c *historyv1.Change) *historyv1.Change {
	switch {
	case c.GetResync(), slices.Contains(c.GetAdded(), l.id):
		return &historyv1.Change{Resync: true}
	case len(c.GetItems())+len(c.GetRemoved()) == 0, c.GetOrigin() == l.id:
		return nil
	}
	return c
}
