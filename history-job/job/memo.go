package job

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

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

// memo is what a job leaves with its commits to the jobs that come after it: by then the cache with its marks may be lost, and all
// jobs dead. A memo never becomes false, so that the latest of all partitions counts.
type memo struct {
	since time.Time // all that was acknowledged before is archived
	life  uint64    // the cache's life, as a hash of its name
	began time.Time // when a job noticed that this life had taken the place of another one, zero for never
}

func (m memo) String() string {
	began := int64(0)
	if !m.began.IsZero() {
		began = m.began.UnixMilli()
	}
	return fmt.Sprintf("%d %d %d", m.since.UnixMilli(), began, m.life)
}

func parseMemo(text string) (m memo, ok bool) {
	var since, began int64
	if n, _ := fmt.Sscan(text, &since, &began, &m.life); n < 3 {
		return memo{}, false
	}
	if m.since = time.UnixMilli(since); began != 0 {
		m.began = time.UnixMilli(began)
	}
	return m, true
}

func hashOf(life string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(life)) // never fails
	return h.Sum64()
}
