package count_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/historytest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestMemory(t *testing.T) {
	historytest.Counters(t, func(*testing.T) historytest.CounterStore {
		at := time.UnixMilli(1_790_000_000_000)
		now := func() time.Time { return at }
		return historytest.CounterStore{Counters: count.NewMemory(new(history.Rulebook), now), Now: now, Pass: func(d time.Duration) { at = at.Add(d) }}
	})
}

// TestFollowing: totals say what is in them, which was so before they were read.
func TestFollowing(t *testing.T) {
	var through int64
	store := readings{count.NewMemory(new(history.Rulebook), time.Now), func() { through = 2 }}
	through = 1
	all, err := count.Following(store, func() int64 { return through }).Totals(t.Context(), []history.Object{key.Object})
	if err != nil || len(all) != 1 || all[0].Through != 1 {
		t.Errorf("got %+v, %v, want the totals through 1", all, err)
	}
}

// readings calls a function with each read of totals.
type readings struct {
	count.Counters

	read func()
}

func (r readings) Totals(ctx context.Context, objects []history.Object) ([]count.Totals, error) {
	r.read()
	return r.Counters.Totals(ctx, objects)
}

const at = 1_790_000_000_000

var key = history.Key{UID: "ann\x01clips", Object: history.Object{ID: "film", Type: 1}}

// record folds reports of a ten-minute film, each at a time in minutes.
func record(reports ...history.Event) (r *history.Record) {
	for _, e := range reports {
		e.Key, e.Duration, e.At = key, 600_000, at+e.At*60_000
		if e.StartedAt > 0 {
			e.StartedAt = at + e.StartedAt*60_000
		}
		r = history.Merge(r, e.Record())
	}
	return r.Successor(nil)
}

func finish(minute int64, session string) history.Event {
	return history.Event{Kind: history.KindFinish, At: minute, Position: 600_000, Session: session}
}

// after is a time in minutes after at.
func after(minute int64) int64 { return at + minute*60_000 }

// TestOf tells what records say.
func TestOf(t *testing.T) {
	const day = 24 * 60
	watched := finish(day, "b")
	watched.StartedAt, watched.Watched = day-9, 500_000
	for _, c := range []struct {
		name string
		r    *history.Record
		want []history.Played
		says bool
	}{
		{"started", record(history.Event{Kind: history.KindStart, At: 1}), nil, false},
		{"finished", record(finish(1, "a"), watched), []history.Played{{At: after(1), Plays: 1}, {At: after(day), Plays: 1, Watched: 500_000}}, true},
		{"unwatched", record(finish(1, "a"), history.Event{Kind: history.KindUnwatched, At: 2}), nil, true},
		{"deleted", record(finish(1, "a"), history.Event{Kind: history.KindDelete, At: 2}), nil, true},
		{"again", record(finish(1, "a"), history.Event{Kind: history.KindDelete, At: 2}, finish(3, "b")), []history.Played{{At: after(3), Plays: 1}}, true},
		{"late", record(history.Event{Kind: history.KindDelete, At: 2}, finish(1, "a")), nil, true},
	} {
		s, ok := count.Of(key, c.r)
		if ok != c.says || !reflect.DeepEqual(s.Played, c.want) {
			t.Errorf("%s: got %+v, %v, want %+v, %v", c.name, s.Played, ok, c.want, c.says)
		}
		if ok && (s.UID != key.UID || s.Object != key.Object || s.CellTime != c.r.CellTime || s.RemovedAt != c.r.RemovedAt) {
			t.Errorf("%s: got %+v of %+v", c.name, s, c.r)
		}
	}
}

// TestRestored: what comes back from a backup was counted before the removal.
func TestRestored(t *testing.T) {
	r := record(finish(1, "a"), finish(3, "b")).Restore(at + 5*60_000)
	r = history.Merge(r, record(finish(7, "c")))
	if s, ok := count.Of(key, r); !ok || s.RemovedAt != at+5*60_000 || len(s.Played) != 1 || s.Played[0].Plays != 1 {
		t.Errorf("a restored record, played again: got %+v, %v, want one play; it has %d", s, ok, r.Plays())
	}
}

