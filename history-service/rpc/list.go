package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Sizes of a page.
const (
	MaxPage     = 100
	defaultPage = 20
)

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
	page, err := s.page(ctx, req.GetUid(), q)
	if err != nil {
		return nil, status(fmt.Errorf("list: %w", err))
	}
	resp := &historyv1.ListResponse{HasMore: page.More}
	for _, it := range page.Items {
		resp.Items = append(resp.Items, item(it.Object, it.Record))
	}
	if page.More {
		resp.Cursor = encodeCursor(page.Items[len(page.Items)-1])
	}
	return resp, nil
}

func (s *Server) page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := s.cfg.Cache.List(ctx, uid, q)
	if err != nil {
		return history.Page{}, err
	}
	if !page.User.Warm {
		s.warm.want(uid)
	}
	if s.sure(page, q) {
		return page, nil
	}
	return s.below(ctx, uid, q, page)
}

// sure reports whether the archive can add nothing to a page.
func (s *Server) sure(page history.Page, q history.Query) bool {
	switch {
	case page.User.Complete():
		return true
	case !page.User.Warm:
		return false
	case q.Since > 0 && history.VersionOf(q.Since, 0) >= page.User.Floor:
		return true
	}
	return page.More && page.Items[len(page.Items)-1].Record.Version >= page.User.Floor
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
	return history.Query{After: after, Limit: limit, Type: req.GetType(), Since: req.GetSinceMs(), Until: req.GetUntilMs()}, err
}
