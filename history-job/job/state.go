package job

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// epoch is the current epoch of the cache servers, as known to this job.
type epoch struct {
	mu       sync.Mutex
	name     string
	compared bool      // with the keys archived by this job
	changed  time.Time // last change of epochs, zero for none
}

func (l *epoch) set(name string, compared bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.name != "" && l.name != name {
		l.changed = time.Now()
	}
	l.name, l.compared = name, compared
}

// suspect treats the epoch as changed now.
func (l *epoch) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = time.Now()
}

// began returns the time of the last change of epochs.
func (l *epoch) began() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// beganAt records a change of epochs that another job noticed.
func (l *epoch) beganAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.changed) {
		l.changed = at
	}
}

// young reports whether the epoch changed within the given age.
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

// lastArchived is a bounded ring of recently archived contents. They are compared with a cache that comes back
// older.
type lastArchived struct {
	mu   sync.Mutex
	all  []archived // a ring once full
	next int
	max  int
}

// archived is a content that the job has put or is about to put.
type archived struct {
	key      history.Key
	version  history.Version // 0 for a user's own state
	revision uint64
}

// add remembers the contents of a batch. Call it before the put, so a comparison during the put finds them.
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

// contents returns each key once, with its newest content. A key with several contents of that version gets
// revision 0, because their order is unknown.
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

// unverified are the contents that could not be compared after a change of epochs, because a store did not answer.
// Their users are not archived until the comparison succeeds, because the cache may be older than the archive.
type unverified struct {
	mu    sync.Mutex
	all   []archived
	users map[string]bool // the users of all
}

func (u *unverified) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all, u.users = nil, nil
}

func (u *unverified) contents() []archived {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all // replaced, never modified
}

// replace replaces the contents of part by left.
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

// without returns the keys whose users have no unverified content.
func (u *unverified) without(keys []history.Key) []history.Key {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.users) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(k history.Key) bool { return u.users[k.UID] })
}

// waiting tracks the time from which a change may be unarchived. takeOver writes it first, then only followEpoch.
type waiting struct {
	since     time.Time // every earlier acknowledged change is archived
	uncertain time.Time // marks up to then may be newer than their changes
}

// marks is the backlog of all buckets at one time. Other jobs' buckets count too: those jobs may die.
type marks struct {
	at    time.Time
	found []history.Backlog
}

// oldest returns the time of the oldest mark, zero for none.
func (m *marks) oldest() (oldest time.Time) {
	for _, b := range m.found {
		if at := time.UnixMicro(int64(b.Oldest)); b.Marks > 0 && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}

// look moves since to the oldest mark, because a mark stays until its key is archived. It ignores uncertain marks,
// such as those of a clock that ran ahead. The age allows for small clock differences.
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

// suspect distrusts marks up to the given time: they may be newer than their changes.
func (w *waiting) suspect(until time.Time) {
	if until.After(w.uncertain) {
		w.uncertain = until
	}
}

// commitMetadata is committed with the offsets and read by later jobs, after a loss of the cache and of all jobs.
// It never becomes false, so the latest over all partitions counts.
type commitMetadata struct {
	since time.Time // every earlier acknowledged change is archived
	epoch uint64    // hash of the cache epoch's name
	began time.Time // when a job noticed the change to this epoch, zero for never
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
