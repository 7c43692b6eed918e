package read

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxPoints limits the objects per request.
const maxPoints = 100

// Points returns the playback position of each object. Objects missing from the cache are read from the archive, in
// one get. A failed read is an error, never "no progress".
func (r *Reader) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	keys, err := points(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var past map[history.Object]history.Summary
	if req.GetBrief() { // before the records, which may expire meanwhile
		if past, err = r.past(ctx, req.GetUid(), keys); err != nil {
			return nil, fmt.Errorf("points: %w", err)
		}
	}
	entries, err := r.byNamespace(ctx, keys, r.point)
	if err != nil {
		return nil, fmt.Errorf("points: %w", err)
	}
	if req.GetBrief() {
		return r.briefly(keys, entries, past), nil
	}
	resp := &historyv1.PointsResponse{Items: make([]*historyv1.Item, len(keys))}
	for i, e := range entries {
		resp.Items[i] = &historyv1.Item{}
		if rec := e.Record.Visible(keys[i].Object, &e.User); rec != nil {
			resp.Items[i] = view.Item(keys[i].Object, rec, r.cfg.Rules)
		}
	}
	return resp, nil
}

// point loads keys of one user. If a key may have left the cache, the archive is required. Otherwise incomplete
// records are completed only if the archive answers in time.
func (r *Reader) point(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := r.known(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if !keys[i].IsUser() && e.Record == nil && !e.User.Complete() {
			return entries, r.foldWhole(ctx, keys, entries)
		}
	}
	return entries, r.complete(ctx, keys, entries, false)
}

func points(req *historyv1.PointsRequest) ([]history.Key, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if n := len(req.GetObjects()); n == 0 || n > maxPoints {
		return nil, history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, maxPoints))
	}
	keys := make([]history.Key, len(req.GetObjects()))
	for i, o := range req.GetObjects() {
		keys[i] = history.Key{UID: req.GetUid(), Object: report.Object(o)}
		if err := keys[i].Object.Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return keys, nil
}

// GetSettings returns a user's settings. A failed read is an error, never "recording".
func (r *Reader) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	u, err := r.User(ctx, req.GetUid())
	if err != nil {
		return nil, fmt.Errorf("get settings: %w", err)
	}
	return &historyv1.GetSettingsResponse{Settings: Settings(u.Pause)}, nil
}

// Newest returns the time of the newest record of a type (0 for all types), in Unix ms, 0 if none. It reads the
// cache, and the archive if that answers in time. A settings change without a time must not be older: its writer's
// clock may be ahead.
func (r *Reader) Newest(ctx context.Context, uid string, typ uint32) (at int64, err error) {
	items, err := r.newest(ctx, uid, history.Query{Type: typ, Limit: 1})
	for _, it := range items {
		at = max(at, it.Record.Version.Time())
	}
	return at, err
}

// LastPlayed returns the time of the last play, in Unix ms, within the limits of Newest. A restored record's
// version may be seconds ahead, so one among the newest records extends the read to a page.
func (r *Reader) LastPlayed(ctx context.Context, uid string) (at int64, err error) {
	items, err := r.newest(ctx, uid, history.Query{Limit: 1})
	if slices.ContainsFunc(items, func(it history.Item) bool { return it.Record.Original != 0 }) {
		items, err = r.newest(ctx, uid, history.Query{Limit: MaxPage})
	}
	for _, it := range items {
		at = max(at, it.Record.PlayedAt())
	}
	return at, err
}

// newest returns the first records of each namespace.
func (r *Reader) newest(ctx context.Context, uid string, q history.Query) (items []history.Item, err error) {
	for _, namespace := range r.namespaces(uid, q.Type) {
		page, err := r.cfg.Cache.List(ctx, namespace, q)
		if err != nil {
			return nil, err
		}
		if items = append(items, page.Items...); page.User.Complete() {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, ArchivePatience)
		if old, err := r.cfg.Archive.Page(ctx, namespace, q); err == nil {
			items = append(items, old.Items...)
		}
		cancel()
	}
	return items, nil
}

// Warm queues a user for a warm-up.
func (r *Reader) Warm(uid string) { r.warm.want(uid) }

// User warms up a user and returns its state.
func (r *Reader) User(ctx context.Context, uid string) (history.User, error) {
	if err := history.ValidateUID(uid); err != nil {
		return history.User{}, err
	}
	entries, err := r.known(ctx, []history.Key{history.UserKey(uid)})
	if err != nil {
		return history.User{}, err
	}
	return entries[0].User, nil
}

// Settings converts a pause to the settings message.
func Settings(p history.Pause) *historyv1.Settings {
	if p.On() {
		return &historyv1.Settings{PausedMs: p.Since}
	}
	return &historyv1.Settings{Recording: true}
}

// Viewings returns the sessions of one object, from both stores if the cached record is missing or incomplete. A
// failed read is an error, never "not found".
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
	entries, err := r.byNamespace(ctx, []history.Key{key}, r.fromBoth)
	if err != nil {
		return nil, fmt.Errorf("viewings: %w", err)
	}
	rec := entries[0].Record.Visible(key.Object, &entries[0].User)
	if rec == nil {
		return &historyv1.ViewingsResponse{}, nil
	}
	return &historyv1.ViewingsResponse{Found: true, Sessions: view.Sessions(rec)}, nil
}
