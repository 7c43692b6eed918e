package job

import (
	"context"
	"fmt"
	"time"

	"github.com/playhead/playhead/history"
)

// errLife means that nothing may be archived: the cache may have restarted since it was compared with
// what this job has archived.
var errLife = fmt.Errorf("%w: the cache is not known to be the one that was compared", history.ErrUnavailable)

// sameLife fails with [errLife] unless the cache is still in the given life. It is asked after
// contents were loaded and before they are put: contents of a cache that came back older, and
// those made from them since, must not overwrite what the archive has. It is also asked before partial records are
// completed in the cache. A clear has taken its part out of the archive, and an older cache may not know of that clear. A record
// that is completed then would count as whole without that part, in a cache that lacks the clear.
func (j *Job) sameLife(ctx context.Context, life string) error {
	if j.cfg.Life == nil {
		return nil
	}
	if name, err := j.askLife(ctx); err != nil || name != life {
		return errLife
	}
	return nil
}

func (j *Job) askLife(ctx context.Context) (name string, err error) {
	err = j.try(ctx, func(ctx context.Context) (err error) {
		name, err = j.cfg.Life(ctx)
		return err
	})
	return name, err
}

// takeOver reads the memos of the jobs before, once, and goes on from there. A cache in a life that none of them knew may be older
// than what they have archived.
func (j *Job) takeOver(ctx context.Context, life string) error {
	if j.tookOver() {
		return nil
	}
	var memos []string
	err := j.try(ctx, func(ctx context.Context) (err error) {
		memos, err = j.cfg.Reread.Memos(ctx)
		return err
	})
	if err != nil {
		return err
	}
	var since, began time.Time
	known := len(memos) == 0 // nothing was ever committed
	for _, text := range memos {
		m, ok := parseMemo(text)
		if !ok {
			continue
		}
		if m.since.After(since) {
			since = m.since
		}
		if m.life == hashOf(life) {
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
		j.life.beganAt(began)
	} else {
		j.life.doubt()
	}
	j.leaveMemo()
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

// leaveMemo has the next commits say what this job knows.
func (j *Job) leaveMemo() {
	life, _ := j.life.get()
	text := memo{j.waiting.since, hashOf(life), j.life.began()}.String()
	j.memo.Store(&text)
}
