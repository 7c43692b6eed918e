package recovery

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/playhead/playhead/history"
)

// watermark is the time from which a change may be unarchived.
type watermark struct {
	since     time.Time // every earlier acknowledged change is archived.
	uncertain time.Time // marks up to then may be newer than their changes.
	restored  time.Time // last end of a reread: marks measured before may be of an earlier epoch
	last      marks
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

// advance moves since to the oldest mark, because a mark stays until its key is archived. It ignores uncertain
// marks, such as those of a clock that ran ahead. The age allows for small clock differences.
func (w *watermark) advance(m marks, age time.Duration) {
	at := m.at
	if !at.After(w.restored) {
		return
	}
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

// restart distrusts the marks up to now: the contents given back have new ones.
func (w *watermark) restart() {
	w.restored = time.Now()
	if w.restored.After(w.uncertain) {
		w.uncertain = w.restored
	}
}

// metadata is committed with the offsets and read by later jobs, after a loss of the cache and of all jobs. It
// never becomes false, so the latest over all partitions counts.
type metadata struct {
	since time.Time // every earlier acknowledged change is archived
	epoch uint64    // hash of the cache epoch's name
	began time.Time // last sign that the cache may be older, zero for none
}

func (m metadata) String() string {
	began := int64(0)
	if !m.began.IsZero() {
		began = m.began.UnixMilli()
	}
	return fmt.Sprintf("%d %d %d", m.since.UnixMilli(), began, m.epoch)
}

func parseMetadata(text string) (m metadata, ok bool) {
	var since, began int64
	if n, _ := fmt.Sscan(text, &since, &began, &m.epoch); n < 3 {
		return metadata{}, false
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

// Metadata returns the metadata of a commit, empty for a durable cache.
func (m *Machine) Metadata() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Epoch == nil {
		return ""
	}
	return metadata{m.mark.since, hashOf(m.epoch), m.changed}.String()
}

// Join takes over the commit metadata of all jobs. The cache may be older than the archive if none of them knew the
// current epoch. The first join also takes over the time from which a change may be unarchived.
func (m *Machine) Join(texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var since, began time.Time
	known := len(texts) == 0 // nothing was committed yet
	for _, text := range texts {
		c, ok := parseMetadata(text)
		if !ok {
			continue
		}
		if c.since.After(since) {
			since = c.since
		}
		if c.epoch == hashOf(m.epoch) {
			known = true
			if c.began.After(began) {
				began = c.began
			}
		}
	}
	if !since.IsZero() && m.mark.restored.IsZero() && since.Before(m.mark.since) {
		m.mark.since = since
	}
	if !known {
		began = time.Now()
	}
	if began.After(m.changed) {
		m.changed = began
	}
}

// Since returns a time before which every acknowledged change is archived. The margin allows for clock differences
// and the services' hold.
func (m *Machine) Since(margin time.Duration) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark.since.Add(-margin)
}

// measured returns the marks measured last.
func (m *Machine) measured() marks {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark.last
}

func (m *Machine) advance(measured marks, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark.advance(measured, age)
}
