package history_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := fold(many(wide(), 1, 200).Draw(t, "events"))
		if len(r.Peaks) > history.MaxPeaks || len(r.Completions) > history.MaxCompletions || len(r.Watches) > history.MaxWatches {
			t.Fatalf("%d peaks, %d completions and %d watches", len(r.Peaks), len(r.Completions), len(r.Watches))
		}
	})
}

// TestFurthestBeyondTheBound: without deletes the furthest position is exact in any
// order and grouping, however many peaks there were.
func TestFurthestBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(undeleted(), 1, 100).Draw(t, "events")
		if got, want := grouped(t, events).Furthest(), model(events).Furthest; got != want {
			t.Fatalf("%+v: got furthest %d, want %d", events, got, want)
		}
	})
}

// TestPlaysBeyondTheBound reports more viewings than a record lists, in order, some
// in one millisecond, and some of them again.
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

// TestWatchedBeyondTheBound has more sessions play than a record lists, in order, each
// of them with several reports.
func TestWatchedBeyondTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r *history.Record
		var reported []history.Event
		at, want := epoch, int64(0)
		for i := range rapid.IntRange(100, 300).Draw(t, "sessions") {
			played := rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 3).Draw(t, "played")
			total := int64(0)
			for _, ms := range played {
				at, total = at+rapid.Int64Range(1, 5).Draw(t, "later"), total+ms
				e := history.Event{Kind: history.KindProgress, At: at, Session: fmt.Sprint(i), StartedAt: epoch - 1, Watched: total}
				reported = append(reported, e)
				r = history.Merge(r, e.Record())
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

// TestPlaysOfOneMillisecond: one upload may bring more viewings of one time than a
// record lists.
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

// viewings are finished viewings, one in each of the given milliseconds.
func viewings(from, to int) *history.Record {
	var r *history.Record
	for i := from; i < to; i++ {
		e := history.Event{Kind: history.KindFinish, At: epoch + int64(i), Session: fmt.Sprint(i)}
		r = history.Merge(r, e.Record())
	}
	return r
}

// TestDeleteBetweenPlays merges two records that are within the bound, but not
// together, and one of which knows of a delete: what is deleted takes no room.
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

// peaks are reports that go further the older they are.
func peaks(from, to int, top int64) *history.Record {
	var events []history.Event
	for i := from; i < to; i++ {
		events = append(events, history.Event{Kind: history.KindProgress, At: epoch + int64(i), Position: top - int64(i)})
	}
	return fold(events)
}

// TestDeleteBetweenPeaks: peaks that a delete covers push no others out.
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
