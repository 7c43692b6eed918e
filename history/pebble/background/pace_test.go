package background

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestPace writes as a compaction that works 2 ms a block: alone it never rests, beside reports four fifths of the time.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := vfs.NewMem().Create("000001.sst", "pebble-compaction")
		if err != nil {
			t.Fatal(err)
		}
		p := new(pace)
		paced := &pacedFile{File: f, pace: p, since: time.Now()}
		defer func() { _ = paced.Close() }()
		took := func(reports int64) time.Duration {
			began := time.Now()
			for range 100 {
				time.Sleep(2 * time.Millisecond) // works
				p.reports.Add(reports)
				if n, err := paced.Write([]byte("block")); n != 5 || err != nil {
					t.Fatal(n, err)
				}
			}
			return time.Since(began)
		}
		if alone := took(0); alone != 200*time.Millisecond {
			t.Errorf("alone: %v, want 200ms", alone)
		}
		if beside := took(1); beside != time.Second {
			t.Errorf("beside reports: %v, want 1s", beside)
		}
	})
}
