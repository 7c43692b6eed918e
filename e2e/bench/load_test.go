package bench_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

func TestLongViewings(t *testing.T) {
	const want = 100_000
	l := bench.NewLoad(bench.LongViewings(want), 110)
	if got := l.Len(); got < want*99/100 || got > want*101/100 {
		t.Errorf("%d heartbeats, want about %d", got, want)
	}
	if got := float64(l.Len()) / float64(l.Viewings()); got < 13.55 || got > 13.65 {
		t.Errorf("%.3f heartbeats a viewing, want 13.6", got)
	}
	if n, bytes := l.Records(); n != l.Viewings() || bytes < 130 || bytes > 250 {
		t.Errorf("%d records of %.0f bytes, want one for each of %d viewings", n, bytes, l.Viewings())
	}
}

// TestNothingToFold checks that viewings are so interleaved that no batch has two heartbeats of one.
func TestNothingToFold(t *testing.T) {
	vs := []replay.Viewing{}
	for i := range int64(2000) {
		vs = append(vs, replay.Viewing{UID: "u", Object: history.Object{ID: string(rune('a'+i%26)) + time.Duration(i).String(), Type: 1}, At: i * 100_000, Played: 67_000})
	}
	for name, l := range map[string]*bench.Load{
		"long": bench.NewLoad(bench.LongViewings(50_000), 0), "dense": bench.NewLoad(bench.Dense(vs, 1000), 0),
	} {
		all := l.Share(1)[0]
		for from := 0; from+100 <= len(all); from += 100 {
			keys, _ := bench.Fold(l, all[from:from+100])
			if len(keys) < 97 { // starts and stops may repeat
				t.Fatalf("%s: %d keys in heartbeats %d to %d", name, len(keys), from, from+100)
			}
		}
	}
}

func TestMetadata(t *testing.T) {
	for _, want := range []int{0, 110, 900} {
		l := bench.NewLoad(bench.LongViewings(1000), want)
		for i := range l.Len() {
			e := l.Event(i)
			if err := e.Validate(); err != nil {
				t.Fatal(err)
			}
			got := 0
			for k, v := range e.Meta.All() {
				got += len(k) + len(v)
			}
			if got != want {
				t.Fatalf("%d bytes of metadata, want %d: %v", got, want, e.Meta)
			}
		}
	}
}

// TestSame checks that all sides receive the same heartbeats: the JSON and SQL texts must equal the gRPC
// messages.
func TestSame(t *testing.T) {
	l := bench.NewLoad(bench.LongViewings(2000), 110)
	for i := range l.Len() {
		var said struct {
			Object   struct{ ID string }
			Position int64     `json:"position_ms"`
			Duration int64     `json:"duration_ms"`
			At       time.Time `json:"event_time"`
			Session  string
			Device   string
			Meta     map[string]string
		}
		if err := json.Unmarshal([]byte(l.JSON(i)), &said); err != nil {
			t.Fatal(err)
		}
		e := l.Event(i)
		if said.Object.ID != e.Key.Object.ID || said.Position != e.Position || said.Duration != e.Duration || said.At.UnixMilli() != e.At ||
			said.Session != e.Session || said.Device != e.Device || !maps.Equal(said.Meta, e.Meta.Map()) {
			t.Fatalf("%+v, want %+v", said, e)
		}
		var kept map[string]string
		if err := json.Unmarshal([]byte(l.Text(i)), &kept); err != nil || !maps.Equal(kept, e.Meta.Map()) {
			t.Fatalf("metadata %v in the table, %v, want %v", kept, err, e.Meta)
		}
	}
}

// TestShare checks that every heartbeat goes to one worker, and a user's heartbeats to one worker in order.
func TestShare(t *testing.T) {
	l := bench.NewLoad(bench.LongViewings(5000), 0)
	for name, parts := range map[string][][]int32{"share": l.Share(4), "by user": l.ByUser()} {
		worker, all := make(map[string]int), []int32{}
		for w, part := range parts {
			if !slices.IsSorted(part) {
				t.Errorf("%s: the heartbeats of worker %d are not in order", name, w)
			}
			for _, i := range part {
				uid := l.Event(int(i)).Key.UID
				if was, ok := worker[uid]; ok && was != w {
					t.Fatalf("%s: user %s has workers %d and %d", name, uid, was, w)
				}
				worker[uid] = w
			}
			all = append(all, part...)
		}
		slices.Sort(all)
		if len(all) != l.Len() || len(slices.Compact(all)) != l.Len() {
			t.Errorf("%s: %d heartbeats, want each of %d once", name, len(all), l.Len())
		}
	}
}

