package history_test

import (
	"maps"
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

// TestAnyOrder folds the events, some of them several times, in a random order and
// in random groups.
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
		if got, want := viewOf(fold(events)), model(events); got != want {
			t.Fatalf("%+v:\ngot  %+v\nwant %+v", events, got, want)
		}
	})
}

// TestDeleteLeavesNoTrace: what a delete covers is as if it had never been, however
// much it is and whichever of the two arrives first.
func TestDeleteLeavesNoTrace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		covered, live := folded(undeleted()).Draw(t, "covered"), folded(wide()).Draw(t, "live")
		tombstone := &history.Event{Kind: history.KindDelete, At: epoch + rapid.Int64Range(0, 20).Draw(t, "deleted at")}
		reset := history.Merge(tombstone.Record(), live)
		want := history.Merge(covered.After(reset.Reset), reset)
		wantSame(t, "the delete later", history.Merge(covered, reset), want)
		wantSame(t, "the delete first", history.Merge(reset, covered), want)
	})
}

// TestAfter: what a clear leaves is what the events after it fold to, and a reset.
func TestAfter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(crowded(), 0, 30).Draw(t, "events")
		at := epoch + rapid.Int64Range(-1, 21).Draw(t, "at")
		later := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool { return e.At <= at })
		want := fold(later)
		if want != nil {
			want.Reset = max(want.Reset, at)
		}
		wantSame(t, "after", fold(events).After(at), want)
	})
}

// TestAfterOfMerge: clearing both parts or their fold is the same.
func TestAfterOfMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := folded(crowded()).Draw(t, "a"), folded(crowded()).Draw(t, "b")
		at := epoch + rapid.Int64Range(0, 20).Draw(t, "at")
		wantSame(t, "after", history.Merge(a, b).After(at), history.Merge(a.After(at), b.After(at)))
	})
}

// TestRecordsNeverChange merges and clears records of a pool, puts the results into
// the pool too, and compares all with copies that were made at once.
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
	c.Watches = slices.Clone(r.Watches)
	c.Meta = maps.Clone(r.Meta)
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

// TestMergePartial: what one of the two knows of the past, their fold knows.
func TestMergePartial(t *testing.T) {
	for _, partial := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		a, b := &history.Record{Version: 4, Partial: partial[0]}, &history.Record{Version: 8, Partial: partial[1]}
		if got, want := history.Merge(a, b).Partial, partial[0] && partial[1]; got != want {
			t.Errorf("%v: got partial %v, want %v", partial, got, want)
		}
	}
}