// TestAnyOrder: reports and deletes reach a record in any order, and its statements the counters, some again. Each
// session that a statement ever had counts once, whatever was deleted since.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := func() time.Time { return time.UnixMilli(after(100)) }
		c := count.NewMemory(new(history.Rulebook), now)
		var r *history.Record
		var said []count.Statement
		counted := make(map[int64]bool) // times of the sessions' ends
		for i, minute := range rapid.SliceOfNDistinct(rapid.Int64Range(1, 99), 1, 12, rapid.ID).Draw(t, "minutes") {
			e := finish(minute, fmt.Sprint(i))
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				e = history.Event{Kind: history.KindDelete, At: minute}
			}
			r = history.Merge(r, record(e)).Successor(nil)
			s, ok := count.Of(key, r)
			if !ok {
				continue
			}
			said = append(said, s)
			if rapid.Bool().Draw(t, "late") {
				continue
			}
			for _, p := range s.Played {
				counted[p.At] = true
			}
			from := rapid.IntRange(0, len(said)-1).Draw(t, "from")
			c.Count(t.Context(), append([]count.Statement{s}, said[from:]...))
		}
		all, err := c.Totals(t.Context(), []history.Object{key.Object})
		if err != nil || all[0].All.Plays != int64(len(counted)) {
			t.Fatalf("got %+v, %v, want %d plays", all[0].All, err, len(counted))
		}
	})
}

func TestCodec(t *testing.T) {
	statements := []count.Statement{
		{UID: "ann", Object: key.Object, CellTime: at, Played: []history.Played{{At: at - 9, Watched: 7}, {At: at, Plays: 1, Watched: 5_400_000}}},
		{UID: key.UID, Object: key.Object, CellTime: at + 1, RemovedAt: at},
	}
	message := count.AppendMessage(nil, statements)
	got, err := count.Message(message)
	if err != nil || !reflect.DeepEqual(got, statements) {
		t.Errorf("message: got %+v, %v", got, err)
	}
	if n := len(count.AppendMessage(nil, statements[:1])) - len("ann") - len("film"); n > 60 {
		t.Errorf("a statement has %d bytes besides the ids, want 60 at most", n)
	}
	mark := count.Mark{CellTime: at, RemovedAt: at - 1, Played: statements[0].Played, Before: []history.Day{19_000, 20_000}}
	if got, err := count.ParseMark(count.AppendMark(nil, &mark)); err != nil || !reflect.DeepEqual(got, mark) {
		t.Errorf("mark: got %+v, %v", got, err)
	}
	row := count.Row{Totals: count.Totals{All: count.Sum{Plays: 2, Viewers: 1, Watched: -3}, Days: []count.DaySum{{Day: 20_000, Sum: count.Sum{Plays: 2}}}}, Version: 7, Users: 1, Full: true}
	if got, err := count.ParseRow(count.AppendRow(nil, &row)); err != nil || !reflect.DeepEqual(got, row) {
		t.Errorf("row: got %+v, %v", got, err)
	}
	newer, err := proto.Marshal(&historyv1.Statements{Format: 1})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"newer": newer, "cut": message[:len(message)-3], "garbage": {0xff}} {
		if _, err := count.Message(b); !errors.Is(err, history.ErrPermanent) {
			t.Errorf("%s message: got %v, want ErrPermanent", name, err)
		}
	}
	if _, err := count.ParseMark([]byte{0xff}); !errors.Is(err, history.ErrPermanent) {
		t.Errorf("garbage as a mark: %v", err)
	}
	if _, err := count.ParseRow([]byte{0xff}); !errors.Is(err, history.ErrPermanent) {
		t.Errorf("garbage as a row: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(count.AppendMessage(nil, []count.Statement{{UID: "ann", Object: key.Object, CellTime: at, Played: []history.Played{{At: at, Plays: 1}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, err := count.Message(b); err == nil {
			if again, err := count.Message(count.AppendMessage(nil, all)); err != nil || len(again) != len(all) {
				t.Errorf("%x: %d statements, encoded and decoded %d, %v", b, len(all), len(again), err)
			}
		}
		if m, err := count.ParseMark(b); err == nil && m.CellTime > 0 {
			if again, err := count.ParseMark(count.AppendMark(nil, &m)); err != nil || again.CellTime != m.CellTime {
				t.Errorf("%x: mark %+v, again %+v, %v", b, m, again, err)
			}
		}
		_, _ = count.ParseRow(b)
	})
}
