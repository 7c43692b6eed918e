package recovery

import (
	"slices"

	"github.com/playhead/playhead/history"
)

// content is a content that the job has put or is about to put.
type content struct {
	key      history.Key
	version  history.Version // 0 for a user's own state
	revision uint64
}

// recent is a bounded ring of recently archived contents.
type recent struct {
	all  []content // a ring once full
	next int
	max  int
}

func (r *recent) add(k history.Key, record *history.Record) {
	c := content{key: k}
	if record != nil {
		c.version, c.revision = record.Version, record.Revision
	}
	if len(r.all) < r.max {
		r.all = append(r.all, c)
		return
	}
	r.all[r.next] = c
	r.next = (r.next + 1) % r.max
}

// contents returns each key once, with its newest content. A key with several contents of that version gets
// revision 0, because their order is unknown.
func (r *recent) contents() []content {
	at := make(map[history.Key]int, len(r.all))
	out := make([]content, 0, len(r.all))
	for _, c := range r.all {
		i, again := at[c.key]
		switch {
		case !again:
			at[c.key] = len(out)
			out = append(out, c)
		case c.version > out[i].version:
			out[i] = c
		case c.version == out[i].version && !history.SameContent(c.revision, out[i].revision):
			out[i].revision = 0
		}
	}
	return out
}

// unverified are the contents that could not be compared, because a store did not answer. Nothing of their users is
// archived until they are, because the cache may be older than the archive.
type unverified struct {
	all   []content
	users map[string]bool // the users of all
}

// replace replaces the contents of part by left.
func (u *unverified) replace(part, left []content) {
	if len(u.all) == 0 && len(left) == 0 {
		return
	}
	asked := make(map[history.Key]bool, len(part))
	for _, c := range part {
		asked[c.key] = true
	}
	all := slices.DeleteFunc(slices.Clone(u.all), func(c content) bool { return asked[c.key] })
	u.all, u.users = append(all, left...), make(map[string]bool)
	for _, c := range u.all {
		u.users[c.key.UID] = true
	}
}

// without returns the keys without those of the contents' users.
func (u *unverified) without(keys []history.Key) []history.Key {
	if len(u.users) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k history.Key) bool { return u.users[k.UID] })
}

// toCompare returns all contents to compare in a new epoch. None is verified.
func (m *Machine) toCompare() []content {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unverified = unverified{}
	return m.recent.contents()
}

// toVerify returns the unverified contents.
func (m *Machine) toVerify() []content {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unverified.all // replaced, never modified
}

// verified notes that the contents of part but those left were compared.
func (m *Machine) verified(part, left []content) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unverified.replace(part, left)
}
