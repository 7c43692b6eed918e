package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
)

var errOver = errors.New("generation is over")

// assignment is one generation of this member. Commits name the generation, so the broker refuses them once it is
// over. A kafka-go group Reader would commit for partitions that another job owns by then.
type assignment struct {
	q       *Queue
	gen     *kafka.Generation
	buckets []history.Bucket

	arrived chan message   // From the partitions' readers.
	readers sync.WaitGroup // They stop with the context of handle.
	failing atomic.Int32   // Number of readers without an answer.
	over    chan struct{}  // Closed once handle has returned.
	broken  chan struct{}  // Closed when this member gives up the generation.
	failed  sync.Once

	lags *lags

	mu        sync.Mutex    // held during a commit, so offsets only increase
	committed map[int]int64 // by owned partition; negative without a commit

	fetching sync.Mutex
	next     map[int]int64 // by fetched partition
}

// assignment starts readers for the partitions of a generation, until ctx is done.
func (q *Queue) assignment(ctx context.Context, gen *kafka.Generation) (*assignment, error) {
	n, err := q.countPartitions(ctx)
	if err != nil {
		return nil, err
	}
	c := &assignment{
		q: q, gen: gen,
		arrived: make(chan message, 16), over: make(chan struct{}), broken: make(chan struct{}),
		committed: map[int]int64{}, next: map[int]int64{}, lags: &lags{by: map[int]*lag{}},
	}
	assigned := gen.Assignments[q.cfg.Topic]
	c.setOwned(assigned, n)
	for _, p := range assigned {
		r := reader{q: q, assignment: c, partition: p.ID, offset: p.Offset}
		c.readers.Go(func() { r.run(ctx) })
	}
	c.readers.Go(func() { q.checkAssignment(ctx, c) })
	q.cfg.Logger.Info("joined the group", "topic", q.cfg.Topic, "group", gen.GroupID, "generation", gen.ID, "partitions", len(assigned))
	return c, nil
}

// watchEvery is the interval between checks for added partitions.
const watchEvery = 5 * time.Second

// checkAssignment ends the generation if the group has assigned fewer partitions than exist. That happens if the
// topic was created or grew between the assignment and the first check for changes.
func (q *Queue) checkAssignment(ctx context.Context, c *assignment) {
	for run.Sleep(ctx, watchEvery) {
		n, err := q.countPartitions(ctx)
		assigned, derr := q.assignedPartitions(ctx)
		if err != nil || derr != nil {
			continue
		}
		if assigned < n {
			q.cfg.Logger.Warn("consumer group assigned too few partitions; will rejoin", "topic", q.cfg.Topic, "divided", assigned, "partitions", n)
			c.fail()
		}
		return
	}
}

var errRebalancing = errors.New("group is being divided")

// assignedPartitions returns how many partitions the group's members own.
func (q *Queue) assignedPartitions(ctx context.Context) (n int, err error) {
	res, err := q.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{q.cfg.Group}})
	if err != nil {
		return 0, err
	}
	for _, g := range res.Groups {
		if g.Error != nil || g.GroupState != "Stable" {
			return 0, cmp.Or(g.Error, errRebalancing)
		}
		for _, m := range g.Members {
			for _, t := range m.MemberAssignments.Topics {
				if t.Topic == q.cfg.Topic {
					n += len(t.Partitions)
				}
			}
		}
	}
	return n, nil
}

// setOwned records the assigned ones of n partitions and their buckets.
func (c *assignment) setOwned(assigned []kafka.PartitionAssignment, n int) {
	for _, p := range assigned {
		c.committed[p.ID] = p.Offset
	}
	for b := range history.Bucket(history.Buckets) {
		if _, owned := c.committed[wire.PartitionOf(b, n)]; owned {
			c.buckets = append(c.buckets, b)
		}
	}
}

// fail ends the generation; uncommitted messages come again in the next one.
func (c *assignment) fail() { c.failed.Do(func() { close(c.broken) }) }

// givenUp reports whether this member gave up the generation.
func (c *assignment) givenUp() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// end waits for the readers, whose context is done, and disables the assignment.
func (c *assignment) end() {
	c.readers.Wait()
	close(c.over)
}

// Buckets implements [history.Assignment].
func (c *assignment) Buckets() []history.Bucket { return c.buckets }

// A delivery ends at these bounds, plus at most one message.
const (
	maxFetchKeys  = 32_768
	maxFetchBytes = 4 << 20
)

// message is a message from a reader: decoded keys, or poison.
type message struct {
	record

	partition int
	keys      []history.Announcement
	err       error
}

// commitTimeout bounds a commit.
const commitTimeout = 10 * time.Second

// Fetch implements [history.Assignment].
func (c *assignment) Fetch(ctx context.Context) (history.Delivery, error) {
	c.fetching.Lock()
	defer c.fetching.Unlock()
	var d history.Delivery
	select {
	case m := <-c.arrived:
		c.add(&d, m)
	case <-c.over:
		return d, fmt.Errorf("fetch: %w", errOver)
	case <-ctx.Done():
		return d, fmt.Errorf("fetch: %w", ctx.Err())
	}
	for c.addMore(&d) {
	}
	d.Offsets = maps.Clone(c.next)
	return d, nil
}

// addMore adds an available message, up to the bounds.
func (c *assignment) addMore(d *history.Delivery) bool {
	if len(d.Keys) >= maxFetchKeys || d.Bytes >= maxFetchBytes {
		return false
	}
	select {
	case m := <-c.arrived:
		c.add(d, m)
		return true
	default:
		return false
	}
}

