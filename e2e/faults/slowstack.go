package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/playhead/playhead/e2e/process"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// startSlow starts services, a job and an edge with the deadlines that they have by
// default: how long somebody waits is what is measured. The flags say where Redis is.
func (t *trial) startSlow(ctx context.Context, services int, flags ...string) error {
	s := &stack{spec: spec{drain: 8 * time.Second}, name: fmt.Sprintf("faults_%s_%d", t.res.Case, time.Now().UnixMilli()), opts: t.Options, es: t.es}
	t.stack = s // closed with the trial
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range services {
		addr, err := process.FreeAddr(ctx)
		if err != nil {
			return err
		}
		u, err := s.unit(ctx, fmt.Sprintf("history-service-%d", i), append([]string{"--listen", addr}, flags...)...)
		if err != nil {
			return err
		}
		conn, err := dial(addr)
		if err != nil {
			return err
		}
		s.services, s.conns = append(s.services, u), append(s.conns, conn)
		s.rpcs = append(s.rpcs, rpcClient{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn)})
		s.wg.Go(func() { u.watch(watch) })
	}
	job, err := s.unit(ctx, "history-job-0", flags...)
	if err != nil {
		return err
	}
	s.jobs = append(s.jobs, job)
	s.wg.Go(func() { job.watch(watch) })
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
