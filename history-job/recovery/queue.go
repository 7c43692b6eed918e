package recovery

import (
	"context"
	"maps"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/internal/run"
)

// Consume implements [history.Consumer] over the queue. Deliveries have keys only: their contents were restored if
// the cache had lost them. Commits wait for contents that could not be restored, so the next owner reads them again.
func (r *Recovery) Consume(ctx context.Context, handle func(context.Context, history.Assignment) error) error {
	return r.cfg.Consumer.Consume(ctx, func(ctx context.Context, as history.Assignment) error {
		r.pending = &pending{turn: make(chan struct{}, 1), contents: make(map[history.Key]lost)}
		return handle(ctx, &assignment{as, r})
	})
}

// assignment restores contents before it delivers their keys.
type assignment struct {
	history.Assignment
	recovery *Recovery
}

// fullPause is the interval between looks at pending contents that are too many.
const fullPause = 200 * time.Millisecond

// Fetch implements [history.Assignment].
func (a *assignment) Fetch(ctx context.Context) (history.Delivery, error) {
	r := a.recovery
	for r.pending.full() {
		if !run.Sleep(ctx, fullPause) {
			return history.Delivery{}, ctx.Err()
		}
	}
	if err := r.cfg.Machine.consumes(ctx); err != nil {
		return history.Delivery{}, err
	}
	d, err := a.Assignment.Fetch(ctx)
	if err != nil {
		return d, err
	}
	keys, left, err := r.restore(ctx, d.Keys)
	if err != nil {
		return d, err
	}
	r.pending.add(left)
	d.Keys = make([]history.Announcement, len(keys))
	for i, k := range keys {
		d.Keys[i].Key = k
	}
	return d, nil
}

// Commit implements [history.Assignment].
func (a *assignment) Commit(ctx context.Context, d history.Delivery) error {
	return a.recovery.pending.commit(ctx, func(ctx context.Context) error {
		d.CommitMetadata = a.recovery.cfg.Machine.Metadata()
		return a.Assignment.Commit(ctx, d)
	})
}

// pending are the contents of a generation that could not be restored, because a store does not answer.
type pending struct {
	turn     chan struct{} // held during a change or a commit
	contents map[history.Key]lost
	held     func(context.Context) error // the last commit, while it waits
	logged   time.Time                   // last warning
}

// lost is a content since its first failed restore.
type lost struct {
	record *history.Record
	since  time.Time
}

// pendingFor limits how long a content stays pending: a damaged shard never answers. It then becomes a dead
// letter, well before the queue's retention ends.
const pendingFor = 24 * time.Hour

func (p *pending) lock() (unlock func()) {
	p.turn <- struct{}{}
	return func() { <-p.turn }
}

func (p *pending) full() bool {
	defer p.lock()()
	return len(p.contents) >= maxPending
}

func (p *pending) add(contents []history.Announcement) {
	defer p.lock()()
	for _, a := range contents {
		l := lost{history.Merge(p.contents[a.Key].record, a.Record), p.contents[a.Key].since}
		if l.since.IsZero() {
			l.since = time.Now()
		}
		p.contents[a.Key] = l
	}
}

// all returns a copy of the contents.
func (p *pending) all() map[history.Key]lost {
	defer p.lock()()
	return maps.Clone(p.contents)
}

// remove removes contents, unless others of the same key were added meanwhile.
func (p *pending) remove(contents map[history.Key]lost) {
	defer p.lock()()
	maps.DeleteFunc(p.contents, func(k history.Key, l lost) bool { return contents[k].record == l.record })
}

// commit commits now, or later if contents are pending. Without a function it makes up for a held commit.
func (p *pending) commit(ctx context.Context, commit func(context.Context) error) error {
	defer p.lock()()
	if commit == nil {
		commit = p.held
	}
	if p.held = commit; commit == nil || len(p.contents) > 0 {
		return nil
	}
	p.held = nil
	return commit(ctx)
}

// restoreEvery is the interval between tries to restore the pending contents.
const restoreEvery = 5 * time.Second

// Restore tries again to restore the pending contents of a generation.
func (r *Recovery) Restore(ctx context.Context, _ history.Assignment) error {
	p := r.pending
	defer r.metrics.pending.Set(0)
	return run.Every(ctx, restoreEvery, func(ctx context.Context) error {
		asked := p.all()
		if len(asked) == 0 {
			return nil
		}
		contents := make([]history.Announcement, 0, len(asked))
		for k, l := range asked {
			contents = append(contents, history.Announcement{Key: k, Record: l.record})
		}
		keys, left, err := r.restore(archive.Brief(ctx), contents)
		if err != nil {
			return err
		}
		if err := r.cfg.Archiver.Archive(ctx, keys); err != nil {
			return err
		}
		for _, a := range left {
			delete(asked, a.Key)
		}
		p.remove(asked)
		if err := r.writeOff(ctx, p); err != nil {
			return err
		}
		return p.commit(ctx, nil)
	})
}

// writeOff logs the pending contents and moves the overdue ones to the dead letters.
func (r *Recovery) writeOff(ctx context.Context, p *pending) error {
	var letters []history.Dead
	contents, late := p.all(), make(map[history.Key]lost)
	var oldest history.Key
	for k, l := range contents {
		if oldest == (history.Key{}) || l.since.Before(contents[oldest].since) {
			oldest = k
		}
		if time.Since(l.since) > pendingFor {
			late[k] = l
			letters = append(letters, history.Dead{Key: k, Record: l.record, Origin: "queue", Reason: "no store has answered for it in " + pendingFor.String()})
		}
	}
	if len(contents) > 0 && time.Since(p.logged) >= time.Minute {
		p.logged = time.Now()
		r.stores.Logger.Warn("queued records not restored to the cache: store unavailable; commits wait",
			"contents", len(contents), "oldest", oldest.String())
	}
	if kept, err := r.cfg.Archiver.KeepDead(ctx, letters); err != nil {
		return err
	} else if kept {
		r.cfg.Archiver.CountRefused(len(late))
		p.remove(late)
	}
	r.metrics.pending.Set(float64(len(p.all())))
	return nil
}
