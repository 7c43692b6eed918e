package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// quiet waits until nothing is left to do: no record is newer than the archive, and
// no message waits in the queue.
func (s *stack) quiet(ctx context.Context, limit time.Duration) error {
	return process.Await(ctx, limit, "quiet", func(ctx context.Context) error {
		if err := s.settled(ctx); err != nil {
			return err
		}
		return s.drained(ctx)
	})
}

// settled fails while a key has a dirty mark.
func (s *stack) settled(ctx context.Context) error {
	left, err := s.overdue(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d keys are marked, such as %s", len(left), left[0])
	}
	return err
}

// overdue returns all keys with a dirty mark.
func (s *stack) overdue(ctx context.Context) ([]history.Key, error) {
	return marks(ctx, s.cache)
}

func marks(ctx context.Context, c history.Ledger) ([]history.Key, error) {
	all := make([]history.Bucket, history.Buckets)
	for b := range all {
		all[b] = history.Bucket(b) //nolint:gosec // 1,024 of them
	}
	return c.Overdue(ctx, all, 0, 1_000_000)
}

// drained fails while a message is not committed.
func (s *stack) drained(ctx context.Context) error {
	committed, ends, err := s.offsets(ctx)
	if err != nil {
		return err
	}
	for p, end := range ends {
		if max(committed[p], 0) < end {
			return fmt.Errorf("partition %d is committed to %d of %d", p, committed[p], end)
		}
	}
	return nil
}

// offsets returns by partition what the group has committed, below zero for nothing,
// and where the log ends.
func (s *stack) offsets(ctx context.Context) (committed, ends map[int]int64, err error) {
	c := &kafka.Client{Addr: kafka.TCP(s.es["kafka"].Addr()), Timeout: 5 * time.Second}
	var ask []kafka.OffsetRequest
	var partitions []int
	for p := range 8 {
		ask, partitions = append(ask, kafka.LastOffsetOf(p)), append(partitions, p)
	}
	last, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{s.name: ask}})
	if err != nil {
		return nil, nil, fmt.Errorf("ends of the log: %w", err)
	}
	done, err := c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: s.name, Topics: map[string][]int{s.name: partitions}})
	if err != nil {
		return nil, nil, fmt.Errorf("committed offsets: %w", err)
	}
	committed, ends = make(map[int]int64), make(map[int]int64)
	for _, p := range last.Topics[s.name] {
		ends[p.Partition], err = p.LastOffset, errors.Join(err, p.Error)
	}
	for _, p := range done.Topics[s.name] {
		committed[p.Partition], err = p.CommittedOffset, errors.Join(err, p.Error)
	}
	if err == nil && (len(ends) < 8 || len(committed) < 8) {
		err = errors.New("not all partitions answer")
	}
	return committed, ends, errors.Join(err, done.Error)
}
