package job

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// errEpoch means that nothing may be archived: the cache may have restarted since it was compared with
// what this job has archived.
var errEpoch = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// sameEpoch fails with [errEpoch] unless the cache is still in the given life. It is asked after
// contents were loaded and before they are put: contents of a cache that came back older, and
// those made from them since, must not overwrite what the archive has. It is also asked before partial records are
// completed in the cache. A clear has taken its part out of the archive, and an older cache may not know of that clear. A record
// that is completed then would count as whole without that part, in a cache that lacks the clear.
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

// takeOver reads the commit metadata of the jobs before, once, and goes on from there. A cache in an epoch that none of them knew may be older
// than what they have archived.
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
	known := len(commitMetadata) == 0 // nothing was ever committed
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

// leaveMetadata has the next commits say what this job knows.
func (j *Job) leaveMetadata() {
	epoch, _ := j.epoch.get()
	text := commitMetadata{j.waiting.since, hashOf(epoch), j.epoch.began()}.String()
	j.commitMetadata.Store(&text)
}
