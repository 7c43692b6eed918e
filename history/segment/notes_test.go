package segment_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/playhead/playhead/history/segment"
)

// TestNotes takes users by due time, and reports the longest wait.
func TestNotes(t *testing.T) {
	var compactions, removals segment.Notes
	now, registry := int64(100_000), prometheus.NewPedanticRegistry()
	segment.RegisterNotes(registry, func() int64 { return now }, &compactions, &removals)
	want := func(users, age string) {
		t.Helper()
		err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP playhead_segments_oldest_note_age_seconds Longest wait of a user for compaction.
# TYPE playhead_segments_oldest_note_age_seconds gauge
playhead_segments_oldest_note_age_seconds `+age+`
# HELP playhead_segments_waiting_users Users who wait to be compacted.
# TYPE playhead_segments_waiting_users gauge
playhead_segments_waiting_users `+users+"\n"))
		if err != nil {
			t.Error(err)
		}
	}
	want("0", "0")
	compactions.Add("later", now+60_000)
	want("1", "0") // not due yet
	compactions.Add("second", now-1000)
	compactions.Add("first", now)
	compactions.Add("first", now-5000)
	compactions.Add("first", now-2000)
	removals.Add("removed", now-9000)
	want("4", "9")
	for _, uid := range []string{"first", "second"} {
		if got, ok := compactions.Take(now); got != uid || !ok {
			t.Errorf("took %q, %v, want %q", got, ok, uid)
		}
	}
	if got, ok := compactions.Take(now); ok {
		t.Errorf("took %q, which is not due", got)
	}
	now += 61_000
	want("2", "70")
	for notes, uid := range map[*segment.Notes]string{&compactions: "later", &removals: "removed"} {
		if got, ok := notes.Take(now); got != uid || !ok {
			t.Errorf("took %q, %v, want %q", got, ok, uid)
		}
	}
	want("0", "0")
}

// TestKeptBytes: kept bytes are taken once, also after others were kept.
func TestKeptBytes(t *testing.T) {
	c := segment.NewCache(segment.NewMetrics(nil), segment.CacheBytes)
	if b := c.Take("a"); b != nil {
		t.Errorf("took %q, want nothing", b)
	}
	c.Keep("a", []byte("first"))
	c.Keep("b", make([]byte, 10<<20))
	c.Keep("c", make([]byte, 10<<20)) // starts a generation
	for _, name := range []string{"a", "b", "c"} {
		if !c.Has(name) || c.Take(name) == nil || c.Has(name) || c.Take(name) != nil {
			t.Errorf("%s is not there once", name)
		}
	}
	for range 100 { // taken bytes use no room
		c.Keep("d", make([]byte, 10<<20))
		c.Keep("e", []byte("e"))
		c.Take("d")
	}
	c.Keep("f", []byte("f"))
	if !c.Has("e") || !c.Has("f") {
		t.Error("what is small was forgotten")
	}
}
