package pebble

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// Compact moves what is old of a user into segments, a bounded number of records, if the live segment has
// more than [Config.CompactAbove], and removes from the segments what was deleted, cleared, or has expired.
// It returns how many records have left the live segment, and fails with [history.ErrConflict] when the
// user was cleared or paused meanwhile. Readers see no difference, also when it ends in between: of a
// record that is in both forms [segment.Resolve] says what it is. It is not synced: what a crash takes
// is done again.
func (a *Archive) Compact(ctx context.Context, uid string) (compacted int, err error) {
	if err := a.db.enterWriting(ctx); err != nil {
		return 0, err
	}
	defer a.db.leave()
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	oldest := a.oldestOf(uid)
	if a.db.summaryTTL > 0 { // what has expired goes
		if err := a.summarize(uid, false); err != nil {
			return 0, fmt.Errorf("compact %s: %w", uid, err)
		}
	}
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	r.oldest = oldest
	if err := r.read(); err != nil {
		return 0, fmt.Errorf("compact %s: %w", uid, err)
	}
	if r.user.Segments == 0 && len(r.leaving) == 0 {
		return 0, nil
	}
	if err := r.write(); err != nil {
		return 0, fmt.Errorf("compact %s: %w", uid, err)
	}
	return r.drop(ctx)
}

// compact is one run over a user.
type compact struct {
	*Archive
	uid      string
	snapshot *pebble.Snapshot
	user     history.User
	cutTime  int64 // of the user before
	oldest   int64
	more     bool // is left for the next run

	items   []history.Item
	staying []history.Item // of objects that were deleted
	leaving []string       // texts of the objects whose records leave the live segment
}

// beginCompact has changes of the user noted from the moment of the snapshot on.
func (a *Archive) beginCompact(uid string) *compact {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.db.compacting = compacting{uid: uid, changed: make(map[string]bool)}
	return &compact{Archive: a, uid: uid, snapshot: a.db.pebble.NewSnapshot(), oldest: a.oldestOf(uid)}
}

func (a *Archive) endCompact(r *compact) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.db.compacting = compacting{}
	_ = r.snapshot.Close() // it was only read
}

// read finds what leaves the live segment.
func (r *compact) read() error {
	live, err := r.live()
	if err != nil {
		return err
	}
	slices.SortFunc(live, func(a, b liveCell) int { return cmp.Compare(b.version, a.version) })
	keep := r.db.config.CompactAbove / 2
	var old []liveCell
	before := r.db.now() - r.db.config.CompactAfter.Milliseconds()
	for i, c := range live {
		if long := len(live) > r.db.config.CompactAbove; long && i >= keep && c.version.Time() < before && c.cellTime < before {
			old = append(old, c)
		} else if c.removed > 0 && r.user.Segments > 0 {
			if err := r.decode(c.text, &r.staying); err != nil {
				return err
			}
		}
	}
	if n := len(old) - r.db.config.compactStep; n > 0 {
		old, r.more = old[n:], true
	}
	return r.take(old)
}

// take decodes what leaves the live segment, but for what the clear marks cover.
func (r *compact) take(old []liveCell) error {
	for _, c := range old {
		r.leaving = append(r.leaving, c.text)
		if c.version.Time() <= r.user.ClearedAt(typeOf(c.text)) {
			r.user.CutTime = max(r.user.CutTime, c.cellTime)
		} else if err := r.decode(c.text, &r.items); err != nil {
			return err
		}
	}
	slices.SortFunc(r.items, history.NewestFirst)
	return nil
}

// liveCell is a record of the live segment.
type liveCell struct {
	summary
	text    string
	removed int64
}

// live returns the records of the live segment that can be read, and reads the user's state.
func (r *compact) live() (cells []liveCell, err error) {
	prefix := appendUser(nil, r.space, r.uid)
	it, err := r.snapshot.NewIter(rangeOf(prefix))
	if err != nil {
		return nil, unavailable(err)
	}
	for key, v := range steps(it, &err) {
		text := string(key[len(prefix):])
		if text == "" {
			if r.user, err = r.state(v, r.oldest); err != nil {
				return nil, err
			}
			r.cutTime = r.user.CutTime
		} else if head := peek(v); head.version != 0 && head.version.Time() >= r.oldest {
			cells = append(cells, liveCell{head, text, wire.RemovedAt(v)})
		}
	}
	return cells, err
}

