package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Sizes of a page.
const (
	MaxPage     = 100
	defaultPage = 20
)

// maxTime bounds the times of a query, in Unix milliseconds: no event is as late, and the
// versions of later ones could not be told.
const maxTime = int64(1) << 50

// List reads a page, newest first: from the cache down to the user's floor, below
// it from the archive. When that does not answer, neither does List: a short page
// would say that there is no more.
func (s *Server) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	q, err := query(req)
	if err != nil {
		return nil, status(err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	p, err := s.page(ctx, req.GetUid(), q)
	if err != nil {
		return nil, status(fmt.Errorf("list: %w", err))
	}
	resp := &historyv1.ListResponse{HasMore: p.more}
	for _, it := range p.items {
		resp.Items = append(resp.Items, view.Item(it.Object, it.Record))
	}
	if p.more {
		resp.Cursor = encodeCursor(p.end)
	}
	return resp, nil
}

// page is a part of a user's history as readers see it.
type page struct {
	items []history.Item
	more  bool
	end   history.Cursor // the next page comes after it
}

// page reads on until it has something to show, or there is no more.
func (s *Server) page(ctx context.Context, uid string, q history.Query) (p page, err error) {
	for {
		if p, err = s.part(ctx, uid, q); err != nil || len(p.items) > 0 || !p.more {
			return p, err
		}
		q.After = p.end
	}
}

func (s *Server) part(ctx context.Context, uid string, q history.Query) (page, error) {
	listed, err := s.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return page{}, err
	}
	if !listed.User.Warm {
		s.warm.want(uid)
	}
	if !s.sure(listed, q) {
		return s.below(ctx, uid, q, listed)
	}
	items, err := s.completed(ctx, uid, listed)
	return page{items: wanted(items, &listed.User, q), more: listed.More, end: endOf(listed.Items)}, err
}

// sure reports whether the archive can add no object to a page.
func (s *Server) sure(listed history.Page, q history.Query) bool {
	switch {
	case listed.User.Complete():
		return true
	case !listed.User.Warm:
		return false
	case q.Since > 0 && history.VersionOf(q.Since, 0) >= listed.User.Floor:
		return true
	}
	return listed.More && listed.Items[len(listed.Items)-1].Record.Version >= listed.User.Floor
}

// wanted returns what readers see of the items, in page order, as far as the query asks
// for it.
func wanted(items []history.Item, u *history.User, q history.Query) (seen []history.Item) {
	for _, it := range items {
		if it.Record = it.Record.Visible(it.Object, u); it.Record != nil && q.Wants(it.Object, it.Record) {
			seen = append(seen, it)
		}
	}
	slices.SortFunc(seen, history.NewestFirst)
	return seen
}

func endOf(items []history.Item) history.Cursor {
	if len(items) == 0 {
		return history.Cursor{}
	}
	last := items[len(items)-1]
	return history.Cursor{Version: last.Record.Version, Object: last.Object}
}

func query(req *historyv1.ListRequest) (history.Query, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return history.Query{}, err
	}
	if req.GetLimit() > MaxPage {
		return history.Query{}, history.Invalid("limit", "want 1 to 100")
	}
	if req.GetSinceMs() < 0 || req.GetUntilMs() < 0 {
		return history.Query{}, history.Invalid("since", "since and until want Unix milliseconds")
	}
	after, err := decodeCursor(req.GetCursor())
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultPage
	}
	return history.Query{
		After: after, Limit: limit, Type: req.GetType(),
		Since: min(req.GetSinceMs(), maxTime), Until: min(req.GetUntilMs(), maxTime),
	}, err
}
