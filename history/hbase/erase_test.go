package hbase_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

// secret is in every record to be erased, and in no other.
const secret = "5ec2e75e55107e57"

// secrets makes a user with live, late and segment records, and one with a future cell time.
func (t *compactTest) secrets() (until int64, ahead history.Cell) {
	t.Helper()
	var cells []history.Cell
	for i := range 12 {
		c := t.play(t.key(i), nil, time.Duration(12-i)*time.Second, int64(i))
		c.Record.Session = secret
		cells = append(cells, c)
	}
	t.store(cells...)
	t.clock.pass(2 * time.Hour)
	t.compact()
	late := t.play(t.key(20), nil, 90*time.Minute, 7)
	ahead = t.play(t.key(21), nil, time.Minute, 8)
	late.Record.Session, ahead.Record.Session = secret, secret
	ahead.Record.CellTime = t.clock.now().Add(time.Hour).UnixMilli()
	t.store(late, ahead)
	t.wantForms(3, 11)
	return t.clock.now().UnixMilli(), ahead
}

// left returns places with hidden remains of a user, other than timestamps.
func left(s *store, uid string) (places []string) {
	s.Lock()
	defer s.Unlock()
	for table, rows := range s.Tables {
		for row, r := range rows {
			if !strings.Contains(row, uid) {
				continue
			}
			for c, cells := range r.Cells {
				for _, value := range cells {
					if bytes.Contains(value, []byte(secret)) || strings.Contains(row, "\x00") || !strings.HasPrefix(c.Qualifier, "#") && c.Family != "segment" {
						places = append(places, fmt.Sprintf("%s %q %s:%q", table, row, c.Family, c.Qualifier))
					}
				}
			}
		}
	}
	return places
}

func (t *compactTest) wantErased(until int64) {
	t.Helper()
	held, err := t.Held(t.Context(), t.uid, until)
	t.must(err)
	for place, n := range held {
		if n > 0 {
			t.Errorf("%s: %d left", place, n)
		}
	}
	t.want()
	t.compactTable()
	if s, ok := t.client.(*store); ok {
		if places := left(s, t.uid); len(places) > 0 {
			t.Errorf("after a compaction there is something in %q", places)
		}
	}
	t.want()
}

// TestErase erases a user with records in all forms, and searches for the bytes. Later reports are kept, even of an
// object whose erased content had a later cell time.
func TestErase(t *testing.T) { eraseUser(newCompactTest(t)) }

func eraseUser(r *compactTest) {
	t := r.T
	other := r.another()
	cells := other.plays(8)
	other.compact()
	until, ahead := r.secrets()
	held, err := r.Held(t.Context(), r.uid, 0)
	r.must(err)
	for place, want := range map[string]int{"archive: live records": 3, "archive: records in segments": 11, "archive: chunks": 1} {
		if held[place] != want {
			t.Errorf("%s: %d held, want %d", place, held[place], want)
		}
	}
	for range 2 {
		r.must(r.Erase(t.Context(), r.uid, until))
		r.wantErased(until)
	}
	got, err := r.Get(t.Context(), []history.Key{ahead.Key})
	r.must(err)
	if u := got[0].User; u.Cleared[0] != until || u.CutTime < ahead.Record.CellTime {
		t.Errorf("cleared up to %d, cut time %d; want %d, and at least %d", u.Cleared[0], u.CutTime, until, ahead.Record.CellTime)
	}
	r.clock.pass(time.Minute)
	next := history.Event{Key: ahead.Key, Kind: history.KindProgress, At: r.clock.now().UnixMilli(), Position: 9}
	again := history.Cell{Key: ahead.Key, Record: next.Record().Successor(&got[0].User)}
	r.store(again)
	r.store(ahead) // a delayed put
	again.Record = again.Record.After(until)
	r.want(again)
	other.want(cells...)
}

// TestEraseBesideCompactor stops a compactor before each of its calls while the user is erased. It neither restores
// nor leaves anything.
func TestEraseBesideCompactor(t *testing.T) {
	for _, before := range []bool{false, true} {
		for stop, ended := 0, false; !ended; stop++ {
			r := newCompactTest(t)
			if before {
				r.secrets()
				r.clock.pass(2 * time.Hour)
			}
			var cells []history.Cell
			for i := range 9 {
				c := r.play(r.key(100+i), nil, time.Duration(i)*time.Second, 1)
				c.Record.Session = secret
				cells = append(cells, c)
			}
			r.store(cells...)
			r.clock.pass(2 * time.Hour)
			slow := r.compactor()
			for range stop {
				slow.next(made)
			}
			ended = slow.ended
			until := r.clock.now().UnixMilli()
			r.must(r.Erase(t.Context(), r.uid, until))
			if err := slow.finish(); err != nil && !errors.Is(err, history.ErrConflict) {
				t.Errorf("the roller, stopped after %d calls: %v", stop, err)
			}
			r.wantErased(until)
			if t.Failed() {
				t.Fatalf("with parts before: %v, the roller stood after %d calls", before, stop)
			}
		}
	}
}

// TestEraseStops stops an erasure before and after each of its calls, and repeats it.
func TestEraseStops(t *testing.T) {
	for _, how := range []fate{lost, forgotten} {
		for stop, ended := 0, false; !ended; stop++ {
			r := newCompactTest(t)
			until, _ := r.secrets()
			p := r.process(func(a *hbase.Archive) error { return a.Erase(t.Context(), r.uid, until) })
			for range stop {
				p.next(made)
			}
			ended = p.ended
			p.next(how)
			_ = p.finish() // it was killed
			r.must(r.Erase(t.Context(), r.uid, until))
			r.wantErased(until)
			if t.Failed() {
				t.Fatalf("it stopped after %d calls", stop)
			}
		}
	}
}

// TestEraseDamaged erases a user with a corrupt list of segments, and one with a corrupt chunk.
func TestEraseDamaged(t *testing.T) {
	for name, chunk := range map[string]bool{"list": false, "chunk": true} {
		t.Run(name, func(t *testing.T) {
			r := newCompactTest(t)
			until, _ := r.secrets()
			s := r.client.(*store)
			s.Lock()
			for row, stored := range s.Tables["history_segments"] {
				for _, cells := range stored.Cells {
					for at := range cells {
						if strings.Contains(row, "\x00") == chunk {
							cells[at] = []byte("spoilt " + secret)
						}
					}
				}
			}
			s.Unlock()
			r.must(r.Erase(t.Context(), r.uid, until))
			r.wantErased(until)
		})
	}
}

// TestEraseWithoutSegments erases in a table without compaction.
func TestEraseWithoutSegments(t *testing.T) {
	r := newCompactTest(t)
	r.Archive = hbase.NewWith(r.client, nil)
	c := r.play(r.key(1), nil, time.Minute, 1)
	c.Record.Session, c.Record.CellTime = secret, r.clock.now().Add(time.Hour).UnixMilli()
	r.store(c)
	until := r.clock.now().UnixMilli()
	r.must(r.Erase(t.Context(), r.uid, until))
	r.wantErased(until)
}
