package history_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

func TestMergeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := folded(crowded())
		a, b, c := r.Draw(t, "a"), r.Draw(t, "b"), r.Draw(t, "c")
		ab, bc := history.Merge(a, b), history.Merge(b, c)
		wantSame(t, "commutative", history.Merge(b, a), ab)
		wantSame(t, "associative", history.Merge(a, bc), history.Merge(ab, c))
		wantSame(t, "idempotent", history.Merge(a, a), a)
		wantSame(t, "absorbing", history.Merge(ab, a), ab)
		wantSame(t, "neutral", history.Merge(nil, a), a)
	})
}

// TestAnyOrder folds the events, with some repeats, in a random order and grouping.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(crowded(), 1, 30).Draw(t, "events")
		repeats := rapid.SliceOf(rapid.SampledFrom(events)).Draw(t, "repeats")
		shuffled := rapid.Permutation(slices.Concat(events, repeats)).Draw(t, "shuffled")
		wantSame(t, "in random groups", grouped(t, shuffled), fold(inOrder(events)))
	})
}

func grouped(t *rapid.T, events []history.Event) *history.Record {
	if len(events) == 1 {
		return events[0].Record()
	}
	i := rapid.IntRange(1, len(events)-1).Draw(t, "cut")
	return history.Merge(grouped(t, events[:i]), grouped(t, events[i:]))
}

func TestMergeShowsWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(crowded(), 1, 40).Draw(t, "events")
		r := fold(events)
		if got, want := viewOf(r), model(events); got != want {
			t.Fatalf("%+v:\ngot  %+v\nwant %+v", events, got, want)
		}
		if got, want := r.Sessions(), sessionsOf(events); !r.Deleted() && !slices.Equal(got, want) {
			t.Fatalf("%+v:\ngot  %+v\nwant %+v", events, got, want)
		}
	})
}

// TestDeleteLeavesNoTrace: deleted events leave no trace, however many there are and whichever arrives first.
func TestDeleteLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		covered, live := folded(undeleted()).Draw(t, "covered"), folded(wide()).Draw(t, "live")
		tombstone := &history.Event{Kind: history.KindDelete, At: epoch + rapid.Int64Range(0, 20).Draw(t, "deleted at")}
		reset := history.Merge(tombstone.Record(), live)
		want := history.Merge(covered.After(reset.RemovedAt), reset)
		wantSame(t, "the delete later", history.Merge(covered, reset), want)
		wantSame(t, "the delete first", history.Merge(reset, covered), want)
	})
}

// TestAfter: After equals the fold of the later events alone.
func TestAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(crowded(), 0, 30).Draw(t, "events")
		at := epoch + rapid.Int64Range(-1, 21).Draw(t, "at")
		later := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.At <= at })
		wantSame(t, "after", fold(events).After(at), fold(later).After(at))
	})
}

// TestAfterOfMerge: After distributes over Merge.
func TestAfterOfMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := folded(crowded()).Draw(t, "a"), folded(crowded()).Draw(t, "b")
		at := epoch + rapid.Int64Range(0, 20).Draw(t, "at")
		wantSame(t, "after", history.Merge(a, b).After(at), history.Merge(a.After(at), b.After(at)))
	})
}

// TestRecordsNeverChange merges and clears records of a growing pool and compares all of them with early
// copies.
func TestRecordsNeverChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pool, copies []*history.Record
		keep := func(r *history.Record) {
			if r != nil {
				pool, copies = append(pool, r), append(copies, deepCopy(r))
			}
		}
		for _, e := range many(wide(), 2, 30).Draw(t, "events") {
			keep(e.Record())
		}
		for range 60 {
			one, other := rapid.SampledFrom(pool).Draw(t, "one"), rapid.SampledFrom(pool).Draw(t, "other")
			keep(history.Merge(one, other))
			keep(one.After(epoch + rapid.Int64Range(0, 20).Draw(t, "at")))
		}
		for i := range pool {
			if !reflect.DeepEqual(pool[i], copies[i]) {
				t.Fatalf("record %d is now %+v\nwas %+v", i, pool[i], copies[i])
			}
		}
	})
}

func deepCopy(r *history.Record) *history.Record {
	c := *r
	c.Peaks, c.Completions = slices.Clone(r.Peaks), slices.Clone(r.Completions)
	c.Watches, c.Viewings = slices.Clone(r.Watches), slices.Clone(r.Viewings)
	c.Lows, c.Starts = slices.Clone(r.Lows), slices.Clone(r.Starts)
	return &c
}

