package faults

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// event is one report or delete, and whether it was acknowledged. An unacknowledged one may have been stored.
type event struct {
	history.Event
	acked bool
	turn  int // number of its acknowledgement
}

type clearing struct {
	typ   uint32
	until int64
	acked bool
	turn  int // number of its acknowledgement
}

func (c *clearing) covers(typ uint32) bool { return c.typ == 0 || c.typ == typ }

// story is everything ever sent about one key.
type story struct {
	events   []*event
	position int64 // the viewer's position, milliseconds
	session  int
	started  int64 // start of the session; 0 if not reported
}

// book is all stories. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	stories map[history.Key]*story
	clears  map[string][]*clearing
	recent  []string // distinct users, the latest last
	acked   int
	last    time.Time // time of the last acknowledgement
}

// recentUsers bounds the remembered users: twice the load's.
const recentUsers = 160

func newBook() *book {
	return &book{stories: make(map[history.Key]*story), clears: make(map[string][]*clearing)}
}

// note adds an event before it is sent.
func (b *book) note(e history.Event) *event {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &event{Event: e}
	s := b.story(e.Key)
	s.events = append(s.events, n)
	return n
}

// story returns the story of a key. The caller holds b.mu.
func (b *book) story(k history.Key) *story {
	s := b.stories[k]
	if s == nil {
		s = &story{}
		b.stories[k] = s
		if !slices.Contains(b.recent, k.UID) {
			b.recent = append(b.recent[max(0, len(b.recent)+1-recentUsers):], k.UID)
		}
	}
	return s
}

func (b *book) noteClear(uid string, typ uint32, until int64) *clearing {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &clearing{typ: typ, until: until}
	b.clears[uid] = append(b.clears[uid], c)
	return c
}

func (b *book) ack(events ...*event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		b.acked++
		e.acked, e.turn = true, b.acked
	}
	b.last = time.Now()
}

// add counts acknowledgements that are judged elsewhere.
func (b *book) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked += n
	b.last = time.Now()
}

func (b *book) ackClear(c *clearing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked++
	c.acked, c.turn = true, b.acked
	b.last = time.Now()
}

func (b *book) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acked
}

// rank orders events of one millisecond, as in DESIGN.md.
func (e *event) rank() int {
	switch e.Kind {
	case history.KindDelete:
		return 2
	case history.KindStop, history.KindFinish:
		return 1
	}
	return 0
}

// state returns the state that e shows as the latest event.
func (e *event) state() history.State {
	switch e.Kind {
	case history.KindPause:
		return history.StatePaused
	case history.KindStop:
		return history.StateStopped
	case history.KindFinish:
		return history.StateFinished
	case history.KindDelete:
		return history.StateDeleted
	}
	return history.StatePlaying
}

func (e *event) completes() bool {
	return e.Kind == history.KindFinish || e.Kind != history.KindDelete && e.Duration > 0 && e.Position*10 >= e.Duration*9
}

// compare orders two events; the greater one is the latest.
func compare(a, b *event) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Position, b.Position),
		cmp.Compare(a.state(), b.state()), strings.Compare(a.Session, b.Session), strings.Compare(a.Device, b.Device))
}

// graceMS is the age, in milliseconds, from which a session may replace a resume point.
const graceMS = 10_000

// early reports whether an event may be from a session started by mistake.
func (e *event) early() bool {
	switch {
	case e.Kind == history.KindSeek || e.Kind == history.KindFinish || e.Kind == history.KindDelete:
		return false
	case e.Kind == history.KindStart:
		return true
	case e.StartedAt > 0:
		return e.At-e.StartedAt < graceMS
	}
	return e.Position < graceMS
}

// compareVersion orders two events by time and rank, as merges do beyond the latest event.
func compareVersion(a, b *event) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.rank(), b.rank()))
}

// after returns the events later than a time, and the acknowledged ones of these.
func (s *story) after(at int64) (all, acked []*event) {
	for _, e := range s.events {
		if e.At > at {
			all = append(all, e)
			if e.acked {
				acked = append(acked, e)
			}
		}
	}
	return all, acked
}

// deleted returns the time of the last certain delete, or 0.
func deleted(acked []*event) (at int64) {
	for _, e := range acked {
		if e.Kind == history.KindDelete {
			at = max(at, e.At)
		}
	}
	return at
}

func latest(events []*event) *event {
	if len(events) == 0 {
		return nil
	}
	return slices.MaxFunc(events, compare)
}
