package rpc

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Among the newest thousand records unfinished ones are looked for, since to go on is about
// what is recent: first among some that nearly always have enough of them.
const (
	lookFirst = 100
	lookThen  = 900
)

// Continue reads what a user has begun and not finished, newest first. When a store does
// not answer, neither does Continue: nothing to go on with is an answer of its own.
func (s *Server) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, status(err)
	}
	if req.GetLimit() > MaxPage {
		return nil, status(history.Invalid("limit", "want 1 to 100"))
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	u := &unfinished{rules: s.cfg.Rules, series: req.GetSeries(), seen: make(map[string]bool), limit: int(req.GetLimit())}
	if u.limit == 0 {
		u.limit = defaultPage
	}
	if err := s.unfinished(ctx, req, u); err != nil {
		return nil, status(fmt.Errorf("continue: %w", err))
	}
	return &historyv1.ContinueResponse{Items: u.items}, nil
}

func (s *Server) unfinished(ctx context.Context, req *historyv1.ContinueRequest, into *unfinished) error {
	q := history.Query{Type: req.GetType()}
	for _, q.Limit = range [...]int{lookFirst, lookThen} {
		p, err := s.page(ctx, req.GetUid(), q)
		if err != nil {
			return err
		}
		for _, it := range p.items {
			into.add(it)
		}
		if !p.more || len(into.items) == into.limit {
			break
		}
		q.After = p.end
	}
	return nil
}

// unfinished takes the records that invite to go on, one of each series.
type unfinished struct {
	rules  *history.Rulebook
	series string // the entry of the metadata that names it; empty for none
	seen   map[string]bool
	limit  int
	items  []*historyv1.Item
}

func (u *unfinished) add(it history.Item) {
	if len(u.items) == u.limit || !u.rules.Of(it.Object.Type).Unfinished(it.Record) {
		return
	}
	if name := it.Record.Meta[u.series]; u.series != "" && name != "" {
		if u.seen[name] {
			return
		}
		u.seen[name] = true
	}
	u.items = append(u.items, view.Item(it.Object, it.Record))
}