func TestMergeRevision(t *testing.T) {
	e := history.Event{Kind: history.KindProgress, At: epoch}
	r := e.Record()
	r.Revision = 7
	if got := history.Merge(r, nil).Revision; got != 7 {
		t.Errorf("merged with nothing: got revision %d, want 7", got)
	}
	if got := history.Merge(r, r).Revision; got != 0 {
		t.Errorf("merged with a record: got revision %d, want none", got)
	}
	other := *r
	other.Revision = 8
	if !history.Same(r, &other) || history.Same(r, nil) || !history.Same(nil, nil) {
		t.Error("Same looks at revisions, or takes a record for nothing")
	}
}

// TestMergePartial: a fold is partial only if both records are.
func TestMergePartial(t *testing.T) {
	for _, partial := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		a, b := &history.Record{Version: 4, Partial: partial[0]}, &history.Record{Version: 8, Partial: partial[1]}
		if got, want := history.Merge(a, b).Partial, partial[0] && partial[1]; got != want {
			t.Errorf("%v: got partial %v, want %v", partial, got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fold(many(wide(), 1, 200).Draw(t, "events"))
		if len(r.Peaks) > history.MaxPeaks || len(r.Completions) > history.MaxCompletions || len(r.Watches) > history.MaxWatches || len(r.Lows) > history.MaxLows || len(r.Starts) > history.MaxStarts {
			t.Fatalf("%d peaks, %d completions, %d watches, %d lows and %d starts", len(r.Peaks), len(r.Completions), len(r.Watches), len(r.Lows), len(r.Starts))
		}
	})
}

// TestFurthestBeyondTheBound: without deletes the furthest position is exact in any order and grouping, even
// with more peaks than the bound.
func TestFurthestBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(undeleted(), 1, 100).Draw(t, "events")
		if got, want := grouped(t, events).Furthest(), model(events).Furthest; got != want {
			t.Fatalf("%+v: got furthest %d, want %d", events, got, want)
		}
	})
}

// TestPlaysBeyondTheBound reports more viewings than a record lists, in order, with shared milliseconds and
// some repeats.
func TestPlaysBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 6), 40, 60).Draw(t, "viewings of each millisecond")
		var r *history.Record
		var reported []history.Event
		for i, n := range sizes {
			for j := range n {
				e := history.Event{Kind: history.KindFinish, At: epoch + int64(i), Session: fmt.Sprint(i, "/", j)}
				reported = append(reported, e)
				r = history.Merge(r, e.Record())
				if got, want := r.Plays(), uint64(len(reported)); got != want {
					t.Fatalf("after %d viewings: got %d plays", want, got)
				}
			}
			repeat := rapid.SampledFrom(reported).Draw(t, "repeat")
			wantSame(t, "idempotent", history.Merge(r, r), r)
			wantSame(t, "a repeat", history.Merge(r, repeat.Record()), r)
		}
	})
}

// TestWatchedBeyondTheBound reports more sessions than a record lists, in order, each with several reports.
func TestWatchedBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r *history.Record
		var reported []history.Event
		at, want := epoch, int64(0)
		beside := rapid.Bool().Draw(t, "another session beside each")
		for i := range rapid.IntRange(100, 300).Draw(t, "sessions") {
			played := rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 3).Draw(t, "played")
			begin, total := at, int64(0)
			for _, ms := range played {
				at, total = at+ms+rapid.Int64Range(0, 5).Draw(t, "later"), total+ms
				e := history.Event{Kind: history.KindProgress, At: at, Session: fmt.Sprint(i), StartedAt: begin, Watched: total}
				reported = append(reported, e)
				r = history.Merge(r, e.Record())
				if beside { // a concurrent session
					e.Session, e.Watched = fmt.Sprint(i, "beside"), at-begin
					reported = append(reported, e)
					r = history.Merge(r, e.Record())
				}
			}
			if beside {
				total += at - begin
			}
			if want += total; r.Watched() != want || len(r.Watches) > history.MaxWatches {
				t.Fatalf("after %d sessions: got %d in %d watches, want %d", i+1, r.Watched(), len(r.Watches), want)
			}
			repeat := rapid.SampledFrom(reported).Draw(t, "repeat")
			wantSame(t, "idempotent", history.Merge(r, r), r)
			wantSame(t, "a repeat", history.Merge(r, repeat.Record()), r)
		}
	})
}

