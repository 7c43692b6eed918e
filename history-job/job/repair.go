package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// followEpoch polls the epochs of the cache servers. After each restart it compares the cache with the recently
// archived keys. The cache may have lost its last writes, and no mark remains for clean records.
//
// Until the comparison is done nothing is archived. A failed comparison is retried at the next tick.
func (j *Job) followEpoch(ctx context.Context) error {
	t := time.NewTicker(j.cfg.EpochEvery)
	defer t.Stop()
	first, done := true, false
	var compared time.Time
	for {
		marks := j.marks.Load() // before the name: marks of the next epoch prove nothing
		name, err := j.askEpoch(ctx)
		if last, _ := j.epoch.get(); err == nil && name != last {
			j.epoch.set(name, false)
			done = false
		}
		switch {
		case err != nil:
		case !done:
			if done = j.compare(ctx, name) == nil; done { // rewritten records have new marks
				compared = time.Now()
				j.waiting.suspect(compared)
				if !first {
					j.metrics.repairs.Inc()
				}
				first = false
				j.leaveMetadata()
			}
		default:
			// Marks count only if measured after the comparison, in the same epoch.
			if marks != nil && marks.at.After(compared) {
				j.waiting.look(marks, j.cfg.SweepAge)
			}
			_ = j.catchUp(ctx, name) // a failure is retried at the next tick
			j.leaveMetadata()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// compare restores what the cache lost: first the contents archived by this job, then those of the queue.
func (j *Job) compare(ctx context.Context, name string) error {
	if err := j.repair(ctx, name); err != nil {
		return err
	}
	return j.reread(ctx, name)
}

// archivedBefore returns a time before which every acknowledged change is archived. Two sweep ages allow for clock
// differences and the services' hold.
func (j *Job) archivedBefore() time.Time {
	return j.waiting.since.Add(-2 * j.cfg.SweepAge)
}

// maxPendingRestores limits queued contents that could not be restored. At the limit, consumption pauses.
const maxPendingRestores = 10_000

// reread restores lost contents from the queue. The queue still has every content acknowledged as queued, even if
// a job committed it because the cache had it then.
func (j *Job) reread(ctx context.Context, name string) error {
	if j.cfg.Reread == nil {
		return nil
	}
	var changed error
	var rest []history.Announcement
	read := false
	err := j.again(ctx, "reread", func(ctx context.Context) error {
		err := j.catchUp(ctx, name)
		if !errors.Is(err, errEpoch) {
			err = j.takeOver(ctx, name)
		}
		switch {
		case err != nil:
		case read:
			rest, err = j.giveQueued(ctx, rest)
		default:
			rest, err = j.readAgain(ctx, j.archivedBefore())
			read = err == nil && len(rest) <= maxPendingRestores
		}
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%w: for %d records of the queue", history.ErrUnavailable, len(rest))
		}
		if err != nil && !errors.Is(err, errEpoch) { // the cache may enter another epoch while the queue is unavailable
			err = errors.Join(err, j.sameEpoch(ctx, name))
		}
		if errors.Is(err, errEpoch) { // only the caller can compare again
			changed, err = err, nil
		}
		return err
	})
	return cmp.Or(err, changed)
}

// readAgain returns the queued contents that a store does not answer for.
func (j *Job) readAgain(ctx context.Context, since time.Time) (rest []history.Announcement, err error) {
	err = j.cfg.Reread.Reread(ctx, history.AllBuckets(), since, func(ctx context.Context, all []history.Announcement) error {
		left, err := j.giveQueued(ctx, slices.DeleteFunc(all, func(a history.Announcement) bool { return a.Record == nil }))
		rest = append(rest, left...)
		return err
	})
	return rest, err
}

// giveQueued restores the queued contents that the cache lost. It returns the unanswered ones.
func (j *Job) giveQueued(ctx context.Context, contents []history.Announcement) (left []history.Announcement, err error) {
	keys, left, err := j.restoreLost(context.WithValue(ctx, sweeping{}, true), contents)
	if err != nil {
		return contents, err
	}
	return left, j.archiveOnce(ctx, keys)
}

// repair compares the cache with the recently archived keys and restores what it lacks. It holds the archiving
// turn, and every record read before the restart is among those keys. A round that waits for its turn finds the
// epoch compared.
func (j *Job) repair(ctx context.Context, epoch string) error {
	select {
	case j.archiving <- struct{}{}:
		defer func() { <-j.archiving }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !run.Sleep(ctx, time.Until(time.UnixMilli(j.inFlightUntil.Load()))) {
		return ctx.Err()
	}
	restored := 0
	all := j.lastPut.contents()
	j.unverified.forget()
	for part := range slices.Chunk(all, j.cfg.Batch) {
		n, err := j.repairPart(ctx, epoch, part)
		if restored += n; err != nil {
			return err
		}
	}
	if len(all) > 0 {
		j.cfg.Logger.Info("cache restarted; comparing it with the archive", "compared", len(all), "restored", restored)
	}
	j.epoch.set(epoch, true)
	return nil
}

// catchUp compares the unverified contents. Other jobs may be blocked too, so the suspect time is extended until
// it succeeds.
func (j *Job) catchUp(ctx context.Context, epoch string) error {
	if len(j.unverified.contents()) > 0 {
		j.epoch.suspect()
	}
	for part := range slices.Chunk(j.unverified.contents(), j.cfg.Batch) {
		if err := j.sameEpoch(ctx, epoch); err != nil {
			return err
		}
		if _, err := j.repairPart(ctx, epoch, part); err != nil {
			return err
		}
	}
	return nil
}

// repairPart restores some contents. Unanswered ones stay unverified: they are compared later, and their users are
// not archived until then.
func (j *Job) repairPart(ctx context.Context, epoch string, part []archived) (restored int, err error) {
	given, left, err := j.giveBack(context.WithValue(ctx, sweeping{}, true), part)
	if err != nil {
		return 0, err
	}
	j.unverified.replace(part, left)
	if len(given) == 0 {
		return 0, nil
	}
	return len(given), j.archiveBatch(ctx, epoch, given) // marks them clean at once
}

// giveBack returns the keys restored to the cache and the contents that a store does not answer for.
func (j *Job) giveBack(ctx context.Context, part []archived) (given []history.Key, left []archived, err error) {
	suspects, unanswered, err := j.suspects(ctx, part)
	if err != nil {
		return nil, nil, err
	}
	var keys []history.Key
	for _, k := range suspects {
		if !k.IsUser() {
			keys = append(keys, k)
		} else if answered, err := j.repairUser(ctx, k); err != nil {
			return nil, nil, err
		} else if !answered {
			unanswered[k] = true
		}
	}
	if len(keys) > 0 {
		entries, err := j.getArchived(ctx, keys)
		if err != nil {
			return nil, nil, err
		}
		contents := make([]history.Announcement, 0, len(keys))
		for i, e := range entries {
			if errors.Is(e.Err, history.ErrUnavailable) {
				unanswered[keys[i]] = true
			} else if e.Record != nil {
				contents = append(contents, history.Announcement{Key: keys[i], Record: e.Record})
			}
		}
		var lost []history.Announcement
		if given, lost, err = j.restoreLost(ctx, contents); err != nil {
			return nil, nil, err
		}
		for _, a := range lost {
			unanswered[a.Key] = true
		}
	}
	return given, slices.DeleteFunc(slices.Clone(part), func(a archived) bool { return !unanswered[a.key] }), nil
}

// suspects returns the keys whose cached content differs from the archived one, and the unanswered keys. A missing
// record below the user's low watermark was trimmed and is no suspect.
func (j *Job) suspects(ctx context.Context, part []archived) (keys []history.Key, unanswered map[history.Key]bool, err error) {
	ask := make([]history.Key, len(part))
	for i, a := range part {
		ask[i] = a.key
	}
	unanswered = make(map[history.Key]bool)
	entries, err := j.loadUntil(ctx, ask, func(tries, failed int) bool { return enough(ctx, tries, failed, len(ask)) })
	for i, e := range entries {
		a := part[i]
		same := e.Record != nil && a.revision != 0 && history.SameContent(e.Record.Revision, a.revision)
		trimmed := e.Record == nil && e.User.Warm && a.version < e.User.LowWatermark
		if e.Err != nil {
			unanswered[a.key] = true
		} else if a.key.IsUser() || !same && !trimmed {
			keys = append(keys, a.key)
		}
	}
	return keys, unanswered, err
}

// repairUser restores a user's missing clear marks and pause. It reports whether both stores answered.
func (j *Job) repairUser(ctx context.Context, k history.Key) (answered bool, err error) {
	tries := 0
	err = j.retry(ctx, "restore", func(ctx context.Context) error {
		err := j.tryRepairUser(ctx, k)
		answered = err == nil
		if tries++; tries < maxTries && !errors.Is(err, history.ErrPermanent) {
			return err
		}
		return nil
	})
	return answered, err
}

func (j *Job) tryRepairUser(ctx context.Context, k history.Key) error {
	page, err := j.cfg.Archive.Page(ctx, k.UID, history.Query{})
	if err != nil {
		return err
	}
	e := j.cfg.Cache.Load(ctx, []history.Key{k})[0]
	if e.Err != nil || !e.User.Warm { // the warm-up restores it
		return e.Err
	}
	for _, typ := range slices.Sorted(maps.Keys(page.User.Cleared)) {
		until := page.User.Cleared[typ]
		if e.User.Cleared[typ] >= until {
			continue
		}
		if _, err := j.cfg.Cache.Clear(ctx, k.UID, history.Clear{Type: typ, Until: until}); err != nil {
			return err
		}
		j.metrics.restored.Inc()
	}
	if e.User.Pause.Newer(page.User.Pause) == e.User.Pause {
		return nil
	}
	if err := j.cfg.Cache.Pause(ctx, k.UID, e.User.Pause, page.User.Pause); err != nil {
		return err // also if the user switched meanwhile: retry
	}
	j.metrics.restored.Inc()
	return nil
}

// giving is a set of contents to restore.
type giving struct {
	contents map[history.Key]*history.Record
	given    []history.Key
	left     []history.Announcement // unanswered by a store
}

func (g *giving) leave(k history.Key) {
	g.left = append(g.left, history.Announcement{Key: k, Record: g.contents[k]})
	delete(g.contents, k)
}

// restoreLost handles announcements with a content. The cache had the content when it was announced, so only a
// lost one is written back. It returns the keys to archive, and the contents that a store does not answer for.
func (j *Job) restoreLost(ctx context.Context, keys []history.Announcement) (marked []history.Key, left []history.Announcement, err error) {
	g := giving{contents: make(map[history.Key]*history.Record)}
	marked = make([]history.Key, 0, len(keys))
	for _, d := range keys {
		if d.Record == nil {
			marked = append(marked, d.Key)
			continue
		}
		g.contents[d.Key] = history.Merge(g.contents[d.Key], d.Record)
	}
	for len(g.contents) > 0 {
		if err := j.writeBackLost(ctx, &g); err != nil {
			return nil, nil, err
		}
	}
	return append(marked, g.given...), g.left, nil
}

// writeBackLost writes the contents that the cache lacks and removes them from contents. A write that hits a
// conflict stays.
func (j *Job) writeBackLost(ctx context.Context, g *giving) error {
	writes, err := j.lostWrites(ctx, g)
	if err != nil || len(writes) == 0 {
		return err
	}
	tries, all, given := 0, len(writes), len(g.given)
	err = j.retry(ctx, "restore", func(ctx context.Context) error {
		var errs []error
		for i, out := range j.cfg.Cache.Apply(ctx, writes) {
			errs = append(errs, out.Err)
			if out.Status == history.Applied {
				g.given = append(g.given, writes[i].Key)
				delete(g.contents, writes[i].Key)
			}
		}
		writes = notWritten(writes, errs)
		if tries++; enough(ctx, tries, len(writes), all) {
			return nil
		}
		return errors.Join(errs...)
	})
	for _, w := range writes {
		g.leave(w.Key)
	}
	j.metrics.restored.Add(float64(len(g.given) - given))
	return err
}

func notWritten(writes []history.Write, errs []error) []history.Write {
	left := writes[:0:0]
	for i, err := range errs {
		if err != nil {
			left = append(left, writes[i])
		}
	}
	return left
}

// lostWrites returns a write for each content that adds to the cached record. It removes the others from contents.
func (j *Job) lostWrites(ctx context.Context, g *giving) ([]history.Write, error) {
	keys := make([]history.Key, 0, len(g.contents))
	for k := range g.contents {
		keys = append(keys, k)
	}
	entries, err := j.loadUntil(ctx, keys, func(tries, failed int) bool { return enough(ctx, tries, failed, len(keys)) })
	if err != nil {
		return nil, err
	}
	dropped, err := j.getDropped(ctx, keys, entries)
	if err != nil {
		return nil, err
	}
	var writes []history.Write
	for i, e := range entries {
		k := keys[i]
		if e.Err != nil {
			g.leave(k)
			continue
		}
		cut := func(r *history.Record) *history.Record { return e.User.Cut(r, k.Object.Type) }
		held := history.Merge(cut(e.Record), cut(dropped[k]))
		merged := history.Merge(held, cut(g.contents[k]))
		if merged == nil || history.Same(merged, held) && !laterCell(g.contents[k], e.Record) {
			delete(g.contents, k)
			continue
		}
		w := history.WriteOn(e.Record, k, merged.Successor(&e.User), &e.User)
		w.BeginsHold = true
		w.Record.Partial = true // it predates the loss: the archive may have more
		writes = append(writes, w)
	}
	return writes, nil
}

// laterCell reports whether other has a later cell time than the cached record that includes it. A cache that came
// back older restarts its cell times below the archive's. A put of the cached record as it is would lose.
func laterCell(other, held *history.Record) bool {
	if held == nil || other == nil {
		return false
	}
	return other.CellTime > held.CellTime || other.CellTime == held.CellTime && !history.Same(other, held)
}

// getDropped returns the archive's records of keys that the cache may have dropped or holds only in part, such as
// tombstones. It sets the error of unanswered entries.
func (j *Job) getDropped(ctx context.Context, keys []history.Key, entries []history.Entry) (map[history.Key]*history.Record, error) {
	var asked []history.Key
	var at []int
	for i, e := range entries {
		if e.Err == nil && (e.Record == nil && !e.User.Complete() || e.Record != nil && e.Record.Partial) {
			asked, at = append(asked, keys[i]), append(at, i)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	old, err := j.getArchived(ctx, asked)
	if err != nil {
		return nil, err
	}
	dropped := make(map[history.Key]*history.Record, len(asked))
	for i, k := range asked {
		if r := old[i].Record; r != nil {
			m := *r
			m.Partial = true // another content may be archived before the write
			dropped[k] = &m
		} else if errors.Is(old[i].Err, history.ErrUnavailable) {
			entries[at[i]].Err = old[i].Err
		}
	}
	return dropped, nil
}
