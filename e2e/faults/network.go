package faults

import (
	"context"
	"errors"
	"time"
)

// network puts a line between the services and Redis that is cut, stalls, and is
// slow in one direction: writes without an answer, answers that come too late.
func network(ctx context.Context, t *trial) error {
	p, err := openProxy(ctx, t.es["redis"].Addr())
	if err != nil {
		return err
	}
	t.after = p.close
	if err := t.start(ctx, spec{redis: []string{p.addr(), p.addr()}}); err != nil {
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error { return t.disturb(ctx, p) })
	return errors.Join(err, t.settle(ctx))
}

func (t *trial) disturb(ctx context.Context, p *proxy) error {
	for n := range 16 {
		if err := pause(ctx, time.Duration(200+t.rand.IntN(600))*time.Millisecond); err != nil {
			return err
		}
		t.load.epoch.Add(1)
		switch n % 4 {
		case 0:
			p.cut()
		case 1: // longer than a request may take, then the writes arrive all the same
			resume := p.stall()
			err := pause(ctx, 2*time.Second)
			resume()
			if err != nil {
				return err
			}
		default:
			p.slow(n%2, 300*time.Millisecond)
			err := pause(ctx, time.Second)
			p.slow(n%2, 0)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
