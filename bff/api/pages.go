package api

import (
	"context"
	"errors"
	"iter"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// pageSize is what operations that read many pages ask for at once.
const pageSize = 100

// page reads one page.
func (a *api) page(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	return a.cfg.Service.List(ctx, req)
}

// pages reads on from a request to the last page, or to an error. Each page costs what a
// request does; the first one was paid by the request itself.
func (a *api) pages(ctx context.Context, req *historyv1.ListRequest) iter.Seq2[[]*historyv1.Item, error] {
	return func(yield func([]*historyv1.Item, error) bool) {
		for {
			resp, err := a.page(ctx, req)
			if err == nil && resp.HasMore && resp.Cursor == req.Cursor {
				err = errors.New("list: the cursor stands still")
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(resp.Items, nil) || !resp.HasMore {
				return
			}
			req.Cursor = resp.Cursor
			a.cfg.Limit.Spend(uidOf(ctx), 1)
		}
	}
}
