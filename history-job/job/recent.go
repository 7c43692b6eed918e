package job

import (
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// life is the one that the servers of the cache are in, as far as this job knows.
type life struct {
	mu       sync.Mutex
	name     string
	compared bool      // with what this job has archived
	changed  time.Time // when another one took the place of the last, zero before that
}

func (l *life) set(name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name != "" && l.name != name {
		l.changed = time.Now()
	}
	l.name, l.compared = name, compared
}

// doubt has the life before end now.
func (l *life) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// began returns when another life took the place of the last.
func (l *life) began() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// beganAt says that it has, by a time, as far as others know.
func (l *life) beganAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.changed) {
		l.changed = at
	}
}

// young reports whether the life before has ended less than so long ago.
func (l *life) young(age time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.changed.IsZero() && time.Since(l.changed) < age
}

func (l *life) get() (name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.compared
}

// recent is what a job archived last, a bounded number of keys, so that a cache which
// comes back with older content can be told what it has lost.
type recent struct {
	mu   sync.Mutex
	all  []archived // a ring once it is full
	next int
	max  int
}

// archived is a content that the job has put, or is about to.
type archived struct {
	key      history.Key
	version  history.Version // 0 for a user's own state
	revision uint64
}

// add remembers the contents of keys. It comes before the put: a restart of the cache
// that is noticed while the put is under way must find them here.
func (r *recent) add(keys []history.Key, entries []history.Entry) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range entries {
		a := archived{key: keys[i]}
		if e.Record != nil {
			a.version, a.revision = e.Record.Version, e.Record.Revision
		}
		if len(r.all) < r.max {
			r.all = append(r.all, a)
			continue
		}
		r.all[r.next] = a
		r.next = (r.next + 1) % r.max
	}
}

// contents returns each key once, with its newest content. A key with several
// contents of that version has no revision: which one is the latest is not known.
func (r *recent) contents() []archived {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := make(map[history.Key]int, len(r.all))
	out := make([]archived, 0, len(r.all))
	for _, a := range r.all {
		i, again := at[a.key]
		switch {
		case !again:
			at[a.key] = len(out)
			out = append(out, a)
		case a.version > out[i].version:
			out[i] = a
		case a.version == out[i].version && !history.SameContent(a.revision, out[i].revision):
			out[i].revision = 0
		}
	}
	return out
}

// unchecked are the contents that could not be compared with a cache which began another life, because a store did not
// answer. The records of their users are not archived until they are: what the cache has of them may be older than what the
// archive has.
type unchecked struct {
	mu    sync.Mutex
	all   []archived
	users map[string]bool // whose they are
}

func (u *unchecked) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all, u.users = nil, nil
}

func (u *unchecked) contents() []archived {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all // is replaced, never changed
}

// replace puts what is left of a part in its place.
func (u *unchecked) replace(part, left []archived) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.all) == 0 && len(left) == 0 {
		return
	}
	asked := make(map[history.Key]bool, len(part))
	for _, a := range part {
		asked[a.key] = true
	}
	all := make([]archived, 0, len(u.all)+len(left))
	for _, a := range u.all {
		if !asked[a.key] {
			all = append(all, a)
		}
	}
	u.all, u.users = append(all, left...), make(map[string]bool)
	for _, a := range u.all {
		u.users[a.key.UID] = true
	}
}

// without returns the keys of the others.
func (u *unchecked) without(keys []history.Key) []history.Key {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.users) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k history.Key) bool { return u.users[k.UID] })
}
