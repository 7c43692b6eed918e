package bench_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/playhead/playhead/e2e/bench"
)

// TestBytes checks the bytes that a process has read and written in a turn, per heartbeat.
func TestBytes(t *testing.T) {
	const size, beats = 1 << 20, 64
	path, m, f := filepath.Join(t.TempDir(), "file"), bench.NewMeter(nil), make(bench.Figures)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if err := m.Per(f, "acked", beats); err != nil {
		t.Fatal(err)
	}
	for _, figure := range []string{"read.driver", "written.driver"} {
		if got := f[figure]; got < size/beats || got > 2*size/beats {
			t.Errorf("%s: %.0f bytes, want a little more than %d", figure, got, size/beats)
		}
	}
}
