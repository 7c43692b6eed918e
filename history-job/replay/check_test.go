package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// shelf is a fixed store.
type shelf map[history.Key]*history.Record

func (s shelf) read(_ context.Context, keys []history.Key) ([]*history.Record, error) {
	rs := make([]*history.Record, len(keys))
	for i, k := range keys {
		rs[i] = s[k]
	}
	return rs, nil
}

// Load implements [history.Cache].
func (s shelf) Load(_ context.Context, keys []history.Key) []history.Entry {
	es := make([]history.Entry, len(keys))
	for i, k := range keys {
		if es[i].Record = s[k]; s[k] == nil {
			es[i].Err = history.ErrUnavailable
		}
	}
	return es
}

// planned has two viewings for each of 600 users: more keys than one read fetches.
func planned() *replay.Plan {
	var vs []replay.Viewing
	for i := range int64(1200) {
		vs = append(vs, viewing(fmt.Sprintf("user%d/%d", i%600, i), noon+i, 20_000+i, 30_000))
	}
	return replay.Expand(vs, 0)
}

func TestCheck(t *testing.T) {
	p := planned()
	cache, archive := shelf(fold(p)), shelf(fold(p))
	check := func(missing, wrong int, words ...string) {
		t.Helper()
		got, err := replay.Check(t.Context(), replay.Model(p), map[string]replay.Reader{"cache": cache.read, "archive": archive.read})
		if err != nil || got.Missing != missing || got.Wrong != wrong || got.OK() != (missing+wrong == 0) || got.Records != 1200 || got.Users != 600 {
			t.Errorf("check: %+v, %v, want %d missing and %d wrong of 1200 of 600 users", got, err, missing, wrong)
		}
		told := strings.Join(got.Examples, "\n")
		for _, word := range words {
			if !strings.Contains(told, word) {
				t.Errorf("examples %q do not tell of %q", told, word)
			}
		}
		if n := len(got.Examples); n > 5 || n < min(missing+wrong, 5) {
			t.Errorf("%d examples of %d differences", n, missing+wrong)
		}
	}
	check(0, 0)
	k := p.Event(0).Key
	delete(archive, k)
	check(1, 0, "archive: "+k.String()+" is missing")
	bad := *cache[k]
	bad.Position = 1
	cache[k] = &bad
	check(1, 1, "archive: "+k.String()+" is missing", "cache: "+k.String()+" is ")
	clear(archive)
	check(1200, 1)
}

// TestCheckReaders checks readers that fail or answer for too few keys: an unread key must not pass.
func TestCheckReaders(t *testing.T) {
	p := planned()
	model := replay.Model(p)
	for name, read := range map[string]replay.Reader{
		"fails":   func(context.Context, []history.Key) ([]*history.Record, error) { return nil, history.ErrUnavailable },
		"nothing": func(context.Context, []history.Key) ([]*history.Record, error) { return nil, nil },
		"too many": func(_ context.Context, keys []history.Key) ([]*history.Record, error) {
			return make([]*history.Record, len(keys)+1), nil
		},
		"no cache": replay.FromCache(shelf{}),
	} {
		if _, err := replay.Check(t.Context(), model, map[string]replay.Reader{name: read}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("check of a reader that %s: %v", name, err)
		}
	}
	got, err := replay.Check(t.Context(), model, map[string]replay.Reader{"cache": replay.FromCache(shelf(fold(p)))})
	if err != nil || !got.OK() {
		t.Errorf("check of a cache: %+v, %v", got, err)
	}
	if _, err := replay.FromCache(shelf{})(t.Context(), []history.Key{p.Event(0).Key}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("a cache that does not answer: %v", err)
	}
}

// viewings generates viewings of few users and objects. Heartbeats of several viewings share a millisecond; some
// loop, repeat a row or lack a duration.
var viewings = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) replay.Viewing {
	return viewing(
		rapid.SampledFrom([]string{"a/1", "a/2", "b/1", "b/2"}).Draw(t, "key"),
		noon+rapid.Int64Range(0, 8).Draw(t, "at")*7500,
		rapid.Int64Range(0, 10).Draw(t, "played")*7500,
		rapid.SampledFrom([]int64{0, 7500, 16_000, 30_000, 33_333, 60_000}).Draw(t, "duration"),
	)
}), 0, 12)

func fold(p *replay.Plan) map[history.Key]*history.Record {
	m := make(map[history.Key]*history.Record)
	for i := range p.Len() {
		e := p.Event(i)
		e.Clamp()
		m[e.Key] = history.Merge(m[e.Key], e.Record())
	}
	return m
}

// TestModel compares the product's merge with the plain one.
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

// TestMatches changes each field of a record that readers see: the check must fail.
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
			r.Early, r.ResumePoint = true, history.ResumePoint{Version: r.Version - 4, Position: 11_000}
		},
		"session":          func(r *history.Record) { r.Session = "other" },
		"duration":         func(r *history.Record) { r.Duration++ },
		"duration unknown": func(r *history.Record) { r.Duration = 0 },
		"furthest": func(r *history.Record) {
			r.Peaks, r.Completions = nil, slices.Clone(r.Completions)
			for i := range r.Completions {
				r.Completions[i].Position = 0
			}
		},
		"plays":             func(r *history.Record) { r.PlaysBefore++ },
		"no plays":          func(r *history.Record) { r.Completions = nil },
		"time of the plays": func(r *history.Record) { r.Completions = []history.Stay{{At: noon, Viewing: 1}} },
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

// TestTrace compares the committed trace with the figures in its README.
func TestTrace(t *testing.T) {
	vs, err := replay.ReadFile("../../testdata/kuairand/watch_events.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	plan := replay.Expand(vs, 0)
	model := replay.Model(plan)
	users := make(map[string]bool)
	for k := range model {
		users[k.UID] = true
	}
	got := facts(vs)
	got["viewings that were reported"], got["heartbeats"] = plan.Reported(), plan.Len()
	got["records"], got["users"] = len(model), len(users)
	for what, want := range map[string]int{
		"rows": 228_329, "repeated rows": 5_878, "keys with two play times": 7,
		"unknown durations": 3_568, "loops": 31_298, "viewings of 0 ms": 22_263,
		"viewings that were reported": 206_066, "heartbeats": 668_917, "records": 200_136, "users": 24_772,
	} {
		if got[what] != want {
			t.Errorf("%s: got %d, want %d", what, got[what], want)
		}
	}
}

func facts(vs []replay.Viewing) map[string]int {
	type key struct {
		history.Key
		at int64
	}
	seen, played := make(map[replay.Viewing]bool), make(map[key]int64)
	n := map[string]int{"rows": len(vs)}
	for _, v := range vs {
		k := key{history.Key{UID: v.UID, Object: v.Object}, v.At}
		switch was, again := played[k]; {
		case seen[v]:
			n["repeated rows"]++
		case again && was != v.Played:
			n["keys with two play times"]++
		}
		seen[v], played[k] = true, v.Played
		for what, is := range map[string]bool{
			"unknown durations": v.Duration == 0, "viewings of 0 ms": v.Played == 0, "loops": v.Duration > 0 && v.Played > v.Duration,
		} {
			if is {
				n[what]++
			}
		}
	}
	return n
}
