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

// TestAnOutageIsOneLine: several operations fail in an outage, and its first one is logged.
func TestAnOutageIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a, err := archive.New(archive.Config{
			Cache: struct{ archive.Cache }{}, Archive: struct{ history.Archive }{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		for outage := 1; outage <= 2; outage++ {
			back := time.Now().Add(time.Minute)
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
			if n := strings.Count(log.String(), "\n"); n != outage {
				t.Errorf("%d lines after outage %d:\n%s", n, outage, log.String())
			}
		}
	})
}
