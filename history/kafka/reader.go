package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	// pollWait is how long a broker waits for something to come before it answers
	// that there is nothing.
	pollWait = 2 * time.Second
	// pollTimeout is after how long without an answer the broker is taken for gone.
	pollTimeout = pollWait + 10*time.Second
	// pollBytes bounds the answer, unless a single batch is larger.
	pollBytes = 1 << 20
)

// reader reads one partition for one claim.
type reader struct {
	q         *Queue
	claim     *claim
	partition int
	offset    int64 // of the next message; below zero for the first that there is
	delivered bool  // some were handed over
}

// run reads until ctx is done. A broker that does not answer is asked again: the
// partition may have another leader by then, or the group another owner for it.
func (r *reader) run(ctx context.Context) {
	for failing := false; ; {
		err := r.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		if failed := err != nil; failed != failing {
			failing = failed
			r.report(failed, err)
		}
		if errors.Is(err, kafka.OffsetOutOfRange) {
			err = r.restart(ctx)
		}
		if missing(err) || errors.Is(err, errOver) { // another log has other offsets, also in the group
			r.claim.fail()
			return
		}
		if err != nil {
			sleep(ctx, retryPause)
		}
	}
}

// report logs when the first partition of the claim cannot be read, and when all can
// be read again.
func (r *reader) report(failed bool, err error) {
	log := r.q.cfg.Logger.With("topic", r.q.cfg.Topic, "partition", r.partition, "offset", r.offset)
	switch {
	case failed && r.claim.failing.Add(1) == 1:
		log.Warn("cannot read, will go on trying", "err", err)
	case !failed && r.claim.failing.Add(-1) == 0:
		log.Info("reading again")
	}
}

// poll hands over what one request brings.
func (r *reader) poll(ctx context.Context) error {
	records, err := r.q.fetch(ctx, r.partition, r.offset)
	if err != nil {
		return err
	}
	return r.deliver(ctx, records)
}

// fetch asks once for the messages of a partition from an offset on.
func (q *Queue) fetch(ctx context.Context, partition int, offset int64) (kafka.RecordReader, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	res, err := q.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: q.cfg.Topic, Partition: partition, Offset: offset,
		MinBytes: 1, MaxBytes: pollBytes, MaxWait: pollWait,
	})
	if err != nil {
		return nil, err
	}
	return res.Records, res.Error
}

func (r *reader) deliver(ctx context.Context, records kafka.RecordReader) error {
	return each(records, r.offset, func(offset int64, payload []byte) error {
		m := message{partition: r.partition, offset: offset, payload: payload}
		m.keys, m.err = r.q.decode(payload) // here, so that partitions are decoded side by side
		select {
		case r.claim.arrived <- m:
			r.offset, r.delivered = m.offset+1, true
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// each calls do for each message from an offset on: a batch comes whole, even if only
// its end was asked for.
func each(records kafka.RecordReader, from int64, do func(offset int64, payload []byte) error) error {
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record: %w", err)
		}
		if rec.Offset < from {
			continue
		}
		payload, err := kafka.ReadAll(rec.Value)
		if err != nil {
			return fmt.Errorf("read record %d: %w", rec.Offset, err)
		}
		if err := do(rec.Offset, payload); err != nil {
			return err
		}
	}
}

// restart goes on with the first message that there is, after retention or the loss of a
// leader took the one that was to come, or somebody moved the group's offset. What went is
// still marked dirty. An offset beyond the end is of another log, and so are those of
// what was delivered: that ends the generation.
func (r *reader) restart(ctx context.Context) error {
	first, err := r.q.offset(ctx, kafka.FirstOffsetOf(r.partition))
	if err != nil {
		return err
	}
	gone := max(first-max(r.offset, 0), 0)
	r.q.skipped.Add(gone)
	r.q.cfg.Logger.Warn("the next message is not there, going on with the first", "topic", r.q.cfg.Topic, "partition", r.partition,
		"offset", r.offset, "first", first, "skipped", gone)
	if gone == 0 && r.delivered {
		return errOver
	}
	r.offset = first
	r.claim.mu.Lock()
	defer r.claim.mu.Unlock()
	if gone == 0 {
		r.claim.committed[r.partition] = kafka.FirstOffset
	}
	return nil
}

// offset returns the offset that is asked for, below zero where no message is as late.
func (q *Queue) offset(ctx context.Context, r kafka.OffsetRequest) (int64, error) {
	res, err := q.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{q.cfg.Topic: {r}}})
	if err != nil {
		return 0, err
	}
	for _, p := range res.Topics[q.cfg.Topic] {
		switch r.Timestamp {
		case kafka.FirstOffset:
			return p.FirstOffset, p.Error
		case kafka.LastOffset:
			return p.LastOffset, p.Error
		}
		for o := range p.Offsets { // the one
			return o, p.Error
		}
	}
	return 0, protocol.ErrNoPartition
}
