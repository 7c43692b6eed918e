package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// startSlow starts services, a job and an edge with the deadlines that they have by
// default: how long somebody waits is what is measured. The flags say where Redis is.
func (t *trial) startSlow(ctx context.Context, services int, flags ...string) error {
	s := &stack{spec: spec{drain: 8 * time.Second}, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range services {
		if err := s.startService(ctx, watch, i, flags); err != nil {
			return err
		}
	}
	if err := s.startJob(ctx, watch, 0, flags); err != nil {
		return err
	}
	return errors.Join(s.addEdge(ctx, watch), s.awaitReady(ctx))
}

// endSlow ends what startSlow started, for a case that starts more than once.
func (t *trial) endSlow() (err error) {
	for _, end := range t.stack.surprises() {
		err = errors.Join(err, errors.New(end))
	}
	err = errors.Join(err, t.stack.close())
	t.stack = nil
	return err
}
