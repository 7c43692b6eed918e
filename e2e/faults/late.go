package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/playhead/playhead/history"
)

// lateArchive is an archive whose puts get no answer while they are held; they can
// land later, as a call does that was sent before its deadline.
type lateArchive struct {
	history.Archive

	mu   sync.Mutex
	held bool
	late []history.Cell
}

func (a *lateArchive) Put(ctx context.Context, cells []history.Cell) []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.held {
		return a.Archive.Put(ctx, cells)
	}
	a.late = append(a.late, cells...)
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = fmt.Errorf("held back: %w", history.ErrUnavailable)
	}
	return errs
}

func (a *lateArchive) hold(held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = held
}

// land brings the held puts in, and keeps them for another time.
func (a *lateArchive) land(ctx context.Context) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.late), errors.Join(a.Archive.Put(ctx, a.late)...)
}
