package rpc

import (
	"slices"

	"github.com/playhead/playhead/history"
)

// maxDue is how many objects of one user wait to be told of. With more the user is told
// to read again.
const maxDue = 32

// due is what a stream has not been told of a user yet.
type due struct {
	changes []history.Change // of different objects
	added   []uint64
	resync  bool
}

// owe returns what the stream is to be told, and has it sent soon. The caller holds the
// hub's mutex.
func (p *post) owe() *due {
	if p.due == nil {
		p.due = &due{}
		p.stream.ready(p)
	}
	return p.due
}

// note has the stream told of a change, unless nobody else watches than who made it.
func (p *post) note(c history.Change) {
	if len(p.ids) == 1 && p.ids[0] == c.Origin {
		return
	}
	d := p.owe()
	i := slices.IndexFunc(d.changes, func(o history.Change) bool { return o.Key.Object == c.Key.Object })
	switch {
	case d.resync:
	case c.Key.IsUser(), i < 0 && len(d.changes) == maxDue:
		d.resync, d.changes = true, nil
	case i < 0:
		d.changes = append(d.changes, c)
	case d.changes[i].Origin != c.Origin:
		d.changes[i].Origin = 0
	}
}

// add has a stream watch a user for a connection.
func (h *hub) add(s *watch, uid string, id uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := s.posts[uid]
	if p == nil && len(s.posts) == maxWatched {
		return history.Invalid("added", "too many users on one stream")
	}
	b := history.BucketOf(uid)
	w := h.wards[b]
	if w == nil {
		w = &ward{users: make(map[string][]*post)}
		h.wards[b] = w
		h.feed.Follow(b)
	}
	if p == nil {
		p = &post{stream: s, uid: uid}
		s.posts[uid] = p
		w.users[uid] = append(w.users[uid], p)
	}
	if !slices.Contains(p.ids, id) {
		p.ids = append(p.ids, id)
	}
	if w.sure { // or else all in the bucket are told when it is
		d := p.owe()
		d.added = append(d.added, id)
	}
	return nil
}

// remove ends that for one connection.
func (h *hub) remove(s *watch, uid string, id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := s.posts[uid]
	if p == nil {
		return
	}
	if i := slices.Index(p.ids, id); i >= 0 {
		p.ids = slices.Delete(p.ids, i, i+1)
	}
	if len(p.ids) == 0 {
		h.drop(p)
	}
}

// end is the end of a stream.
func (h *hub) end(s *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range s.posts {
		h.drop(p)
	}
}

// drop forgets a post. The caller holds h.mu.
func (h *hub) drop(p *post) {
	delete(p.stream.posts, p.uid)
	b := history.BucketOf(p.uid)
	w := h.wards[b]
	rest := slices.DeleteFunc(w.users[p.uid], func(o *post) bool { return o == p })
	if w.users[p.uid] = rest; len(rest) > 0 {
		return
	}
	if delete(w.users, p.uid); len(w.users) == 0 {
		delete(h.wards, b)
		h.feed.Unfollow(b)
	}
}
