package job

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// epoch is the one that the servers of the cache are in, as far as this job knows.
type epoch struct {
	mu       sync.Mutex
	name     string
	compared bool      // with what this job has archived
	changed  time.Time // when another one took the place of the last, zero before that
}

func (l *epoch) set(name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name != "" && l.name != name {
		l.changed = time.Now()
	}
	l.name, l.compared = name, compared
}

// suspect has the epoch before end now.
func (l *epoch) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// began returns when another epoch took the place of the last.
func (l *epoch) began() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// beganAt says that it has, by a time, as far as others know.
func (l *epoch) beganAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.changed) {
		l.changed = at
	}
}

// young reports whether the epoch before has ended less than so long ago.
func (l *epoch) young(age time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.changed.IsZero() && time.Since(l.changed) < age
}

func (l *epoch) get() (name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.compared
}

// lastArchived is what a job archived last, a bounded number of keys, so that a cache which
// comes back with older content can be told what it has lost.
type lastArchived struct {
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
func (r *lastArchived) add(b *batch) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, e := range b.entries {
		a := archived{key: b.keys[i]}
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
func (r *lastArchived) contents() []archived {
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

// unverified are the contents that could not be compared with a cache which began another epoch, because a store did not
// answer. The records of their users are not archived until they are: what the cache has of them may be older than what the
// archive has.
type unverified struct {
	mu    sync.Mutex
	all   []archived
	users map[string]bool // whose they are
}

func (u *unverified) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all, u.users = nil, nil
}

func (u *unverified) contents() []archived {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all // is replaced, never changed
}

// replace puts what is left of a part in its place.
func (u *unverified) replace(part, left []archived) {
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
func (u *unverified) without(keys []history.Key) []history.Key {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.users) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k history.Key) bool { return u.users[k.UID] })
}

// waiting knows since when something may wait to be archived. The start writes it, and then followEpoch alone.
type waiting struct {
	since     time.Time // all that was acknowledged before is archived
	uncertain time.Time // marks of up to then may be newer than what they are of
}

// marks are all that there were at a time, those in the buckets of other jobs too: they may die.
type marks struct {
	at    time.Time
	found []history.Backlog
}

// oldest returns the time of the oldest one, zero where there is none.
func (m *marks) oldest() (oldest time.Time) {
	for _, b := range m.found {
		if at := time.UnixMicro(int64(b.Oldest)); b.Marks > 0 && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}

// look takes what is marked. A mark stands until its key is archived, so that the oldest one says since
// when something waits. One that may be newer than what it is of says nothing, as one of a clock that was ahead; an age leaves room
// for small differences.
func (w *waiting) look(m *marks, age time.Duration) {
	at := m.at
	for _, b := range m.found {
		if ahead := time.UnixMicro(int64(b.Oldest)); ahead.After(at.Add(age)) && ahead.After(w.uncertain) {
			w.uncertain = ahead
		}
	}
	if oldest := m.oldest(); !oldest.IsZero() && oldest.Before(at) {
		at = oldest
	}
	if at.Before(w.since) || at.Add(-age).After(w.uncertain) {
		w.since = at
	}
}

// suspect says that marks of up to a time may be newer than what they are of.
func (w *waiting) suspect(until time.Time) {
	if until.After(w.uncertain) {
		w.uncertain = until
	}
}

// commitMetadata is what a job leaves with its commits to the jobs that come after it: by then the cache with its marks may be lost, and all
// jobs dead. A commit metadata never becomes false, so that the latest of all partitions counts.
type commitMetadata struct {
	since time.Time // all that was acknowledged before is archived
	epoch uint64    // the cache's epoch, as a hash of its name
	began time.Time // when a job noticed that this epoch had taken the place of another one, zero for never
}

func (m commitMetadata) String() string {
	began := int64(0)
	if !m.began.IsZero() {
		began = m.began.UnixMilli()
	}
	return fmt.Sprintf("%d %d %d", m.since.UnixMilli(), began, m.epoch)
}

func parseMetadata(text string) (m commitMetadata, ok bool) {
	var since, began int64
	if n, _ := fmt.Sscan(text, &since, &began, &m.epoch); n < 3 {
		return commitMetadata{}, false
	}
	if m.since = time.UnixMilli(since); began != 0 {
		m.began = time.UnixMilli(began)
	}
	return m, true
}

func hashOf(epoch string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(epoch)) // never fails
	return h.Sum64()
}
