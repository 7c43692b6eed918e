package pebble_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

const (
	crashWriters = 8
	crashKeys    = 25 // per writer
)

// TestKill9 kills a writing process repeatedly: every acknowledged write is found, with its mark.
func TestKill9(t *testing.T) { killed9(t, "write") }

// TestKill9WhileCompacting does the same during compactions.
func TestKill9WhileCompacting(t *testing.T) { killed9(t, "compact") }

func killed9(t *testing.T, what string) {
	dir := t.TempDir()
	acked := map[history.Key]int64{}
	for round := range 6 {
		kill(t, start(t, what, dir), 1+rand.IntN(2000), acked)
		db := open(t, dir, pebble.Config{})
		wantAcked(t, db, acked)
		closed(t, db)
		if t.Failed() {
			t.Fatalf("after round %d", round)
		}
	}
}

// kill kills a writer after the given number of acknowledged writes and records them in acked.
func kill(t testing.TB, cmd *exec.Cmd, after int, acked map[history.Key]int64) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		var w, i int
		var position int64
		if _, err := fmt.Sscanf(lines.Text(), "%d %d %d.", &w, &i, &position); err != nil {
			break // the last line may be torn
		}
		acked[viewing(w, i)] = position
		if n == after {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // always fails: the process was killed
}

func wantAcked(t *testing.T, db *pebble.DB, acked map[history.Key]int64) {
	t.Helper()
	keys := make([]history.Key, 0, len(acked))
	dirty := allDirty(t, db)
	for k := range acked {
		keys = append(keys, k)
	}
	rows, err := db.Archive().Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range db.Cache().Load(t.Context(), keys) {
		k := keys[i]
		if e.Err != nil || e.Record == nil || e.Record.Position < acked[k] {
			t.Errorf("load %s: got %+v, %v; want position %d or later", k, e.Record, e.Err, acked[k])
		}
		if !dirty[k] {
			t.Errorf("%s has no dirty mark", k)
		}
		if r := rows[i].Record; r == nil || r.Position < acked[k] {
			t.Errorf("get %s: got %+v, want position %d or later", k, r, acked[k])
		}
	}
}

// childWrites writes and prints the acknowledged writes, with beside running concurrently, until it is killed.
func childWrites(dir string, beside func(*pebble.DB)) int {
	db, err := pebble.Open(dir, pebble.Config{}.Compacting(10))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var all sync.WaitGroup
	for w := range crashWriters {
		all.Go(func() { childWriter(db, w) })
	}
	for {
		beside(db)
	}
}

// compactChildren compacts the users of all writers.
func compactChildren(db *pebble.DB) {
	for w := range crashWriters {
		if _, err := db.Archive().Compact(context.Background(), viewing(w, 0).UID); err != nil {
			panic(err)
		}
	}
}

func childWriter(db *pebble.DB, w int) {
	ctx := context.Background()
	var bases [crashKeys]uint64
	for position := now(); ; position++ {
		writes, cells := childWindow(w, &bases, position)
		for i, o := range db.Cache().Write(ctx, writes) {
			if o.Status == history.Conflict { // left by an earlier process
				bases[i] = o.Current.Record.Revision
			} else {
				bases[i] = writes[i].Record.Revision
			}
		}
		if errs := db.Archive().Put(ctx, cells); errs != nil {
			panic(errs[0])
		}
		for i := range writes {
			if bases[i] == writes[i].Record.Revision {
				fmt.Printf("%d %d %d.\n", w, i, position)
			}
		}
	}
}

// childWindow writes every key of a writer. The position grows, so the event time may stay in the past.
func childWindow(w int, bases *[crashKeys]uint64, position int64) ([]history.Write, []history.Cell) {
	writes, cells := make([]history.Write, crashKeys), make([]history.Cell, crashKeys)
	for i := range writes {
		r := beat(now())
		r.Position = position
		writes[i] = history.Write{Key: viewing(w, i), Record: r, Base: bases[i], BeginsHold: position%3 == 0 || bases[i] == 0}
		cells[i] = history.Cell{Key: viewing(w, i), Record: r}
	}
	return writes, cells
}
