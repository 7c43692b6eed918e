package faults

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// stampede empties Redis and lets everybody come back at once, one user's readers in
// hundreds: the archive is read once for each user.
func stampede(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) })
	if err := errors.Join(err, t.stack.quiet(ctx, t.Limit), t.stack.flush(ctx)); err != nil {
		return err
	}
	users := make(map[string][]*historyv1.Object)
	for k := range t.book.stories {
		users[k.UID] = append(users[k.UID], &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
	}
	const rows = "playhead_read_warmed_users_total"
	before, err := total(ctx, t.stack.services, rows)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.poll(ctx, users); err != nil {
		return err
	}
	took := time.Since(began).Round(time.Millisecond)
	after, err := total(ctx, t.stack.services, rows)
	t.res.note("%d users polled back in %v, %.0f rows read", len(users), took, after-before)
	if err == nil && after-before != float64(len(users)) {
		err = errors.New("not one row for each user")
	}
	return errors.Join(err, t.settle(ctx))
}

// poll reads every user's points, and one user's three hundred times.
func (t *trial) poll(ctx context.Context, users map[string][]*historyv1.Object) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(200)
	for i, uid := range slices.Sorted(maps.Keys(users)) {
		times := 1
		if i == 0 {
			times = 300
		}
		for range times {
			g.Go(func() error {
				door := t.stack.doors[history.BucketOf(uid)%2] // one service each, as the edge does
				_, err := again(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) {
					return door.Points(ctx, &historyv1.PointsRequest{Uid: uid, Objects: users[uid]})
				})
				return err
			})
		}
	}
	return g.Wait()
}
