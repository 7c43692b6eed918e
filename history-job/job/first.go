package job

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// owedAge is how long first sightings are left to the services that noted them, which
// give up sooner.
const owedAge = 30 * time.Second

// announce tells who was seen for the first time on a day, where the service that noted
// it did not: it died, or could not.
func (j *Job) announce(ctx context.Context, buckets []history.Bucket) error {
	if j.cfg.Days == nil {
		return nil
	}
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	for {
		if err := j.announcePending(ctx, buckets); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (j *Job) announcePending(ctx context.Context, buckets []history.Bucket) error {
	for {
		var owed []history.First
		err := j.retry(ctx, "announce", func(ctx context.Context) (err error) {
			if owed, err = j.cfg.Days.PendingFirsts(ctx, buckets, owedAge, sweepLimit); err != nil || len(owed) == 0 {
				return err
			}
			if err := j.cfg.Announcer.Announce(ctx, owed); err != nil {
				return err
			}
			return j.cfg.Days.Announced(ctx, owed)
		})
		if err != nil {
			return err
		}
		if j.metrics.announced.Add(float64(len(owed))); len(owed) < sweepLimit {
			return nil
		}
	}
}
