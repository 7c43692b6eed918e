package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/pebble"
)

// TestReplayCounts counts an archive from before counting, and compares it again.
func TestReplayCounts(t *testing.T) {
	dir := t.TempDir()
	change := func(do func(db *pebble.DB)) {
		t.Helper()
		db, err := pebble.Open(dir, pebble.Config{})
		if err != nil {
			t.Fatal(err)
		}
		do(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	film := history.Object{ID: "film", Type: 1}
	change(func(db *pebble.DB) {
		for _, uid := range []string{"ann", "bob"} {
			e := history.Event{Key: history.Key{UID: uid, Object: film}, Kind: history.KindFinish, At: time.Now().UnixMilli(), Session: "s"}
			if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: e.Key, Record: e.Record().Successor(nil)}}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
	recount := func(args, want string, fails bool) {
		t.Helper()
		var out bytes.Buffer
		err := replayCommand(t.Context(), append([]string{"counts", "--data", dir}, strings.Fields(args)...), none, &out)
		if !strings.Contains(out.String(), want) || (err != nil) != fails {
			t.Errorf("counts %s: %v, got %q, want %q", args, err, out.String(), want)
		}
	}
	recount("--verify", "2 records with plays or watched time: 2 missing, 0 counted wrong", true)
	recount("--verify --counted-types=2", "0 records", false)
	recount("other_1", "0 records", false)
	recount("film_1", "2 counted now, 0 counted wrong", false)
	recount("--verify", "0 missing, 0 counted wrong", false)
	recount("", "0 counted now", false)
	change(func(db *pebble.DB) {
		all, err := db.Counters().Totals(t.Context(), []history.Object{film})
		if err != nil || all[0].All != (count.Sum{Plays: 2, Viewers: 2}) {
			t.Errorf("totals: %+v, %v", all, err)
		}
		e := history.Event{Key: history.Key{UID: "ann", Object: film}, Kind: history.KindFinish, At: time.Now().UnixMilli() + 1000, Session: "t"}
		if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: e.Key, Record: e.Record().Successor(nil)}}); errs != nil {
			t.Fatal(errs)
		}
		s := count.Statement{UID: "ann", Object: film, CellTime: e.At, Played: []history.Played{{At: e.At, Plays: 7}}}
		if r := db.Counters().Count(t.Context(), []count.Statement{s}); !r[0].Counted {
			t.Errorf("count: %+v", r)
		}
	})
	recount("--verify", "0 missing, 1 counted wrong", true)
	recount("--counted-types=film", "", true)
}

// TestReplayCountsOfARunning recounts an all-in-one that runs.
func TestReplayCountsOfARunning(t *testing.T) {
	dir := t.TempDir()
	types, err := count.ParseTypes([]string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	counting := allinonetest.Start(t, allinone.Config{Dir: dir, Counted: types})
	other := allinonetest.Start(t, allinone.Config{Dir: t.TempDir()})
	for _, tt := range []struct {
		args  string
		admin string
		want  string
	}{
		{"--verify", counting.Admin(), "0 records with plays or watched time: 0 missing, 0 counted wrong"},
		{"film_1", counting.Admin(), "0 counted now"},
		{"", other.Admin(), "has the data directory"},
		{"", "127.0.0.1:1", "--admin does not answer"},
		{"film", counting.Admin(), "want id_type"},
	} {
		var out bytes.Buffer
		err := replayCommand(t.Context(), append([]string{"counts", "--data", dir, "--admin", tt.admin}, strings.Fields(tt.args)...), none, &out)
		if got := fmt.Sprint(out.String(), err); !strings.Contains(got, tt.want) {
			t.Errorf("counts %s of %s: %s, want %q", tt.args, tt.admin, got, tt.want)
		}
	}
}
