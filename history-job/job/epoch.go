package job

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// errEpoch means that nothing may be archived: the cache may have restarted since the last comparison.
var errEpoch = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// sameEpoch returns [errEpoch] unless the cache is still in the given epoch. Call it after a load and before the
// put. Contents of a cache that came back older must not overwrite the archive.
//
// Call it also before completing partial records in the cache. A clear removes records from the archive, and an
// older cache may lack that clear. A record completed there would count as whole without its cleared part.
func (j *Job) sameEpoch(ctx context.Context, epoch string) error {
	if j.cfg.Epoch == nil {
		return nil
	}
	if name, err := j.askEpoch(ctx); err != nil || name != epoch {
		return errEpoch
	}
	return nil
}

func (j *Job) askEpoch(ctx context.Context) (name string, err error) {
	err = j.try(ctx, func(ctx context.Context) (err error) {
		name, err = j.cfg.Epoch(ctx)
		return err
	})
	return name, err
}

// takeOver reads the commit metadata of earlier jobs, once. If none of them knew the current epoch, the cache may
// be older than the archive, so the epoch is suspect.
func (j *Job) takeOver(ctx context.Context, epoch string) error {
	if j.tookOver() {
		return nil
	}
	var commitMetadata []string
	err := j.try(ctx, func(ctx context.Context) (err error) {
		commitMetadata, err = j.cfg.Reread.CommitMetadata(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var since, began time.Time
	known := len(commitMetadata) == 0 // nothing was committed yet
	for _, text := range commitMetadata {
		m, ok := parseMetadata(text)
		if !ok {
			continue
		}
		if m.since.After(since) {
			since = m.since
		}
		if m.epoch == hashOf(epoch) {
			known = true
			if m.began.After(began) {
				began = m.began
			}
		}
	}
	if !since.IsZero() && since.Before(j.waiting.since) {
		j.waiting.since = since
	}
	if known {
		j.epoch.beganAt(began)
	} else {
		j.epoch.suspect()
	}
	j.leaveMetadata()
	close(j.begun)
	return nil
}

func (j *Job) tookOver() bool {
	select {
	case <-j.begun:
		return true
	default:
		return false
	}
}

// leaveMetadata sets the metadata of the next commits.
func (j *Job) leaveMetadata() {
	epoch, _ := j.epoch.get()
	text := commitMetadata{j.waiting.since, hashOf(epoch), j.epoch.began()}.String()
	j.commitMetadata.Store(&text)
}
