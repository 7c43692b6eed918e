package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
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
			r.restart()
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
	pctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	res, err := r.q.client.Fetch(pctx, &kafka.FetchRequest{
		Topic: r.q.cfg.Topic, Partition: r.partition, Offset: r.offset,
		MinBytes: 1, MaxBytes: pollBytes, MaxWait: pollWait,
	})
	if err != nil {
		return err
	}
	if res.Error != nil {
		return res.Error
	}
	return r.deliver(ctx, res.Records)
}

func (r *reader) deliver(ctx context.Context, records kafka.RecordReader) error {
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record: %w", err)
		}
		if rec.Offset < r.offset { // a batch comes whole, even if only its end was asked for
			continue
		}
		if err := r.handOver(ctx, rec); err != nil {
			return err
		}
	}
}

// handOver decodes here, so that partitions are decoded side by side.
func (r *reader) handOver(ctx context.Context, rec *kafka.Record) error {
	payload, err := kafka.ReadAll(rec.Value)
	if err != nil {
		return fmt.Errorf("read record %d: %w", rec.Offset, err)
	}
	m := message{partition: r.partition, offset: rec.Offset, payload: payload}
	m.keys, m.err = r.q.decode(payload)
	select {
	case r.claim.arrived <- m:
		r.offset = m.offset + 1
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restart goes on with the first message that there is, after retention or the loss
// of a leader took the one that was to come. What went is still marked dirty.
func (r *reader) restart() {
	r.offset = kafka.FirstOffset
	r.claim.mu.Lock()
	defer r.claim.mu.Unlock()
	r.claim.committed[r.partition] = kafka.FirstOffset
}
