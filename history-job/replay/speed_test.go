package replay_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history-job/replay"
)

// paced has an hour between the two viewings of each of two users.
func paced() *replay.Plan {
	p := replay.Expand([]replay.Viewing{
		viewing("a/1", noon, 40_000, 0), viewing("b/1", noon+1000, 40_000, 0),
		viewing("a/2", noon+3_600_000, 40_000, 0), viewing("b/2", noon+3_605_000, 40_000, 0),
	}, 0)
	p.EndAt(time.Now().UnixMilli())
	return p
}

// TestSpeed sends each heartbeat when it is due at that speed.
func TestSpeed(t *testing.T) {
	for _, speed := range []float64{0.5, 1, 60} {
		synctest.Test(t, func(t *testing.T) {
			d, p := open(t, nil), paced()
			began := time.Now()
			due := make(map[int64][]time.Duration) // due time of arrival by event time
			for i := range p.Len() {
				at := p.Event(i).At
				due[at] = append(due[at], time.Duration(float64(at-p.Event(0).At)/speed)*time.Millisecond)
			}
			d.before = func(context.Context, int) error {
				d.mu.Lock()
				defer d.mu.Unlock()
				for uid, events := range d.arrived {
					for _, e := range events {
						if late := time.Since(began) - due[e.At][0]; late < -time.Millisecond || late > time.Second {
							t.Errorf("speed %v: %s at %d came %v late", speed, e.Key, e.At, late)
						}
					}
					d.arrived[uid] = nil
				}
				return nil
			}
			driver := d.driver()
			driver.Speed = speed
			if err := driver.Run(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if got := driver.Acked(); got != int64(p.Len()) {
				t.Errorf("%d acknowledged, want %d", got, p.Len())
			}
		})
	}
}

// TestQuietHours breaks the first call after an hour without heartbeats: that hour does not count against the
// patience.
func TestQuietHours(t *testing.T) {
	for name, reopened := range map[string]bool{"in a stream": false, "before a stream is opened again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, p, began := open(t, nil), paced(), time.Now()
				var mu sync.Mutex
				failures := 0
				d.before = func(context.Context, int) error {
					mu.Lock()
					defer mu.Unlock()
					if time.Since(began) > time.Hour && failures < 20 {
						failures++
						return errGone
					}
					return nil
				}
				if reopened {
					time.AfterFunc(time.Minute, d.cut)
				}
				driver := d.driver()
				driver.Speed, driver.Patience = 1, 30*time.Second
				if err := driver.Run(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				if failures != 20 {
					t.Errorf("%d failures, want 20", failures)
				}
				d.complete(driver, p)
			})
		})
	}
}

// TestProgress writes to a file: a line every few seconds, the last one complete.
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
