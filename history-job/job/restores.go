package job

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/playhead/playhead/history"
)

// pendingRestores are queued contents that could not be restored to the cache, because a store does not answer.
// Other messages are handled meanwhile but not committed, so the next owner reads them again.
type pendingRestores struct {
	assignment     history.Assignment
	turn           chan struct{} // held during a change or a commit
	contents       []history.Announcement
	since          map[history.Key]time.Time // first failed restore per content
	logged         time.Time                 // last warning
	fetched        history.Delivery          // the last delivery
	pending        bool                      // fetched is uncommitted
	commitMetadata *atomic.Pointer[string]   // for each commit
}

// pendingFor limits how long a content stays pending: a damaged shard never answers. It then becomes a dead
// letter, well before the queue's retention ends.
const pendingFor = 24 * time.Hour

func newPendingRestores(assignment history.Assignment, commitMetadata *atomic.Pointer[string]) *pendingRestores {
	return &pendingRestores{assignment: assignment, commitMetadata: commitMetadata, turn: make(chan struct{}, 1), since: make(map[history.Key]time.Time)}
}

func (u *pendingRestores) full() bool {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	return len(u.contents) >= maxPendingRestores
}

// add takes a handled delivery with its unrestored contents. It commits unless a restore is pending.
func (u *pendingRestores) add(ctx context.Context, d history.Delivery, left []history.Announcement) error {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	u.contents, u.fetched, u.pending = append(u.contents, left...), d, true
	for _, a := range left {
		if _, again := u.since[a.Key]; !again {
			u.since[a.Key] = time.Now()
		}
	}
	return u.commit(ctx)
}

func (u *pendingRestores) commit(ctx context.Context) error {
	if len(u.contents) > 0 || !u.pending {
		return nil
	}
	if m := u.commitMetadata.Load(); m != nil {
		u.fetched.CommitMetadata = *m
	}
	u.pending = false
	return u.assignment.Commit(ctx, u.fetched)
}

func (u *pendingRestores) all() []history.Announcement {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	return u.contents
}

// replace replaces the first n contents by left.
func (u *pendingRestores) replace(ctx context.Context, n int, left []history.Announcement) error {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	u.contents = append(left, u.contents[n:]...)
	still := make(map[history.Key]time.Time, len(u.contents))
	for _, a := range u.contents {
		still[a.Key] = u.since[a.Key]
	}
	u.since = still
	return u.commit(ctx)
}

// overdue splits contents into those pending for too long and the others. It also returns the oldest key.
func (u *pendingRestores) overdue(left []history.Announcement) (late, others []history.Announcement, oldest history.Key) {
	u.turn <- struct{}{}
	defer func() { <-u.turn }()
	for _, a := range left {
		if since := u.since[a.Key]; time.Since(since) > pendingFor {
			late = append(late, a)
		} else {
			others = append(others, a)
		}
		if oldest == (history.Key{}) || u.since[a.Key].Before(u.since[oldest]) {
			oldest = a.Key
		}
	}
	return late, others, oldest
}

// writeOff logs the pending restores and moves the overdue ones to the dead letters. It returns the others.
func (j *Job) writeOff(ctx context.Context, u *pendingRestores, left []history.Announcement) ([]history.Announcement, error) {
	late, others, oldest := u.overdue(left)
	if len(left) > 0 && time.Since(u.logged) >= time.Minute {
		u.logged = time.Now()
		j.cfg.Logger.Warn("queued records not restored to the cache: store unavailable; commits wait",
			"contents", len(left), "oldest", oldest.String())
	}
	letters := make([]history.Dead, len(late))
	for i, a := range late {
		letters[i] = history.Dead{Key: a.Key, Record: a.Record, Origin: "queue", Reason: "no store has answered for it in " + pendingFor.String()}
	}
	if len(letters) == 0 {
		return others, nil
	}
	kept, err := j.keepDead(ctx, letters)
	if err != nil || !kept {
		return left, err
	}
	j.metrics.refused.Add(float64(len(late)))
	return others, nil
}

// restore retries the pending restores.
func (j *Job) restore(ctx context.Context, u *pendingRestores) error {
	t := time.NewTicker(longestPause)
	defer t.Stop()
	defer j.metrics.waitForStore.Set(0)
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		contents := u.all()
		if len(contents) == 0 {
			continue
		}
		keys, left, err := j.restoreLost(context.WithValue(ctx, sweeping{}, true), contents)
		if err != nil {
			return err
		}
		if err := j.archive(ctx, keys); err != nil {
			return err
		}
		if left, err = j.writeOff(ctx, u, left); err != nil {
			return err
		}
		j.metrics.waitForStore.Set(float64(len(left)))
		if err := u.replace(ctx, len(contents), left); err != nil {
			return err
		}
	}
}
