package archive_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
)

// TestALongOutageIsOneLine: operations that fail for more than two minutes are logged once, shorter ones never.
func TestALongOutageIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a, err := archive.New(archive.Config{
			Cache: struct{ archive.Cache }{}, Archive: struct{ history.Archive }{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, lasts := range []time.Duration{100 * time.Second, 3 * time.Minute, 100 * time.Second, 3 * time.Minute} {
			back := time.Now().Add(lasts)
			done := make(chan error)
			for _, what := range []string{"sweep", "load", "put"} {
				go func() {
					done <- a.Retry(t.Context(), what, func(context.Context) error {
						if time.Now().Before(back) {
							return errors.New("silent")
						}
						return nil
					})
				}()
			}
			for range 3 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if n, want := strings.Count(log.String(), "\n"), (i+1)/2; n != want {
				t.Errorf("%d lines after outage %d of %v, want %d:\n%s", n, i+1, lasts, want, log.String())
			}
		}
	})
}
