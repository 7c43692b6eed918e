package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Erase removes everything that the stores have of a user. It begins with a clear of all types as of now, by which
// whatever is on its way, held or queued does not come back, as after any clear. Then each store removes at once what it
// would have removed in its own time. Where one of them does not answer, the others are gone through all the same.
func (w *Writer) Erase(ctx context.Context, req *historyv1.EraseRequest) (*historyv1.EraseResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	found, err := w.held(ctx, uid, 0)
	if err != nil && req.GetDryRun() {
		return nil, fmt.Errorf("erase: %w", err)
	}
	if req.GetDryRun() {
		return w.erased(ctx, 0, found, found), nil
	}
	cleared, err := w.Clear(ctx, &historyv1.ClearRequest{Uid: uid})
	if err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	var errs []error
	for _, store := range w.cfg.Erasers {
		errs = append(errs, store.Erase(ctx, uid, cleared.GetClearedMs()))
	}
	left, err := w.held(ctx, uid, cleared.GetClearedMs())
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return w.erased(ctx, cleared.GetClearedMs(), found, left), nil
}

// held returns what all stores have of a user of a time or before, and what is known of it with an error.
func (w *Writer) held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	all := make(map[string]int)
	var errs []error
	for _, store := range w.cfg.Erasers {
		some, err := store.Held(ctx, uid, until)
		maps.Copy(all, some)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func (w *Writer) erased(ctx context.Context, until int64, found, left map[string]int) *historyv1.EraseResponse {
	resp := &historyv1.EraseResponse{UntilMs: until}
	for _, place := range slices.Sorted(maps.Keys(left)) {
		resp.Places = append(resp.Places, &historyv1.ErasedPlace{Name: place, Found: int64(found[place]), Left: int64(left[place])})
	}
	for _, store := range w.cfg.Erasers {
		resp.Remains = append(resp.Remains, store.Remains(ctx)...)
	}
	return resp
}
