package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// MaxPoints is how many objects one request may ask for.
const MaxPoints = 100

// Points reads where a user stopped in some objects, from the cache. What a warm user
// does not have there is not looked for in the archive; of what is there incomplete, the
// archive is asked. A cold user is warmed first. A read that fails is an error, never "no
// progress".
func (s *Server) Points(ctx context.Context, req *historyv1.PointsRequest) (*historyv1.PointsResponse, error) {
	keys, err := points(req)
	if err != nil {
		return nil, status(err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	entries, err := s.known(ctx, keys)
	if err == nil {
		err = s.complete(ctx, keys, entries)
	}
	if err != nil {
		return nil, status(fmt.Errorf("points: %w", err))
	}
	resp := &historyv1.PointsResponse{Items: make([]*historyv1.Item, len(keys))}
	for i, e := range entries {
		resp.Items[i] = &historyv1.Item{}
		if r := e.Record.Visible(keys[i].Object, &e.User); r != nil {
			resp.Items[i] = view.Item(keys[i].Object, r)
		}
	}
	return resp, nil
}

// known loads keys of one user, who is warm then where it matters. A user who is cold
// again after the warm-up, because the cache was emptied meanwhile, is warmed again.
func (s *Server) known(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	for range maxTries {
		entries, err := s.entries(ctx, keys)
		if err != nil || !cold(entries) {
			return entries, err
		}
		if err := s.warm.wait(ctx, keys[0].UID); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("user stays cold: %w", history.ErrUnavailable)
}

// cold reports whether there is something that warming may bring, or hide: a clear mark of
// the archive covers what a job has completed for a cold user, too.
func cold(entries []history.Entry) bool {
	return slices.ContainsFunc(entries, func(e history.Entry) bool { return !e.User.Warm })
}

func (s *Server) entries(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries := s.cfg.Cache.Load(ctx, keys)
	for i := range entries {
		if err := entries[i].Err; err != nil {
			return nil, err
		}
	}
	return entries, nil
}

func points(req *historyv1.PointsRequest) ([]history.Key, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if n := len(req.GetObjects()); n == 0 || n > MaxPoints {
		return nil, history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, MaxPoints))
	}
	keys := make([]history.Key, len(req.GetObjects()))
	for i, o := range req.GetObjects() {
		keys[i] = history.Key{UID: req.GetUid(), Object: object(o)}
		if err := keys[i].Object.Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
	}
	return keys, nil
}

func object(o *historyv1.Object) history.Object {
	return history.Object{ID: o.GetId(), Type: o.GetType()}
}
