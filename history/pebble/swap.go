package pebble

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// swap compares every base and makes the writes whose base stands visible. The lock
// of the cache makes the two one step; it is not held for the fsync. The ticket is nil
// when nothing was written.
func (c *Cache) swap(writes []history.Write, e *encoded, outcomes []history.Outcome) (*ticket, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	s := swapper{Cache: c, oldest: c.oldest()}
	s.all = c.db.pebble.NewBatchWithSize(len(e.bytes) + len(e.bytes)/2)
	defer s.all.Close()
	s.part = c.db.pebble.NewBatch()
	defer s.part.Close()
	for i := range writes {
		outcomes[i] = s.swap(&writes[i], e.at(i, writes[i].Key.UID))
	}
	if s.all.Empty() {
		return nil, nil
	}
	if err := remark(s.part, s.moves...); err != nil {
		return nil, err
	}
	if err := s.all.Apply(s.part, nil); err != nil {
		return nil, unavailable(err)
	}
	t := new(ticket) // done after whatever the call has seen
	return t, c.db.commit(change{all: s.all, part: s.part, ticket: t, follow: func() error {
		for i := range writes {
			if outcomes[i].Status != history.Applied {
				continue
			}
			x := e.at(i, writes[i].Key.UID)
			s.pending.put(x.key, t)
			if err := s.memory.put(s.part, x); err != nil {
				return err
			}
		}
		return nil
	}})
}

// swapper collects the writes of a call whose base stands.
type swapper struct {
	*Cache
	all, part *pebble.Batch // as in a change; all gets the part at the end
	oldest    int64
	moves     []move
}

func (s *swapper) swap(w *history.Write, x item) history.Outcome {
	if was, ok := s.follows(w, x); ok {
		return s.set(w, x, was)
	}
	var was history.Mark
	var current *history.Record
	stands := false
	err := s.get(x.key, func(v []byte) (err error) {
		var record []byte
		was, record = s.split(v)
		if stands, err = s.stands(w, record); err == nil && !stands {
			if current, err = s.record(v, s.oldest); err != nil {
				current, err = s.empty(v), nil
			}
		}
		return err
	})
	switch {
	case err != nil:
		return history.Outcome{Err: err}
	case !stands:
		return s.conflict(w, current)
	}
	return s.set(w, x, was)
}

// follows returns the mark of the record that w is based on, if the memory has it.
func (s *swapper) follows(w *history.Write, x item) (history.Mark, bool) {
	if w.Base == 0 {
		return 0, false
	}
	if v := s.memory.waiting.get(x.hash, x.key); v != nil {
		was := stampOf(v)
		return was.mark, was.revision == w.Base
	}
	was, ok := s.memory.stamps.get(x.hash)
	return was.mark, ok && was.revision == w.Base
}

// stands reports whether the base of w is what the cache holds. What has outlived
// its life is as good as absent, or a write without a base would never succeed.
func (s *swapper) stands(w *history.Write, record []byte) (bool, error) {
	if w.Base != 0 {
		return wire.Revision(record) == w.Base, nil
	}
	// What is damaged beyond its revision is in nobody's way.
	if wire.Revision(record) != 0 && !outlived(record, s.oldest) {
		return false, nil
	}
	u, err := s.userOf(w.Key.UID)
	return err == nil && w.Record.Version.Time() > u.ClearedAt(w.Key.Object.Type) &&
		w.Pause == u.Pause && (w.Record.Partial || u.Complete()), err
}

func (s *swapper) conflict(w *history.Write, current *history.Record) history.Outcome {
	u, err := s.userOf(w.Key.UID)
	if err != nil {
		return history.Outcome{Err: err}
	}
	return history.Outcome{Status: history.Conflict, Current: history.Entry{Record: current, User: u}}
}

// set adds a write. A new mark takes the place of the one before; a write without
// one keeps it. What has none, because it is settled or absent, always gets one.
func (s *swapper) set(w *history.Write, x item, was history.Mark) history.Outcome {
	mark := was
	if w.Mark || w.Base == 0 || was == 0 {
		var err error
		if mark, err = s.db.nextMark(s.part); err != nil {
			return history.Outcome{Err: err}
		}
		s.moves = append(s.moves, move{w.Key, was, mark})
	}
	binary.BigEndian.PutUint64(x.value, uint64(mark))
	if err := set(s.all, x.key, x.value); err != nil {
		return history.Outcome{Err: err}
	}
	return history.Outcome{Status: history.Applied}
}

// userOf returns a user's state, which most first writes of a record ask for.
func (s *swapper) userOf(uid string) (history.User, error) {
	u, ok := s.memory.users.get(uid)
	if !ok {
		var err error
		if u, _, err = s.stored(uid); err != nil {
			return history.User{}, err
		}
		s.memory.users.put(uid, u)
	}
	return s.aged(u, s.oldest), nil
}
