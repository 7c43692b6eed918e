package compaction

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

const (
	tidyAfter     = time.Minute // more removals often follow
	deletedLately = time.Hour   // an object deleted and replayed within it may have been archived before
)

// Archived notes the users of put contents who may need a compaction or a summary. Call it before mark clean, in
// case this process is killed.
func (w *Worker) Archived(ctx context.Context, keys []history.Key, entries []history.Entry) {
	var removed []string
	now := time.Now()
	due, lately := now.Add(tidyAfter).UnixMilli(), now.Add(-deletedLately).UnixMilli()
	for i, k := range keys {
		r, cleared := entries[i].Record, entries[i].User.ClearedAt(k.Object.Type)
		left := r != nil && r.Version.Time() > cleared // like [history.Record.After], without its copy
		switch {
		case k.IsUser() || left && (r.Deleted() || max(r.RemovedAt, cleared) > lately):
			removed = append(removed, k.UID)
		case w.cfg.Summarizer != nil && left && r.Version.Time() < w.cfg.Rules.SummaryBefore(now.UnixMilli()):
			w.due.old.Add(k.UID, due) // it may expire before the next turn
		}
		if w.cfg.Compactor != nil && run.N(ctx, w.cfg.CountOneIn) == 0 && w.isLong(k.UID) {
			w.note(ctx, k.UID, now.UnixMilli())
		}
	}
	if w.cfg.Compactor != nil || w.cfg.Summarizer != nil {
		w.noteRemoved(ctx, removed, now)
	}
}

// noteRemoved notes users with deletes or clears, so their segments and summaries are rewritten soon. The daily pass
// handles lost notes.
func (w *Worker) noteRemoved(ctx context.Context, uids []string, now time.Time) {
	for _, uid := range uids {
		w.due.removed.Add(uid, now.Add(tidyAfter).UnixMilli())
	}
	if w.cfg.Notes != nil && len(uids) > 0 {
		_ = w.exchange(ctx, func(ctx context.Context) error { return w.cfg.Notes.NoteRemoved(ctx, uids, now.UnixMilli()) })
	}
}

// putsOfLong is the number of puts after which a user's live segment may be long. A check reads the segment once.
const putsOfLong = 1000

// isLong counts puts of a user, because readers never note a user who only writes. It reports whether the user may
// be long now.
func (w *Worker) isLong(uid string) bool {
	w.puts.mu.Lock()
	defer w.puts.mu.Unlock()
	n, _ := w.puts.of.Get(uid)
	n += w.cfg.CountOneIn
	w.puts.of.Put(uid, n%putsOfLong)
	return n >= putsOfLong
}

// note notes a user in the cache, where the note survives this process. If the cache does not answer, the worker
// keeps the note in memory.
func (w *Worker) note(ctx context.Context, uid string, due int64) {
	err := w.exchange(ctx, func(ctx context.Context) error { return w.cfg.Notes.Note(ctx, uid, due) })
	if err != nil && due != 0 && ctx.Err() == nil {
		w.due.compact.Add(uid, due)
	}
}
