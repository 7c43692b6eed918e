package faults

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (c *checker) readers(ctx context.Context) error {
	for _, uid := range slices.Sorted(maps.Keys(c.visible)) {
		if err := c.pages(ctx, uid); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) show(k history.Key, r *history.Record) {
	if c.visible[k.UID] == nil {
		c.visible[k.UID] = make(map[history.Object]*history.Record)
	}
	c.visible[k.UID][k.Object] = r
}

// pageSize makes several pages of most users' lists.
const pageSize = 4

// pages reads a user's whole list and points and compares them with the records. Nothing
// changes any more: what is not listed is a gap, what is listed twice a repeat.
func (c *checker) pages(ctx context.Context, uid string) error {
	door := c.doors[len(uid)%len(c.doors)]
	want, seen := c.visible[uid], make(map[history.Object]bool)
	for cursor, more := "", true; more; {
		resp, err := again(ctx, func(ctx context.Context) (*historyv1.ListResponse, error) {
			return door.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: pageSize, Cursor: cursor})
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", uid, err)
		}
		for _, it := range resp.GetItems() {
			o := history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}
			if c.item(history.Key{UID: uid, Object: o}, it, "page"); seen[o] {
				c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is listed twice"))
			}
			seen[o] = true
		}
		cursor, more = resp.GetCursor(), resp.GetHasMore()
	}
	for o, r := range want {
		if r != nil && !seen[o] {
			c.res.count(history.Key{UID: uid, Object: o}, "page", lost("is not listed"))
		}
	}
	if c.pagesOnly {
		return nil
	}
	return c.points(ctx, door, uid)
}

func (c *checker) points(ctx context.Context, door rpcDoor, uid string) error {
	for objects := range slices.Chunk(slices.Collect(maps.Keys(c.visible[uid])), 100) {
		req := pointsOf(uid, objects)
		resp, err := again(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) { return door.Points(ctx, req) })
		if err != nil {
			return fmt.Errorf("points %s: %w", uid, err)
		}
		for i, it := range resp.GetItems() {
			c.item(history.Key{UID: uid, Object: objects[i]}, it, "point")
		}
	}
	return nil
}

// again reads until there is an answer, as players do: on a busy machine the services'
// short deadline may pass.
func again[T any](ctx context.Context, read func(context.Context) (T, error)) (answer T, err error) {
	err = process.Await(ctx, 20*time.Second, "an answer", func(ctx context.Context) (err error) {
		answer, err = read(ctx)
		return err
	})
	return answer, err
}

// item judges what a reader was shown of a key.
func (c *checker) item(k history.Key, it *historyv1.Item, where string) {
	want := c.visible[k.UID][k.Object]
	switch {
	case want == nil && it.GetObject() == nil:
	case want == nil:
		c.res.count(k, where, risen("shows %v", it))
	case it.GetObject() == nil || it.GetIncomplete() || !viewOfItem(it).equal(viewOf(want)):
		c.res.count(k, where, lost("shows %v, want %+v", it, *want))
	}
}
