package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
)

// Consume implements [history.Consumer]. While no group can be formed, it retries. It logs the second failure: the first
// one is usual after a pause of this process, or in a new group. A handle whose context is done may still commit: its
// generation lasts until it returns, unless the group has moved on.
func (q *Queue) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	group, err := kafka.NewConsumerGroup(q.group())
	if err != nil {
		return fmt.Errorf("consume %s: %w", q.cfg.Topic, err)
	}
	defer leave(group)
	for failed := 0; ; {
		gen, err := group.Next(ctx)
		over := true
		if err == nil {
			over, err = q.generation(ctx, gen, handle)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !over:
			return err
		case err == nil:
			failed = 0
		case errors.Is(err, kafka.RebalanceInProgress):
		default:
			if failed++; failed == reported {
				q.cfg.Logger.Warn("join of the consumer group failed; will retry", "topic", q.cfg.Topic, "group", q.cfg.Group, "error", err)
			}
		}
	}
}

// leavePatience bounds the wait for the group: a join that waits for the sessions of killed members cannot be cancelled.
const leavePatience = 3 * time.Second

// leave leaves the group, so that others need not wait for the end of the session.
func leave(group *kafka.ConsumerGroup) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = group.Close() // it is nil
	}()
	select {
	case <-left:
	case <-time.After(leavePatience):
	}
}

func (q *Queue) group() kafka.ConsumerGroupConfig {
	return kafka.ConsumerGroupConfig{
		ID: q.cfg.Group, Brokers: q.cfg.Brokers, Topics: []string{q.cfg.Topic},
		Dialer:                 q.dialer(),
		StartOffset:            kafka.FirstOffset,
		SessionTimeout:         q.cfg.SessionTimeout,
		HeartbeatInterval:      q.cfg.SessionTimeout / 10,
		JoinGroupBackoff:       rejoinPause,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: watchEvery,
	}
}

// generation runs handle. It reports whether the group moves on to another generation, with the reason if handle
// did not run. Otherwise it returns Consume's result. A deleted topic is recreated: without it there is no
// generation.
//
// kafka-go ends a generation when any function started in it returns, and leaves it when all have. The one function
// started here returns when the generation is taken away or can no longer commit, but not before handle returns.
func (q *Queue) generation(ctx context.Context, gen *kafka.Generation, handle func(context.Context, history.Assignment) error) (over bool, err error) {
	hctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := q.assignment(hctx, gen)
	if topicMissing(err) {
		err = cmp.Or(q.recreateTopic(ctx), err)
	}
	if err != nil { // the topic is missing, or the brokers are gone again
		gen.Start(func(context.Context) {}) // ends the generation
		run.Sleep(ctx, rejoinPause)
		return true, err
	}
	q.generations.Add(1)
	q.current.Store(c)
	defer q.current.Store(nil)
	finished := make(chan struct{})
	defer close(finished)
	gen.Start(func(taken context.Context) {
		select {
		case <-taken.Done():
		case <-c.broken:
		}
		cancel()
		<-finished
	})
	err = handle(hctx, c)
	over = hctx.Err() != nil || c.givenUp()
	cancel()
	c.end()
	if over {
		return true, nil
	}
	return false, err
}

// rejoinPause is the pause after a failure to join the group.
const rejoinPause = 500 * time.Millisecond

// rereadPartitions is the number of partitions that Reread reads concurrently.
const rereadPartitions = 8

// rereadPatience is how long a partition may bring nothing before Reread gives it up.
const rereadPatience = 30 * time.Second

// rereading reads the messages of a time again.
type rereading struct {
	q            *Queue
	since, until time.Time // until is zero for the current end
	use          func(ctx context.Context, payloads [][]byte) error

	using  sync.Mutex // held during use
	failed error      // error of use; guarded by using
}

// Reread implements recovery.Rereader of the job. A missing topic is empty.
func (q *Queue) Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error {
	return q.Between(ctx, buckets, since, time.Time{}, use)
}

// Between is Reread for messages before a time. Zero is the current end.
func (q *Queue) Between(ctx context.Context, buckets []history.Bucket, since, until time.Time, use func(context.Context, []history.Announcement) error) error { //nolint:revive // Reread with an end
	wanted := make(map[history.Bucket]bool)
	for _, b := range buckets {
		wanted[b] = true
	}
	r := rereading{q: q, since: since, until: until, use: func(ctx context.Context, payloads [][]byte) error {
		var all []history.Announcement
		for _, payload := range payloads {
			keys, _ := q.decode(payload) // poison was delivered as such
			for _, k := range keys {
				if wanted[history.BucketOf(k.Key.UID)] {
					all = append(all, k)
				}
			}
		}
		if len(all) == 0 {
			return nil
		}
		return use(ctx, all)
	}}
	return r.run(ctx, buckets)
}

