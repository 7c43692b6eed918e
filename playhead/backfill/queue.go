package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
)

// FromQueue is a source of the records that a queue carried since a time: those of reports that asked for it
// (ack=queued). Most messages only name keys.
type FromQueue struct {
	Queue interface {
		Reread(ctx context.Context, buckets []history.Bucket, since time.Time, use func(context.Context, []history.Announcement) error) error
	}
	Since time.Time
}

// Identity implements [Source].
func (*FromQueue) Identity() (string, error) {
	return "", errors.New("a queue is read in no fixed order: copy it without a checkpoint")
}

// Items implements [Source], without marks.
func (s *FromQueue) Items(ctx context.Context, _ string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		batches, ended := make(chan []history.Announcement), make(chan error, 1)
		go func() {
			defer close(batches)
			ended <- s.Queue.Reread(ctx, history.AllBuckets(), s.Since, func(ctx context.Context, some []history.Announcement) error {
				select {
				case batches <- some:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		for batch := range batches {
			for _, a := range batch {
				if !yield(announced(a), nil) {
					return
				}
			}
		}
		if err := <-ended; err != nil {
			yield(Item{}, fmt.Errorf("read the queue: %w", err))
		}
	}
}

func announced(a history.Announcement) Item {
	i := Item{Key: a.Key, Record: a.Record, Place: imports.Place{File: a.Key.String()}}
	if a.Record == nil {
		i.Outcome, i.Reason = Skipped, "the message names the key only: the cache has the record"
	}
	return i
}