func TestFold(t *testing.T) {
	object := func(id string) history.Object { return history.Object{ID: id, Type: 1} }
	l := bench.NewLoad([]replay.Viewing{
		{UID: "a", Object: object("1"), At: 1_700_000_000_000, Played: 40_000},
		{UID: "b", Object: object("1"), At: 1_700_000_001_000, Played: 1_000},
	}, 110)
	all := l.Share(1)[0] // a: 0 s, 15 s, 30 s, 40 s; b: 1 s, 2 s
	keys, at := bench.Fold(l, all)
	want := []history.Key{{UID: "a", Object: object("1")}, {UID: "b", Object: object("1")}}
	if !slices.Equal(keys, want) || !slices.Equal(at, []int64{1_700_000_040_000, 1_700_000_002_000}) {
		t.Errorf("%v at %v, want the last of %v", keys, at, want)
	}
	if keys, _ := bench.Fold(l, all[:1]); len(keys) != 1 {
		t.Errorf("%v of one heartbeat", keys)
	}
}

// stalling acknowledges at once, except one batch that takes a second.
type stalling struct{ at time.Time }

func (s *stalling) Send(context.Context, []int32) error {
	if wait := time.Until(s.at); wait > 0 && wait <= time.Second {
		time.Sleep(wait)
	}
	return nil
}

func (*stalling) Close() error { return nil }

// TestOmission checks coordinated omission: heartbeats that arrive during a stall count with their wait. One slow
// batch delays all heartbeats of a second.
func TestOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bench.NewLoad(bench.LongViewings(500), 0)
		const rate = 100
		took, latencies, err := bench.Send(t.Context(), l, bench.Shape{Workers: 1, Batch: 10, Rate: rate}, &stalling{time.Now().Add(3 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if want := time.Duration(l.Len()-1) * time.Second / rate; took != want {
			t.Errorf("%v for %d heartbeats, want %v", took, l.Len(), want)
		}
		slices.Sort(latencies)
		late, _ := slices.BinarySearch(latencies, time.Millisecond)
		if got := len(latencies) - late; got < 99 || got > 101 {
			t.Errorf("%d heartbeats waited, want those of a second", got)
		}
		if got := latencies[len(latencies)-1]; got > time.Second || got < 990*time.Millisecond {
			t.Errorf("the longest wait is %v, want a second", got)
		}
		if len(latencies) != l.Len()-rate { // the first second's
			t.Errorf("%d latencies of %d heartbeats", len(latencies), l.Len())
		}
	})
}

// refusing asks for one retry of every batch.
type refusing struct{ asked bool }

func (s *refusing) Send(context.Context, []int32) error {
	if s.asked = !s.asked; s.asked {
		return bench.AllStored([]byte(`{"code":"unavailable"}`), 1)
	}
	return nil
}

func (*refusing) Close() error { return nil }

// TestAgain retries unavailable batches after a second, which counts.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bench.NewLoad(bench.LongViewings(30), 0)
		took, _, err := bench.Send(t.Context(), l, bench.Shape{Workers: 1, Batch: l.Len() / 2}, &refusing{})
		if err != nil || took < 2*time.Second {
			t.Errorf("%v, %v, want two seconds", took, err)
		}
	})
}

func TestAllStored(t *testing.T) {
	for text, want := range map[string]bool{
		`{"results":[{"status":"stored"},{"status":"unchanged"}]}`: true,
		`{"results":[{"status":"stored"}]}`:                        false,
		`{"results":[{"status":"stored"},{"status":"invalid"}]}`:   false,
		`{}`: false,
	} {
		if err := bench.AllStored([]byte(text), 2); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
