package limit_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/history"
)

const body = 1 << 20

// TestMemory limits a process of 256 MiB. Two large bodies fit, a third is refused after a second, and a
// response makes room.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limit.NewMemory(256 << 20)
		read := func() (*limit.Held, error) {
			h := m.Hold()
			_, err := io.Copy(io.Discard, h.Reader(t.Context(), strings.NewReader(strings.Repeat("x", body))))
			return h, err
		}
		first, err := read()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		third, err := read()
		if !errors.Is(err, history.ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("a third body: %v after %v, want it refused after a second", err, time.Since(began))
		}
		third.Release()
		time.AfterFunc(time.Second/2, first.Release)
		if _, err := read(); err != nil {
			t.Errorf("a third body, while the first one is answered: %v", err)
		}
	})
}

// TestMemoryOfTheLargest checks that a body over the limit waits for all memory and is then read.
func TestMemoryOfTheLargest(t *testing.T) {
	h := limit.NewMemory(1).Hold()
	if err := h.Grow(t.Context(), 64<<20); err != nil {
		t.Error(err)
	}
	h.Release()
}
