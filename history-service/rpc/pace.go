package rpc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// pace lets so many pass in a second, evenly and in their order: after the loss of a
// whole cache all users are cold, and the archive must not be asked for all at once.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time // whose turn is free
}

// wait returns when it is the caller's turn. One whose deadline is earlier is told at
// once, and takes no turn.
func (p *pace) wait(ctx context.Context) error {
	turn, err := p.turn(ctx)
	if err != nil {
		return err
	}
	t := time.NewTimer(time.Until(turn))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pace) turn(ctx context.Context) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := p.next
	if now := time.Now(); turn.Before(now) {
		turn = now
	}
	if end, ok := ctx.Deadline(); ok && end.Before(turn) {
		return turn, fmt.Errorf("%w: too many users are being warmed", history.ErrUnavailable)
	}
	p.next = turn.Add(p.every)
	return turn, nil
}
