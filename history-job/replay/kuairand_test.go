package replay_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// TestTrace holds the committed trace against what its README says of it.
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