// run reads the partitions of the buckets.
func (r *rereading) run(ctx context.Context, buckets []history.Bucket) error {
	n, err := r.q.partitions(ctx)
	if topicMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reread: %w: %w", history.ErrUnavailable, err)
	}
	partitions := map[int]bool{}
	for _, b := range buckets {
		partitions[wire.PartitionOf(b, n)] = true
	}
	var g errgroup.Group
	g.SetLimit(rereadPartitions)
	for p := range partitions {
		g.Go(func() error { return r.partition(ctx, p) })
	}
	err = g.Wait()
	switch {
	case r.failed != nil:
		return r.failed
	case err != nil:
		return fmt.Errorf("reread: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

// CommitMetadata implements recovery.Rereader of the job.
func (q *Queue) CommitMetadata(ctx context.Context) ([]string, error) {
	n, err := q.partitions(ctx)
	if topicMissing(err) {
		return nil, nil
	}
	var all []kafka.OffsetFetchPartition
	if err == nil {
		all, err = q.committed(ctx, n)
	}
	if err != nil {
		return nil, fmt.Errorf("memos: %w: %w", history.ErrUnavailable, err)
	}
	var commitMetadata []string
	for _, p := range all {
		if p.CommittedOffset >= 0 {
			commitMetadata = append(commitMetadata, p.Metadata)
		}
	}
	return commitMetadata, nil
}

// committed returns what the group has committed of n partitions, nothing without a group.
func (q *Queue) committed(ctx context.Context, n int) ([]kafka.OffsetFetchPartition, error) {
	all := make([]int, n)
	for p := range all {
		all[p] = p
	}
	res, err := q.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: q.cfg.Group, Topics: map[string][]int{q.cfg.Topic: all}})
	if err == nil {
		err = res.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, p := range res.Topics[q.cfg.Topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("partition %d: %w", p.Partition, p.Error)
		}
	}
	return res.Topics[q.cfg.Topic], nil
}

// partition reads one partition from r.since to r.until.
func (r *rereading) partition(ctx context.Context, partition int) error {
	end, err := r.offset(ctx, kafka.LastOffsetOf(partition))
	if err != nil {
		return fmt.Errorf("end of partition %d: %w", partition, err)
	}
	next, err := r.offset(ctx, kafka.TimeOffsetOf(partition, r.since))
	if err != nil || next < 0 { // no message is that recent
		return err
	}
	if !r.until.IsZero() {
		before, err := r.offset(ctx, kafka.TimeOffsetOf(partition, r.until))
		if err != nil {
			return fmt.Errorf("offset of %v in partition %d: %w", r.until, partition, err)
		}
		if before >= 0 {
			end = min(end, before)
		}
	}
	for next < end {
		at := next
		if next, err = r.readSome(ctx, partition, extent{next, end}); err != nil {
			return fmt.Errorf("partition %d at offset %d: %w", partition, at, err)
		}
	}
	return nil
}

func (r *rereading) offset(ctx context.Context, request kafka.OffsetRequest) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, rereadPatience)
	defer cancel()
	err = retry(ctx, func() error {
		offset, err = r.q.offset(ctx, request)
		return err
	})
	return offset, err
}

var errEmpty = errors.New("the broker has nothing where it said there was")

// readSome hands over the messages of one fetch and returns the next offset.
func (r *rereading) readSome(ctx context.Context, partition int, left extent) (next int64, err error) {
	offset := left.first
	pctx, cancel := context.WithTimeout(ctx, rereadPatience)
	defer cancel()
	var records kafka.RecordReader
	err = retry(pctx, func() error {
		records, _, err = r.q.fetch(pctx, partition, offset)
		return err
	})
	if errors.Is(err, kafka.OffsetOutOfRange) { // retention removed it meanwhile
		return r.offset(ctx, kafka.FirstOffsetOf(partition))
	}
	if err != nil {
		return 0, err
	}
	next = offset
	var all [][]byte
	err = each(records, offset, func(m record) error {
		if m.offset < left.end {
			all = append(all, m.payload)
		}
		next = m.offset + 1
		return nil
	})
	if err == nil && next == offset {
		err = errEmpty
	}
	if err != nil {
		return 0, err
	}
	return next, r.deliver(ctx, all)
}

// deliver calls use, for one partition at a time.
func (r *rereading) deliver(ctx context.Context, payloads [][]byte) error {
	r.using.Lock()
	defer r.using.Unlock()
	if r.failed == nil {
		r.failed = r.use(ctx, payloads)
	}
	return r.failed
}
