package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Erase removes all data of a user from the stores. It first clears all types as of now, so that reports on
// their way, held or queued do not come back. Then each store removes immediately what would otherwise expire;
// an unavailable store does not stop the others. At the end a job has archived the clear mark.
func (a *Admin) Erase(ctx context.Context, req *historyv1.EraseRequest) (*historyv1.EraseResponse, error) {
	uid := req.GetUid()
	if err := history.ValidateUID(uid); err != nil {
		return nil, err
	}
	if a.cfg.Writer.ClockAhead() {
		return nil, fmt.Errorf("erase: %w: the clock is more than a day ahead of the trusted time; confirm it, or set it right", history.ErrUnavailable)
	}
	namespaces, err := a.namespaces(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	found, err := a.held(ctx, namespaces, 0)
	if req.GetDryRun() {
		if err != nil {
			return nil, fmt.Errorf("erase: %w", err)
		}
		return a.erased(ctx, 0, found, found), nil
	}
	cleared, err := a.cfg.Writer.Clear(ctx, &historyv1.ClearRequest{Uid: uid})
	if err != nil {
		return nil, fmt.Errorf("erase: %w", err)
	}
	until := cleared.GetClearedMs()
	err = a.erase(ctx, uid, namespaces, until)
	left, leftErr := a.remaining(ctx, namespaces, until)
	if err := errors.Join(err, leftErr); err != nil {
		return nil, err
	}
	return a.erased(ctx, until, found, left), nil
}

// erase clears the user's other namespaces, with those of removed classes, and erases all of them.
func (a *Admin) erase(ctx context.Context, uid string, namespaces []string, until int64) error {
	var errs []error
	for _, namespace := range namespaces {
		if namespace != uid {
			errs = append(errs, a.cfg.Writer.ClearNamespace(ctx, namespace, history.Clear{Until: until}))
		}
		for _, store := range a.cfg.Erasers {
			errs = append(errs, store.Erase(ctx, namespace, until))
		}
	}
	return errors.Join(errs...)
}

// Deadline and interval of the check that a job has archived the clear marks.
const eraseWait, eraseLook = time.Minute, 100 * time.Millisecond

// remaining returns the data left after an erasure. It waits until a job has archived the clear marks: only the
// archive can return them to a cache that lost them.
func (a *Admin) remaining(ctx context.Context, namespaces []string, until int64) (left map[string]int, err error) {
	for end := time.Now().Add(eraseWait); ; {
		before := a.states(ctx, namespaces)
		if left, err = a.held(ctx, namespaces, until); err != nil {
			return nil, err
		}
		for i, after := range a.states(ctx, namespaces) {
			if after.Err != nil {
				return nil, after.Err
			}
			if after.User.ClearedAt(0) < until || after.User.Revision != before[i].User.Revision {
				left[history.StatePlace]++ // the cache or the state changed during the check
			}
		}
		if left[history.StatePlace] == 0 || !time.Now().Before(end) || !run.Sleep(ctx, eraseLook) {
			return left, nil
		}
	}
}

func (a *Admin) states(ctx context.Context, namespaces []string) []history.Entry {
	keys := make([]history.Key, len(namespaces))
	for i, namespace := range namespaces {
		keys[i] = history.UserKey(namespace)
	}
	return a.cfg.Cache.Load(ctx, keys)
}

// held returns the stores' item counts of a user's namespaces up to a time, also with an error.
func (a *Admin) held(ctx context.Context, namespaces []string, until int64) (map[string]int, error) {
	all := make(map[string]int)
	var errs []error
	for _, store := range a.cfg.Erasers {
		for _, namespace := range namespaces {
			some, err := store.Held(ctx, namespace, until)
			for place, n := range some {
				all[place] += n
			}
			errs = append(errs, err)
		}
	}
	return all, errors.Join(errs...)
}

func (a *Admin) erased(ctx context.Context, until int64, found, left map[string]int) *historyv1.EraseResponse {
	resp := &historyv1.EraseResponse{UntilMs: until}
	for _, place := range slices.Sorted(maps.Keys(left)) {
		resp.Places = append(resp.Places, &historyv1.ErasedPlace{Name: place, Found: int64(found[place]), Left: int64(left[place])})
	}
	for _, store := range a.cfg.Erasers {
		resp.Remains = append(resp.Remains, store.Remains(ctx)...)
	}
	return resp
}
