package backfill_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/internal/imports"
	"github.com/playhead/playhead/playhead/backfill"
)

const header = "user_id,video_id,time_ms,play_time_ms,duration_ms\n"

// written writes a file of rows. Every hundredth row lacks a column.
func written(t *testing.T, rows int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(header)
	for i := range rows {
		row := fmt.Sprintf("u%d,%d,%d,20000,30000\n", i%300, i, began-60_000-int64(rows-i)*1000)
		if i%100 == 99 {
			row = strings.Replace(row, ",", "", 1)
		}
		b.WriteString(row)
	}
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flaky is a target that remembers what it has, and fails after a number of items.
type flaky struct {
	mu   sync.Mutex
	has  map[string]bool
	left int
}

var errFlaky = errors.New("out of order")

func (f *flaky) Fold(_ context.Context, items []backfill.Item) ([]backfill.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	results := make([]backfill.Result, len(items))
	for i, it := range items {
		if f.left--; f.left < 0 {
			return nil, errFlaky
		}
		k := it.Key.String()
		if results[i].Outcome = backfill.New; f.has[k] {
			results[i].Outcome = backfill.Equal
		}
		f.has[k] = true
	}
	return results, nil
}

// TestGoesOn ends a copy again and again. Each run goes on from its checkpoint, and the counts and the rejected rows are
// those of one run.
func TestGoesOn(t *testing.T) {
	path, dir := written(t, 10_000), t.TempDir()
	target := &flaky{has: make(map[string]bool)}
	c := func() *backfill.Copy {
		return &backfill.Copy{
			Source: &backfill.Files{Paths: []string{path}}, Target: target, MaxRejects: -1, Lanes: 3,
			Checkpoint: filepath.Join(dir, "checkpoint"), Rejects: filepath.Join(dir, "rejects.csv"),
		}
	}
	runs := 0
	for {
		target.left = 3000
		r, err := c().Run(t.Context())
		if runs++; err == nil {
			if !r.Finished || r.Rows != 10_000 || r.Outcomes["rejected"] != 100 || r.Outcomes["new"]+r.Outcomes["equal"] != 9900 || len(target.has) != 9900 {
				t.Errorf("after %d runs: %+v, %d in the target", runs, r, len(target.has))
			}
			break
		}
		if !errors.Is(err, errFlaky) || r.Finished {
			t.Fatalf("run %d: %+v, %v", runs, r, err)
		}
	}
	if runs < 3 {
		t.Errorf("%d runs, want several", runs)
	}
	rejects, err := os.ReadFile(filepath.Join(dir, "rejects.csv"))
	if err != nil || bytes.Count(rejects, []byte("\n")) != 101 {
		t.Errorf("%d lines of rejected rows, %v, want 100 and a header", bytes.Count(rejects, []byte("\n")), err)
	}
	target.left = 0
	if r, err := c().Run(t.Context()); err != nil || r.Rows != 10_000 || !r.Finished {
		t.Errorf("a finished copy again: %+v, %v", r, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt([]byte("9"), 200_000) // in the middle, of the same size
	if err := errors.Join(err, file.Close(), os.Chtimes(path, time.Time{}, time.Unix(1_000_000_000, 0))); err != nil {
		t.Fatal(err)
	}
	if _, err := c().Run(t.Context()); err == nil || !strings.Contains(err.Error(), "made for other files or settings") {
		t.Errorf("another file: %v", err)
	}
}

// TestCheckpointFails copies everything though the checkpoint cannot be written, and says so.
func TestCheckpointFails(t *testing.T) {
	c := &backfill.Copy{Source: &backfill.Files{Paths: []string{written(t, 500)}}, Target: backfill.Discard{}, MaxRejects: -1, Checkpoint: filepath.Join(t.TempDir(), "none", "checkpoint")}
	r, err := c.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "checkpoint") || r.Rows != 500 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFilter selects rows; the others are skipped.
func TestFilter(t *testing.T) {
	path := written(t, 3000)
	for name, tt := range map[string]struct {
		filter      backfill.Filter
		least, most int64
	}{
		"all":    {backfill.Filter{}, 2970, 2970},
		"user":   {backfill.Filter{Users: map[string]bool{"u7": true}}, 10, 10},
		"type":   {backfill.Filter{Types: map[uint32]bool{2: true}}, 0, 0},
		"since":  {backfill.Filter{Since: began - 1_500_000}, 1440, 1450},
		"until":  {backfill.Filter{Until: began - 1_500_000}, 1520, 1530},
		"sample": {backfill.Filter{Sample: 0.3}, 600, 1200},
	} {
		r, err := (&backfill.Copy{Source: &backfill.Files{Paths: []string{path}}, Target: backfill.Discard{}, Filter: tt.filter, MaxRejects: -1}).Run(t.Context())
		if n := r.Outcomes["readable"]; err != nil || n < tt.least || n > tt.most || n+r.Outcomes["skipped"]+r.Outcomes["rejected"] != 3000 {
			t.Errorf("%s: %+v, %v, want %d to %d", name, r, err, tt.least, tt.most)
		}
	}
}

// TestNoUser: rows without a user are rejected, unless the options name one.
func TestNoUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(path, []byte("id,at\nx,2026-01-02T03:04:05Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := imports.ParseMap("object=id,time=at")
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{"": "rejected", "ann": "readable"} {
		r, err := (&backfill.Copy{Source: &backfill.Files{Options: imports.Options{Map: m, User: user}, Paths: []string{path}}, Target: backfill.Discard{}, MaxRejects: -1}).Run(t.Context())
		if err != nil || r.Outcomes[want] != 1 {
			t.Errorf("user %q: %+v, %v, want %s", user, r, err, want)
		}
	}
}
