package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

// show replays, waits, checks and prints.
type show struct {
	flags    flags
	process  *allinone.Process
	registry prometheus.Gatherer
	out      io.Writer
}

func (s *show) run(ctx context.Context) error {
	vs, err := replay.ReadFile(s.flags.Trace)
	if err != nil {
		return err
	}
	plan := replay.Expand(vs, s.flags.Limit)
	plan.EndAt(time.Now().UnixMilli())
	stop, err := profile(s.flags.Profile)
	if err != nil {
		return err
	}
	m := &meter{}
	m.start()
	if err := s.replay(ctx, plan); err != nil {
		return err
	}
	m.sent()
	if err := s.settled(ctx); err != nil {
		return err
	}
	m.archived()
	stop()
	report, err := s.check(ctx, plan)
	if err != nil {
		return err
	}
	return s.finish(s.figures(plan, m, report), report)
}

// replay sends the plan through the gRPC door.
func (s *show) replay(ctx context.Context, plan *replay.Plan) error {
	conn, err := grpc.NewClient(s.process.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the service: %w", err)
	}
	defer conn.Close()
	d := &replay.Driver{Conn: conn, Streams: s.flags.Streams}
	done := replay.Progress(os.Stderr, plan.Len(), d)
	defer done()
	return d.Run(ctx, plan)
}

// settled waits until no record is newer than the archive: no dirty mark is left.
func (s *show) settled(ctx context.Context) error {
	all := make([]history.Bucket, history.Buckets)
	for i := range all {
		all[i] = history.Bucket(i) //nolint:gosec // below Buckets
	}
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		left, err := s.process.Cache().Overdue(ctx, all, 0, 1)
		if err != nil {
			return fmt.Errorf("wait for the archive: %w", err)
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *show) check(ctx context.Context, plan *replay.Plan) (replay.Report, error) {
	return replay.Check(ctx, replay.Model(plan), map[string]replay.Reader{
		"cache": replay.FromCache(s.process.Cache()), "archive": replay.FromArchive(s.process.Archive()),
	})
}
