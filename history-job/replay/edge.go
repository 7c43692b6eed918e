package replay

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Edge sends a plan through the edge as its users' players: one WebSocket and token per user, within the rate
// limits.
type Edge struct {
	// URL is the edge's base URL, such as https://edge.example.com.
	URL string
	// Token returns a user's token.
	Token func(uid string) (string, error)
	// Users bounds the concurrent connections (default 64).
	Users int
	// Patience is the deadline for progress (default 60 s).
	Patience time.Duration
	Logger   *slog.Logger

	answers
}

// Run sends the whole plan, one user at a time per connection, and returns when every heartbeat is answered. It
// fails with [client.ErrUnauthorized] as soon as the edge refuses a token. It fails with [ErrRefused] after the
// last heartbeat if the service found some invalid.
func (e *Edge) Run(ctx context.Context, p *Plan) error {
	byUser, uids := make(map[string][]int), []string(nil)
	for i := range p.beats {
		uid := p.Viewings[p.beats[i].viewing].UID
		if byUser[uid] == nil {
			uids = append(uids, uid)
		}
		byUser[uid] = append(byUser[uid], i)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go e.watch(ctx, end)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(run.Default(e.Users, 64))
	for _, uid := range uids {
		g.Go(func() error {
			if err := e.user(ctx, uid, p, byUser[uid]); err != nil {
				return fmt.Errorf("replay %s: %w", uid, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if n := e.Statuses()[historyv1.Status_STATUS_INVALID]; n > 0 {
		return fmt.Errorf("%w: %d heartbeats", ErrRefused, n)
	}
	return nil
}

// watch ends a run without progress.
func (e *Edge) watch(ctx context.Context, end context.CancelCauseFunc) {
	patience := run.Default(e.Patience, 60*time.Second)
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for last := int64(0); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if e.Acked() == last {
			end(fmt.Errorf("the edge at %s has answered nothing for %v: is it there?", e.URL, patience))
			return
		}
		last = e.Acked()
	}
}

// user reports all heartbeats of a user, in order of time.
func (e *Edge) user(ctx context.Context, uid string, p *Plan, beats []int) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	player, err := client.New(client.Config{
		URL: e.URL, Token: func(context.Context) (string, error) { return e.Token(uid) },
		Unauthorized: func(err error) {
			end(fmt.Errorf("the edge at %s refuses the tokens, is the secret its own, and the audience? %w", e.URL, err))
		},
		Answered: func(a client.Answer) { e.count(a.Status) },
		Queue:    len(beats), NoRecords: true, Recorded: true, Logger: e.Logger,
	})
	if err != nil {
		return err
	}
	for _, i := range beats {
		hb := &historyv1.Heartbeat{}
		p.heartbeat(i, hb)
		if err := player.Report(hb); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- player.Run(ctx) }()
	flushed := make(chan error, 1)
	go func() { flushed <- player.Flush(ctx) }()
	select {
	case err := <-ended: // refused permanently, or interrupted
		return cmp.Or(err, context.Cause(ctx))
	case err := <-flushed:
		cause := context.Cause(ctx)
		end(nil)
		<-ended //nolint:errcheck // it was ended by end
		return cmp.Or(cause, err)
	}
}
