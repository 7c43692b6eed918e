package replay_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// viewings of few users and objects, aligned so that heartbeats of several of them
// fall on one millisecond, with loops, unknown durations and repeated rows.
var viewings = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) replay.Viewing {
	return viewing(
		rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "b/2"}).Draw(t, "key"),
		noon+rapid.Int64Range(0, 8).Draw(t, "at")*7500,
		rapid.Int64Range(0, 10).Draw(t, "played")*7500,
		rapid.SampledFrom([]int64{0, 7500, 16_000, 30_000, 33_333, 60_000}).Draw(t, "duration"),
	)
}), 0, 12)

// fold is what the product makes of a plan.
func fold(p *replay.Plan) map[history.Key]*history.Record {
	m := make(map[history.Key]*history.Record)
	for i := range p.Len() {
		e := p.Event(i)
		e.Clamp()
		m[e.Key] = history.Merge(m[e.Key], e.Record())
	}
	return m
}

// TestModel compares two ways to merge: the product's, and the plain one.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := replay.Expand(viewings.Draw(t, "viewings"), rapid.IntRange(0, 40).Draw(t, "limit"))
		p.EndAt(noon + rapid.Int64Range(-1_000_000, 1_000_000).Draw(t, "end"))
		model, records := replay.Model(p), fold(p)
		if len(model) != len(records) {
			t.Errorf("%d records in the model, want %d", len(model), len(records))
		}
		for k, r := range records {
			if want := model[k]; want == nil || !want.Matches(r) {
				t.Errorf("%s: the model has %+v with %d plays, the product %+v", k, want, want.Plays(), r)
			}
		}
	})
}

// TestMatches changes every part of a record that readers see: the check must be
// able to fail.
func TestMatches(t *testing.T) {
	vs := []replay.Viewing{viewing("a/1", noon, 60_000, 50_000), viewing("a/1", noon+100_000, 20_000, 50_000)}
	p := replay.Expand(vs, 0)
	k := p.Event(0).Key
	want, good := replay.Model(p)[k], fold(p)[k]
	if !want.Matches(good) {
		t.Fatalf("%+v does not match %+v", want, good)
	}
	if want.Matches(nil) {
		t.Error("a missing record matches")
	}
	for name, change := range map[string]func(r *history.Record){
		"time":     func(r *history.Record) { r.Version += 4 },
		"state":    func(r *history.Record) { r.State = history.StatePlaying },
		"deleted":  func(r *history.Record) { r.State = history.StateDeleted },
		"position": func(r *history.Record) { r.Position-- },
		"place to go on": func(r *history.Record) {
			r.Early, r.NonEarly = true, history.NonEarly{Version: r.Version - 4, Position: 11_000}
		},
		"session":           func(r *history.Record) { r.Session = "other" },
		"duration":          func(r *history.Record) { r.Duration++ },
		"duration unknown":  func(r *history.Record) { r.Duration = 0 },
		"furthest":          func(r *history.Record) { r.Peaks = nil },
		"plays":             func(r *history.Record) { r.PlaysBefore++ },
		"no plays":          func(r *history.Record) { r.Completions = nil },
		"time of the plays": func(r *history.Record) { r.Completions = []history.Completion{{At: noon, Viewing: 1}} },
	} {
		bad := *good
		if change(&bad); want.Matches(&bad) {
			t.Errorf("a record with another %s matches", name)
		}
	}
	for _, change := range []func(r *history.Record){
		func(r *history.Record) { r.Revision = 99 },
		func(r *history.Record) { r.Partial = false },
		func(r *history.Record) { r.Version++ }, // the rank shows in the state
	} {
		same := *good
		if change(&same); !want.Matches(&same) {
			t.Errorf("%+v does not match, though readers see no difference", same)
		}
	}
}

func ExampleModel() {
	p := replay.Expand([]replay.Viewing{viewing("a/1", noon, 20_000, 21_000)}, 0)
	for k, e := range replay.Model(p) {
		fmt.Println(k, "stopped at", e.Position, "ms, completed", e.Plays(), "time")
	}
	// Output: a/1_1 stopped at 20000 ms, completed 1 time
}