// TestPlaysOfOneMillisecond: one upload may have more viewings of one millisecond than a record lists.
func TestPlaysOfOneMillisecond(t *testing.T) {
	var r *history.Record
	for i := range history.MaxCompletions + 1 {
		e := history.Event{Kind: history.KindFinish, At: epoch, Session: fmt.Sprint(i)}
		r = history.Merge(r, e.Record())
	}
	want := uint64(history.MaxCompletions + 1)
	if got := r.Plays(); got != want {
		t.Errorf("got %d plays, want %d", got, want)
	}
	if got := history.Merge(r, r).Plays(); got != want {
		t.Errorf("merged with itself: got %d plays, want %d", got, want)
	}
	if got := r.CompletedAt(); got != epoch {
		t.Errorf("completed at %d, want %d", got, epoch)
	}
}

// viewings are finished viewings, one per millisecond.
func viewings(from, to int) *history.Record {
	var r *history.Record
	for i := from; i < to; i++ {
		e := history.Event{Kind: history.KindFinish, At: epoch + int64(i), Session: fmt.Sprint(i)}
		r = history.Merge(r, e.Record())
	}
	return r
}

// TestDeleteBetweenPlays merges two records that exceed the bound only together, one of them with a delete.
// Deleted plays take no room.
func TestDeleteBetweenPlays(t *testing.T) {
	for _, deleted := range []int{0, 50, 99, 150} {
		tombstone := history.Event{Kind: history.KindDelete, At: epoch + int64(deleted)}
		late := history.Merge(tombstone.Record(), viewings(100, 200))
		want := uint64(199 - deleted)
		for _, got := range []*history.Record{history.Merge(viewings(0, 100), late), history.Merge(late, viewings(0, 100))} {
			if got.Plays() != want {
				t.Errorf("deleted at %d: got %d plays, want %d", deleted, got.Plays(), want)
			}
		}
	}
}

// peaks are reports whose positions fall over time.
func peaks(from, to int, top int64) *history.Record {
	var events []history.Event
	for i := from; i < to; i++ {
		events = append(events, history.Event{Kind: history.KindProgress, At: epoch + int64(i), Position: top - int64(i)})
	}
	return fold(events)
}

// TestDeleteBetweenPeaks: deleted peaks evict no others.
func TestDeleteBetweenPeaks(t *testing.T) {
	tombstone := history.Event{Kind: history.KindDelete, At: epoch + 10}
	late := history.Merge(tombstone.Record(), peaks(11, 20, 1000))
	if n := len(late.Peaks); n != history.MaxPeaks {
		t.Fatalf("the late record has %d peaks, want %d", n, history.MaxPeaks)
	}
	early := peaks(0, 9, 9000)
	for _, r := range []*history.Record{history.Merge(early, late), history.Merge(late, early)} {
		if r.Furthest() != 989 || !slices.Equal(r.Peaks, late.Peaks) {
			t.Errorf("got furthest %d, peaks %v; want 989, %v", r.Furthest(), r.Peaks, late.Peaks)
		}
	}
}

// sessions are the ways in which players report a session.
var sessions = map[string]func(e *history.Event, i int){
	"nothing": func(*history.Event, int) {},
	"watched": func(e *history.Event, i int) { e.StartedAt, e.Watched = epoch-10_000, int64(i) },
	"started": func(e *history.Event, i int) {
		if e.Kind = history.KindProgress; i == 0 {
			e.Kind = history.KindStart
		}
	},
}

// BenchmarkMerge folds the heartbeats of one viewing into a record with a few others.
func BenchmarkMerge(b *testing.B) {
	for name, session := range sessions {
		b.Run(name, func(b *testing.B) {
			e := history.Event{Kind: history.KindProgress, Duration: 5_400_000, Device: "phone", Meta: history.NewMeta(map[string]string{"title": "x"})}
			var r *history.Record
			for i := range 5 {
				e.At, e.Position, e.Session = epoch+int64(i), 5_400_000, fmt.Sprint(i)
				session(&e, 1)
				r = history.Merge(r, e.Record())
			}
			e.Session = "s"
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				e.At, e.Position = epoch+100+int64(i), 60_000+int64(i)%5_000_000
				session(&e, i)
				said := e.Record()
				if m := history.Merge(r, said); !history.Same(m, r) {
					r = m
				}
			}
		})
	}
}
