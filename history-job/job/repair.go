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

// followEpoch asks the cache every now and then which lives its servers are in, and compares it
// after each restart with what was archived: it may have come back without its last writes,
// or as a replica that never had them, and nothing else would find what was clean by then.
// Until that is done nothing is archived. A comparison that fails is tried again at the next tick.
func (j *Job) followEpoch(ctx context.Context) error {
	t := time.NewTicker(j.cfg.EpochEvery)
	defer t.Stop()
	first, done := true, false
	var compared time.Time
	for {
		marks := j.marks.Load() // before the name: marks of the next life say nothing
		name, err := j.askEpoch(ctx)
		if last, _ := j.epoch.get(); err == nil && name != last {
			j.epoch.set(name, false)
			done = false
		}
		switch {
		case err != nil:
		case !done:
			if done = j.compare(ctx, name) == nil; done { // what services have written again has a new mark
				compared = time.Now()
				j.waiting.suspect(compared)
				if !first {
					j.metrics.repairs.Inc()
				}
				first = false
				j.leaveMetadata()
			}
		default:
			// Only what was archived when the epoch was last seen unchanged counts.
			if marks != nil && marks.at.After(compared) {
				j.waiting.look(marks, j.cfg.SweepAge)
			}
			_ = j.catchUp(ctx, name) // what fails comes again
			j.leaveMetadata()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// compare brings back to a cache what it has lost: first what this job has archived, and
// then what the queue has of it.
func (j *Job) compare(ctx context.Context, name string) error {
	if err := j.repair(ctx, name); err != nil {
		return err
	}
	return j.reread(ctx, name)
}

// archivedBefore returns a time before which everything that was acknowledged is archived,
// as far as this job knows. Twice a sweep age leaves room for clocks and for what services hold.
func (j *Job) archivedBefore() time.Time {
	return j.waiting.since.Add(-2 * j.cfg.SweepAge)
}

// maxPendingRestores bounds the contents of the queue that could not be given back. Then the queue waits.
const maxPendingRestores = 10_000

// reread gives back to the cache what the queue has of it. A content that was acknowledged as
// queued is in the queue also when a job has read and committed it, because the cache had
// it then.
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
		if err != nil && !errors.Is(err, errEpoch) { // while the queue is away the cache may begin another epoch
			err = errors.Join(err, j.sameEpoch(ctx, name))
		}
		if errors.Is(err, errEpoch) { // only the caller can compare again
			changed, err = err, nil
		}
		return err
	})
	return cmp.Or(err, changed)
}

// readAgain returns the contents of the queue for which a store does not answer.
func (j *Job) readAgain(ctx context.Context, since time.Time) (rest []history.Announcement, err error) {
	err = j.cfg.Reread.Reread(ctx, history.AllBuckets(), since, func(ctx context.Context, all []history.Announcement) error {
		left, err := j.giveQueued(ctx, slices.DeleteFunc(all, func(a history.Announcement) bool { return a.Record == nil }))
		rest = append(rest, left...)
		return err
	})
	return rest, err
}

// giveQueued gives back what the cache has lost of what was queued.
func (j *Job) giveQueued(ctx context.Context, contents []history.Announcement) (left []history.Announcement, err error) {
	keys, left, err := j.restoreLost(context.WithValue(ctx, sweeping{}, true), contents)
	if err != nil {
		return contents, err
	}
	return left, j.archiveOnce(ctx, keys)
}

// repair compares with the archive what the cache holds of the keys that were
// archived last, and gives back to it what it lacks. Nothing is archived meanwhile:
// records read before the restart have been put by then, and are among those keys. A round
// that waits for its turn meanwhile finds the epoch compared.
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
		j.cfg.Logger.Info("cache was restarted and is compared with the archive", "compared", len(all), "restored", restored)
	}
	j.epoch.set(epoch, true)
	return nil
}

// catchUp compares what could not be compared when the cache began this epoch. Other jobs cannot either, so that
// the time of doubt lasts until it is done.
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

// repairPart keeps as unverified what a store does not answer for: it is compared later, and its users' records are not archived
// until then.
func (j *Job) repairPart(ctx context.Context, epoch string, part []archived) (restored int, err error) {
	given, left, err := j.giveBack(context.WithValue(ctx, sweeping{}, true), part)
	if err != nil {
		return 0, err
	}
	j.unverified.replace(part, left)
	if len(given) == 0 {
		return 0, nil
	}
	return len(given), j.archiveBatch(ctx, epoch, given) // clean at once
}

// giveBack returns the keys that it has given back to the cache, and the contents for which a store does not answer.
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

// suspects returns the keys of which the cache does not hold what was archived, and those for which it does not
// answer. One that lies below the user's low watermark was trimmed and is not missed.
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

// repairUser gives the clear marks and the pause back that the cache lacks of a user. It reports whether both stores
// have answered.
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
	if e.Err != nil || !e.User.Warm { // the warm-up brings it
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
		return err // also where the user has switched meanwhile: it is looked at again
	}
	j.metrics.restored.Inc()
	return nil
}

// giving is contents on their way back to the cache.
type giving struct {
	contents map[history.Key]*history.Record
	given    []history.Key
	left     []history.Announcement // for which a store does not answer
}

func (g *giving) leave(k history.Key) {
	g.left = append(g.left, history.Announcement{Key: k, Record: g.contents[k]})
	delete(g.contents, k)
}

// restoreLost deals with the keys of a delivery that promote their content: the cache
// had it when it was announced, and someone else announces the key. Only what the cache
// has lost is given back to it. It returns that and the other keys, and the contents for which a store does
// not answer.
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

// writeBackLost writes what the cache lacks of the contents. It removes from contents what is dealt with; a write
// that lost against another one stays.
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

// lostWrites returns a write for every content that says more than what the cache holds,
// and removes the others from contents.
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
		w.Record.Partial = true // the content is from before the cache lost it: the archive may have more
		writes = append(writes, w)
	}
	return writes, nil
}

// laterCell reports whether another content has a later cell time than what the cache holds, which
// includes it: after a cache came back older, a chain of contents began anew before the end
// of the one that the archive has. Put as it is, what the cache holds would lose.
func laterCell(other, held *history.Record) bool {
	if held == nil || other == nil {
		return false
	}
	return other.CellTime > held.CellTime || other.CellTime == held.CellTime && !history.Same(other, held)
}

// getDropped returns what the archive holds of the keys that the cache has not, but may have
// dropped, or has only in part: a tombstone, perhaps, of what is to be given back. It notes in the entries of the others why
// there is no answer.
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
			m.Partial = true // another one may be archived until this is written
			dropped[k] = &m
		} else if errors.Is(old[i].Err, history.ErrUnavailable) {
			entries[at[i]].Err = old[i].Err
		}
	}
	return dropped, nil
}
