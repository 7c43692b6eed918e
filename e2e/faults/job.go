package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// rebalance kills, freezes and stops jobs under load, so that partitions move with
// batches in flight, and watches the committed offsets: none may go back.
func rebalance(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: 3}); err != nil {
		return err
	}
	ctx2, end := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return t.watchOffsets(ctx2) })
	err := t.underLoad(ctx, t.shuffleJobs)
	err = errors.Join(err, t.settle(ctx))
	end()
	return errors.Join(err, g.Wait())
}

// shuffleJobs does something to a random job every now and then.
func (t *trial) shuffleJobs(ctx context.Context) error {
	for n := range 12 {
		u := t.stack.jobs[t.rand.IntN(len(t.stack.jobs))]
		switch sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSTOP}[n%3]; sig {
		case syscall.SIGSTOP: // for longer than its session lasts, once
			u.signal(sig)
			if err := pause(ctx, time.Duration(n/11*11)*time.Second); err != nil {
				return err
			}
			u.signal(syscall.SIGCONT)
		default:
			u.signal(sig)
		}
		if err := pause(ctx, time.Duration(500+t.rand.IntN(2000))*time.Millisecond); err != nil {
			return err
		}
		t.load.epoch.Add(1)
	}
	return nil
}

// watchOffsets fails when a committed offset goes back.
func (t *trial) watchOffsets(ctx context.Context) error {
	highest := make(map[int]int64)
	samples := 0
	for ctx.Err() == nil {
		committed, _, err := t.stack.offsets(ctx)
		for p, at := range committed {
			if last, seen := highest[p]; err == nil && seen && at < last {
				return fmt.Errorf("partition %d went back from %d to %d", p, last, at)
			}
			if err == nil {
				highest[p] = at
			}
		}
		samples++
		_ = pause(ctx, 200*time.Millisecond)
	}
	t.res.note("committed offsets seen %d times, none went back", samples)
	return nil
}

// poison puts messages on the topic that no job understands. Others flow.
func poison(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	const perPartition = 3
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for range perPartition {
			if err := errors.Join(t.stack.publishPoison(ctx, t), pause(ctx, time.Second)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	counted, err := total(ctx, t.stack.jobs, "playhead_job_undecodable_messages_total")
	t.res.note("%d undecodable messages sent, %.0f counted", 8*perPartition, counted)
	if err == nil && counted < 8*perPartition {
		err = errors.New("not all undecodable messages were counted")
	}
	return err
}

// publishPoison writes one undecodable message to every partition, of any size.
func (s *stack) publishPoison(ctx context.Context, t *trial) error {
	c := &kafka.Client{Addr: kafka.TCP(s.es["kafka"].Addr()), Timeout: 5 * time.Second}
	for p := range 8 {
		payload := make([]byte, 1+t.rand.IntN(900_000))
		_, _ = rand.Read(payload) // never fails
		payload[0] = 0xff         // no field begins like this
		resp, err := c.Produce(ctx, &kafka.ProduceRequest{
			Topic: s.name, Partition: p, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Time: time.Now(), Value: kafka.NewBytes(payload)}),
		})
		if err == nil {
			err = resp.Error
		}
		if err != nil {
			return fmt.Errorf("publish poison: %w", err)
		}
	}
	return nil
}
