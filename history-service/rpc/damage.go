package rpc

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// maxDamage bounds the damaged cells that are remembered as logged.
const maxDamage = 10_000

// sound is an archive whose damaged cells are served around: each is counted whenever it is
// come across, and logged once.
type sound struct {
	history.Archive
	log     *slog.Logger
	damaged prometheus.Counter

	mu     sync.Mutex
	logged map[history.Key]struct{}
}

// Row implements [history.Archive].
func (a *sound) Row(ctx context.Context, uid string) (history.Row, error) {
	row, err := a.Archive.Row(ctx, uid)
	for _, d := range row.Damaged {
		a.found(history.Key{UID: uid, Object: d.Object}, d.Err)
	}
	return row, err
}

// Get implements [history.Archive].
func (a *sound) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := a.Archive.Get(ctx, keys)
	for i, e := range entries {
		if e.Err != nil {
			a.found(keys[i], e.Err)
		}
	}
	return entries, err
}

func (a *sound) found(k history.Key, err error) {
	a.damaged.Inc()
	a.mu.Lock()
	_, known := a.logged[k]
	if !known && len(a.logged) < maxDamage {
		if a.logged == nil {
			a.logged = make(map[history.Key]struct{})
		}
		a.logged[k] = struct{}{}
		a.log.Error("archive has a cell that cannot be read, and is served without it",
			"row", history.RowKey(k.UID), "column", k.Member(), "err", err)
	}
	a.mu.Unlock()
}