func (c *assignment) add(d *history.Delivery, m message) {
	d.Messages++
	d.Bytes += len(m.payload)
	d.Keys = append(d.Keys, m.keys...)
	if m.trace != "" {
		d.Traces = append(d.Traces, m.trace)
	}
	if m.err != nil {
		d.Poison = append(d.Poison, history.Poison{Payload: m.payload, Partition: m.partition, Offset: m.offset, Err: m.err})
	}
	c.next[m.partition] = m.offset + 1
	c.lags.read(m)
}

// Commit implements [history.Assignment]. A failed commit ends the generation; its messages come again in the next
// one.
func (c *assignment) Commit(ctx context.Context, d history.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.ended(), ctx.Err()); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	offsets := c.newOffsets(d.Offsets)
	if len(offsets) == 0 {
		return nil
	}
	if err := c.commit(ctx, offsets, d.CommitMetadata); err != nil {
		c.fail()
		return fmt.Errorf("commit: %w", err)
	}
	maps.Copy(c.committed, offsets)
	c.lags.commit(offsets)
	return nil
}

// commit commits as a member of the generation; the broker refuses once the generation is over. kafka-go's
// Generation cannot commit metadata. A commit in flight outlives the generation.
func (c *assignment) commit(ctx context.Context, offsets map[int]int64, commitMetadata string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	commits := make([]kafka.OffsetCommit, 0, len(offsets))
	for p, o := range offsets {
		commits = append(commits, kafka.OffsetCommit{Partition: p, Offset: o, Metadata: commitMetadata})
	}
	res, err := c.q.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: c.gen.GroupID, GenerationID: int(c.gen.ID), MemberID: c.gen.MemberID,
		Topics: map[string][]kafka.OffsetCommit{c.q.cfg.Topic: commits},
	})
	if err != nil {
		return err
	}
	for _, p := range res.Topics[c.q.cfg.Topic] {
		err = cmp.Or(err, p.Error)
	}
	return err
}

// ended returns errOver if nothing can be committed any more.
func (c *assignment) ended() error {
	select {
	case <-c.over:
	case <-c.broken:
	default:
		return nil
	}
	return errOver
}

// newOffsets returns the offsets beyond the committed ones. The caller holds c.mu.
func (c *assignment) newOffsets(offsets map[int]int64) map[int]int64 {
	fresh := map[int]int64{}
	for p, o := range offsets {
		if last, owned := c.committed[p]; owned && o > last {
			fresh[p] = o
		}
	}
	return fresh
}

// reader reads one partition for one assignment.
type reader struct {
	q          *Queue
	assignment *assignment
	partition  int
	offset     int64 // next message; negative for the first existing one
	delivered  bool  // some messages were handed over
}

// run reads until ctx is done. It retries silent brokers: the partition may get another leader, or the group
// another owner. It reports the second failure, since the first one is usual after a pause of this process.
func (r *reader) run(ctx context.Context) {
	for failed := 0; ; {
		err := r.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if failed >= reported {
				r.report(nil)
			}
			failed = 0
		} else if failed++; failed == reported {
			r.report(err)
		}
		if errors.Is(err, kafka.OffsetOutOfRange) {
			err = r.restart(ctx)
		}
		if topicMissing(err) || errors.Is(err, errOver) { // a new log has new offsets, in the group too
			r.assignment.fail()
			return
		}
		if err != nil {
			run.Sleep(ctx, retryPause)
		}
	}
}

// reported is the number of the failure in a row that is reported.
const reported = 2

// report logs when the first partition of the assignment fails, and when all work again.
func (r *reader) report(err error) {
	log := r.q.cfg.Logger.With("topic", r.q.cfg.Topic, "partition", r.partition, "offset", r.offset)
	switch {
	case err != nil && r.assignment.failing.Add(1) == 1 && !topicMissing(err): // recreateTopic tells of a missing one
		log.Warn("read failed; will retry", "error", err)
	case err == nil && r.assignment.failing.Add(-1) == 0:
		log.Info("reading again")
	}
}

// poll hands over the messages of one fetch.
func (r *reader) poll(ctx context.Context) error {
	records, end, err := r.q.fetch(ctx, r.partition, r.offset)
	if err != nil {
		return err
	}
	r.assignment.lags.ends(r.partition, r.offset, end)
	return r.deliver(ctx, records)
}

func (r *reader) deliver(ctx context.Context, records kafka.RecordReader) error {
	return each(records, r.offset, func(rec record) error {
		m := message{record: rec, partition: r.partition}
		m.keys, m.err = r.q.decode(m.payload) // decoded here, so partitions decode concurrently
		select {
		case r.assignment.arrived <- m:
			r.offset, r.delivered = m.offset+1, true
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// restart continues at the first existing message after retention or a leader's loss took the next one, or after
// the group's offset was moved. The keys of lost messages are still dirty. An offset beyond the end means a new
// log, which invalidates all offsets: if messages were delivered, the generation ends.
func (r *reader) restart(ctx context.Context) error {
	first, err := r.q.offset(ctx, kafka.FirstOffsetOf(r.partition))
	if err != nil {
		return err
	}
	gone := max(first-max(r.offset, 0), 0)
	r.q.skipped.Add(gone)
	r.q.cfg.Logger.Warn("next message missing; continued with the first available", "topic", r.q.cfg.Topic, "partition", r.partition,
		"offset", r.offset, "first", first, "skipped", gone)
	if gone == 0 && r.delivered {
		return errOver
	}
	r.offset = first
	r.assignment.mu.Lock()
	defer r.assignment.mu.Unlock()
	if gone == 0 {
		r.assignment.committed[r.partition] = kafka.FirstOffset
	}
	return nil
}
