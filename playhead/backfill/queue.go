package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/imports"
)

// FromQueue is a source of the records that a queue carried in a time: those of reports that asked for it
// (ack=queued). Most messages only name keys.
type FromQueue struct {
	Queue interface {
		Between(ctx context.Context, buckets []history.Bucket, since, until time.Time, use func(context.Context, []history.Announcement) error) error
	}
	Since, Until time.Time // Until is zero for the current end
}

// Identity implements [Source].
func (*FromQueue) Identity() (string, error) {
	return "", errors.New("a queue is read in no fixed order: copy it without a checkpoint")
}

// Items implements [Source], without marks.
func (s *FromQueue) Items(ctx context.Context, _ string) iter.Seq2[Item, error] {
	return pushed(ctx, "the queue", func(ctx context.Context, push func(Item) error) error {
		return s.Queue.Between(ctx, history.AllBuckets(), s.Since, s.Until, func(_ context.Context, some []history.Announcement) error {
			for _, a := range some {
				if err := push(announced(a)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// pushed yields the items that read pushes.
func pushed(ctx context.Context, what string, read func(ctx context.Context, push func(Item) error) error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		items, ended := make(chan Item), make(chan error, 1)
		go func() {
			defer close(items)
			ended <- read(ctx, func(i Item) error {
				select {
				case items <- i:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}()
		for i := range items {
			if !yield(i, nil) {
				return
			}
		}
		if err := <-ended; err != nil {
			yield(Item{}, fmt.Errorf("read %s: %w", what, err))
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

// FromDead is a source of dead letters: what could not be archived. They stay.
type FromDead struct {
	// All passes all letters to use.
	All func(ctx context.Context, use func(history.Dead) error) error
}

// Identity implements [Source].
func (*FromDead) Identity() (string, error) {
	return "", errors.New("dead letters have no place to go on from: copy them without a checkpoint")
}

// Items implements [Source], without marks.
func (s *FromDead) Items(ctx context.Context, _ string) iter.Seq2[Item, error] {
	return pushed(ctx, "the dead letters", func(ctx context.Context, push func(Item) error) error {
		return s.All(ctx, func(d history.Dead) error {
			for _, i := range letter(d) {
				if err := push(i); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// letter returns the items of a letter. One that still cannot be decoded is rejected.
func letter(d history.Dead) (items []Item) {
	i := Item{Key: d.Key, Record: d.Record, Place: imports.Place{File: "dead letter of " + d.Key.String()}}
	switch {
	case len(d.Payload) > 0:
		i.Place.File = "dead letter of " + d.Origin
		all, err := wire.Batch(d.Payload)
		if err != nil {
			i.Outcome, i.Reason = Rejected, err.Error()
			return []Item{i}
		}
		for _, a := range all {
			items = append(items, announced(a))
		}
		return items
	case len(d.Cell) > 0:
		r, err := wire.Record(d.Cell)
		if err != nil {
			i.Outcome, i.Reason = Rejected, err.Error()
		}
		i.Record = r
	case d.Key.IsUser():
		i.User = &history.User{Cleared: d.User.Cleared, Pause: d.User.Pause}
	case d.Record == nil:
		i.Outcome, i.Reason = Rejected, "the letter has no record: "+d.Reason
	}
	return []Item{i}
}
