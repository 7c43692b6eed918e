package job

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// poison buries messages that cannot be decoded. Others flow.
func (j *Job) poison(ctx context.Context, ps []history.Poison) error {
	letters := make([]history.Dead, len(ps))
	for i, p := range ps {
		j.metrics.poison.Inc()
		j.cfg.Logger.Error("message cannot be decoded and is passed over",
			"partition", p.Partition, "offset", p.Offset, "bytes", len(p.Payload), "error", p.Err)
		letters[i] = history.Dead{
			Payload: p.Payload, Origin: fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset), Reason: p.Err.Error(),
		}
	}
	return j.addDead(ctx, letters)
}

// refused tells of a key that can never be archived as it is, and returns the letter
// to add.
func (j *Job) refused(k history.Key, r *history.Record, err error) history.Dead {
	j.metrics.refused.Inc()
	j.cfg.Logger.Error("archive refuses a key for good", "key", k.String(), "error", err)
	return history.Dead{Key: k, Record: r, Origin: "archive", Reason: err.Error()}
}

// addDead keeps letters where somebody can drive them again. It comes before the marks
// are settled and the messages committed: what is refused is never lost.
func (j *Job) addDead(ctx context.Context, letters []history.Dead) error {
	if j.cfg.Dead == nil || len(letters) == 0 {
		return nil
	}
	for i := range letters {
		letters[i].At = time.Now().UnixMilli()
	}
	return j.retry(ctx, "dead_letter", func(ctx context.Context) error { return j.cfg.Dead.Add(ctx, letters) })
}