// decode adds a live record. One that cannot be read stays where it is.
func (r *compact) decode(text string, to *[]history.Item) error {
	key := append(appendUser(nil, r.space, r.uid), text...)
	return get(r.snapshot, key, func(v []byte) error {
		o, err := history.ParseObject(text)
		if err == nil {
			var rec *history.Record
			if rec, err = wire.Record(v); err == nil && rec != nil && rec.Version != 0 {
				*to = append(*to, history.Item{Object: o, Record: rec})
				return nil
			}
		}
		r.leaving = slices.DeleteFunc(r.leaving, func(t string) bool { return t == text })
		return nil
	})
}

// write makes the new segments visible. The records are in both forms then.
func (r *compact) write() error {
	segments := &segment.Reader{Metadata: new(segment.Metadata)}
	if r.user.Segments > 0 {
		var err error
		if segments, err = r.db.segmentsOf(r.snapshot, r.uid, r.user.Segments); err != nil {
			return err
		}
	}
	run := rand.Text()[:13]
	plan, err := segments.Compact(segment.Compact{
		Items: r.items, Staying: r.staying, Cleared: maps.Clone(r.user.Cleared), Oldest: r.oldest,
		Version: r.version(),
		Name:    func(n int) string { return fmt.Sprintf("%s.%d", run, n) },
	})
	if err != nil || !plan.Changed && r.user.CutTime == r.cutTime {
		return err
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.db.compacting.all {
		r.db.notes.Add(r.uid, r.db.now())
		return fmt.Errorf("%w: the state of the user has changed", history.ErrConflict)
	}
	return r.commit(plan)
}

// version returns one for the list that no list of the user had before: readers remember lists by it,
// also where the user has no segments for a while.
func (r *compact) version() uint64 {
	r.db.listed = max(r.db.listed+1, r.user.Segments+1, uint64(r.db.now())) //nolint:gosec // never before 1970
	return r.db.listed
}

// commit replaces the segments in one step.
func (r *compact) commit(plan segment.Plan) error {
	e := &edit{keyspace: &r.keyspace, batch: r.db.pebble.NewBatch()}
	defer func() { _ = e.batch.Close() }()
	prefix := appendUser(nil, spaceSegments, r.uid)
	if plan.Changed {
		if err := r.replace(e.batch, prefix, plan); err != nil {
			return err
		}
	}
	if err := e.store(r.uid, r.user, 0); err != nil {
		return err
	}
	if err := e.commit(nil); err != nil {
		return err
	}
	r.db.compacting.all = false // that was this change
	return nil
}

func (r *compact) replace(b *pebble.Batch, prefix []byte, plan segment.Plan) error {
	for _, c := range plan.New {
		if err := set(b, append(slices.Clip(prefix), c.Name...), c.Data); err != nil {
			return err
		}
		r.db.segmentMetrics.Written.Add(float64(len(c.Data)))
	}
	for _, name := range plan.Gone {
		if err := b.Delete(append(slices.Clip(prefix), name...), nil); err != nil {
			return unavailable(err)
		}
	}
	if r.user.Segments = plan.Metadata.Version; len(plan.Metadata.Chunks) == 0 {
		r.user.Segments = 0
		if err := b.Delete(prefix, nil); err != nil {
			return unavailable(err)
		}
		return nil
	}
	m, err := plan.Metadata.Append(nil)
	if err != nil {
		return err
	}
	r.db.anySegments = true
	r.db.segmentMetrics.Written.Add(float64(len(m)))
	return set(b, prefix, m)
}

// drop takes out of the live segment what is in segments and has not changed since it was read.
func (r *compact) drop(ctx context.Context) (dropped int, err error) {
	for texts := range slices.Chunk(r.leaving, dropStep) {
		if err := ctx.Err(); err != nil {
			return dropped, unavailable(err)
		}
		err := r.change(nil, func(e *edit) error {
			for _, text := range texts {
				if r.db.compacting.changed[text] {
					continue
				}
				if err := e.dropAt(r.uid, append(appendUser(nil, r.space, r.uid), text...)); err != nil {
					return err
				}
				dropped++
			}
			return nil
		})
		if err != nil {
			return dropped, err
		}
	}
	if r.more {
		r.db.notes.Add(r.uid, r.db.now())
	}
	r.db.segmentMetrics.Compacted.Add(float64(dropped))
	return dropped, nil
}

// unlisted finds chunks that nobody reads.
func (r *compact) unlisted(m *segment.Metadata, prefix []byte) (names []string, err error) {
	listed := m.Names()
	it, err := r.snapshot.NewIter(rangeOf(prefix))
	if err != nil {
		return nil, unavailable(err)
	}
	for key := range steps(it, &err) {
		if name := string(bytes.TrimPrefix(key, prefix)); name != "" && !listed[name] {
			names = append(names, name)
		}
	}
	return names, err
}

// Inspect says what the archive has of a user. To verify it reads all chunks as they are on disk, and
// compares them with their checksums and with what is listed of them.
func (a *Archive) Inspect(ctx context.Context, uid string, verify bool) (i segment.Inspection, err error) {
	if err := a.db.enter(ctx); err != nil {
		return i, err
	}
	defer a.db.leave()
	r := &compact{Archive: a, uid: uid, snapshot: a.db.pebble.NewSnapshot(), oldest: a.oldest()}
	defer func() { _ = r.snapshot.Close() }() // it was only read
	live, err := r.live()
	if err != nil {
		return i, err
	}
	i.Live, i.Segments = len(live), new(segment.Metadata)
	prefix := appendUser(nil, spaceSegments, uid)
	if r.user.Segments > 0 {
		if i.Segments, _, err = readMetadata(r.snapshot, prefix, r.user.Segments); err != nil {
			return i, fmt.Errorf("inspect %s: %w", uid, err)
		}
	}
	if i.Unlisted, err = r.unlisted(i.Segments, prefix); err != nil || !verify {
		return i, err
	}
	var objects map[string]int
	reader := &segment.Reader{Metadata: i.Segments, Chunk: func(info *segment.Info) (*segment.Chunk, error) {
		c, _, err := readChunk(r.snapshot, prefix, info)
		return c, err
	}}
	objects, i.Wrong = reader.Verify()
	for _, c := range live {
		if objects[c.text] > 0 {
			i.Both++
		}
	}
	return i, nil
}

// compactNext compacts a user who was noted.
func (d *DB) compactNext(ctx context.Context) {
	uid, ok := d.notes.Take(d.now())
	if !ok {
		return
	}
	if _, err := d.Archive().Compact(ctx, uid); err != nil && ctx.Err() == nil && !errors.Is(err, history.ErrConflict) {
		d.config.Logger.Warn("compaction failed", "error", err)
	}
}

// noteLong notes a user by the number of records in the live segment.
func (a *Archive) noteLong(uid string, records int) {
	if above := a.db.config.CompactAbove; above > 0 && records > above {
		a.db.notes.Add(uid, a.db.now())
	}
}

// noteRemoval notes a user of whose segments something is to be removed: soon, since more is often
// removed then.
func (a *Archive) noteRemoval(uid string) {
	if a.db.config.CompactAbove > 0 {
		a.db.notes.Add(uid, a.db.now()+removeAfter.Milliseconds())
	}
}

// deletedLately is how long ago an object was deleted, at most, that was played again and may have been archived with that.
const deletedLately = time.Hour

// notePut notes a user when a tombstone is put, or a record of an object that was deleted lately: what segments and summaries
// have of the object is to be removed; and when something old is, which is to be counted before it ends. The lock is held.
func (a *Archive) notePut(uid string, value []byte) {
	summaries, segments := a.db.summaryTTL > 0, a.db.anySegments && a.db.config.CompactAbove > 0
	if segments {
		u, ok := a.userInMemory(uid)
		segments = !ok || u.Segments > 0
	}
	if !summaries && !segments {
		return
	}
	head := peek(value)
	if summaries && head.version.Time() < a.db.now()-history.SummaryAge {
		a.db.old.Add(uid, a.db.now()+removeAfter.Milliseconds())
	}
	if head.state != history.StateDeleted && wire.RemovedAt(value) < a.db.now()-deletedLately.Milliseconds() {
		return
	}
	a.noteSummaries(uid)
	if segments {
		a.noteRemoval(uid)
	}
}

// noteSegments notes all users who have segments: of some there may be records that have expired, or whose
// note was lost.
func (a *Archive) noteSegments() (err error) {
	if a.db.config.CompactAbove == 0 {
		return nil
	}
	it, err := a.db.pebble.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceSegments}, UpperBound: []byte{spaceSegments + 1}})
	if err != nil {
		return unavailable(err)
	}
	for ok := it.First(); ok; {
		key := it.Key()
		end := keyPrefix + bytes.IndexByte(key[keyPrefix:], endOfUID) + 1
		a.db.notes.Add(string(key[keyPrefix:end-1]), a.db.now())
		ok = it.SeekGE(after(bytes.Clone(key[:end])))
	}
	if err := it.Close(); err != nil {
		return unavailable(err)
	}
	return nil
}
