package read

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Viewings reads the sessions of one object, from the archive where the cache has no record of it,
// or a part of one. A read that fails is an error, never "not found".
func (r *Reader) Viewings(ctx context.Context, req *historyv1.ViewingsRequest) (*historyv1.ViewingsResponse, error) {
	key := history.Key{UID: req.GetUid(), Object: report.Object(req.GetObject())}
	if err := history.ValidateUID(key.UID); err != nil {
		return nil, err
	}
	if err := key.Object.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	entries, err := r.whole(ctx, []history.Key{key})
	if err != nil {
		return nil, fmt.Errorf("viewings: %w", err)
	}
	rec := entries[0].Record.Visible(key.Object, &entries[0].User)
	if rec == nil {
		return &historyv1.ViewingsResponse{}, nil
	}
	return &historyv1.ViewingsResponse{Found: true, Sessions: view.Sessions(rec)}, nil
}

// whole loads keys of one user with all that both stores have of them, whatever the cache keeps. The
// archive is read after the cache: what has left the cache by then is in it.
func (r *Reader) whole(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := r.known(ctx, keys)
	if err != nil {
		return nil, err
	}
	return entries, r.foldWhole(ctx, keys, entries)
}

// foldWhole unites entries with what the archive holds, where it may hold anything that they lack.
func (r *Reader) foldWhole(ctx context.Context, keys []history.Key, entries []history.Entry) error {
	return r.fold(ctx, keys, entries, func(i int) bool {
		e := &entries[i]
		return !keys[i].IsUser() && (view.Incomplete(e.Record) || e.Record == nil && !e.User.Complete())
	})
}
