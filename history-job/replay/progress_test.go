package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history-job/replay"
)

// TestProgress writes to a file: a line every few seconds, and the last one says
// that all is done.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		d, p := open(t, nil), plan()
		d.before = func(ctx context.Context, _ int) error { return pause(ctx, 4*time.Second) }
		driver := d.driver()
		done := replay.Progress(out, p.Len(), driver)
		err = driver.Run(t.Context(), p)
		done()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if last := lines[len(lines)-1]; len(lines) < 4 || len(lines) > 12 || !strings.HasPrefix(last, "replay: 133 of 133 heartbeats, ") {
			t.Errorf("%d lines, the last %q, want one every five seconds of half a minute: %q", len(lines), last, lines)
		}
	})
}
