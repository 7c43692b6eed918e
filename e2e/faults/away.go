package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// away takes HBase away and then Kafka, and kills every service and job meanwhile:
// they must come back without it and acknowledge heartbeats. Who needs the archive is
// told that it is unavailable.
func away(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for _, name := range []string{"hbase", "kafka"} {
			if err := errors.Join(pause(ctx, time.Second), t.without(ctx, name)); err != nil {
				return fmt.Errorf("without %s: %w", name, err)
			}
			t.load.epoch.Add(1)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

func (t *trial) without(ctx context.Context, engine string) error {
	e := t.es[engine]
	if err := e.Kill(); err != nil {
		return err
	}
	began := time.Now()
	for _, u := range t.stack.units()[:len(t.stack.services)+len(t.stack.jobs)] {
		u.kill()
	}
	for _, u := range t.stack.services {
		if err := u.awaitReady(ctx, 20*time.Second); err != nil {
			return err
		}
	}
	took, before := time.Since(began), t.book.count()
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	acked := t.book.count() - before
	t.res.note("without %s the killed services are back after %v and acknowledge %d in 3 s", engine, took.Round(100*time.Millisecond), acked)
	if acked == 0 {
		return errors.New("nothing is acknowledged")
	}
	if engine == "hbase" {
		_, err := t.stack.doors[0].List(ctx, &historyv1.ListRequest{Uid: "stranger"})
		if status.Code(err) != codes.Unavailable {
			return fmt.Errorf("a page of the archive is answered with %v, want it unavailable", status.Code(err))
		}
	}
	return e.Start(ctx)
}
