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
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// Compact moves a bounded number of a user's old records into segments if the live segment exceeds
// [Config.CompactAbove]. It removes deleted, cleared and expired records from segments. It returns the number of
// records moved.
//
// It fails with [history.ErrConflict] if the user is cleared or paused meanwhile. Readers see no difference at any
// point: [segment.Resolve] handles records in both forms. It is not synced: work lost in a crash is repeated.
func (a *Archive) Compact(ctx context.Context, uid string) (compacted int, err error) {
	if err := a.db.enterWriting(ctx); err != nil {
		return 0, err
	}
	defer a.db.leave()
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	oldest := a.oldest(uid)
	if a.db.summaryTTL > 0 { // expired records are removed
		if err := a.summarize(uid, look{}); err != nil {
			return 0, fmt.Errorf("compact %s: %w", history.Pseudonym(uid), err)
		}
	}
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	r.oldest = oldest
	if err := r.read(); err != nil {
		return 0, fmt.Errorf("compact %s: %w", history.Pseudonym(uid), err)
	}
	if r.user.Segments == 0 && len(r.leaving) == 0 {
		return 0, nil
	}
	if err := r.write(); err != nil {
		return 0, fmt.Errorf("compact %s: %w", history.Pseudonym(uid), err)
	}
	return r.drop(ctx)
}

// compact is one compaction of a user.
type compact struct {
	*Archive
	uid      string
	snapshot *pebble.Snapshot
	user     history.User
	cutTime  int64 // of the user, before the compaction
	oldest   horizon
	more     bool // records remain for the next compaction

	items   []history.Item
	staying []history.Item // of deleted objects
	leaving []string       // object texts of the records that leave the live segment
}

// beginCompact tracks the user's changes from the snapshot on.
func (a *Archive) beginCompact(uid string) *compact {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.db.compacting = compacting{uid: uid, changed: make(map[string]bool)}
	return &compact{Archive: a, uid: uid, snapshot: a.db.pebble.NewSnapshot(), oldest: a.oldest(uid)}
}

func (a *Archive) endCompact(r *compact) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.db.compacting = compacting{}
	_ = r.snapshot.Close() // read only
}

// read selects the records that leave the live segment.
func (r *compact) read() error {
	live, err := r.live()
	if err != nil {
		return err
	}
	slices.SortFunc(live, func(a, b liveCell) int { return cmp.Compare(b.Version, a.Version) })
	keep := r.db.config.CompactAbove / 2
	var old []liveCell
	before := r.db.now() - r.db.config.CompactAfter.Milliseconds()
	for i, c := range live {
		if long := len(live) > r.db.config.CompactAbove; long && i >= keep && c.Version.Time() < before && c.CellTime < before {
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

// take decodes the leaving records. Those under clear marks only supersede what they hide in segments.
func (r *compact) take(old []liveCell) error {
	for _, c := range old {
		r.leaving = append(r.leaving, c.text)
		cleared := c.Version.Time() <= r.user.ClearedAt(index.TypeOf(c.text))
		if cleared {
			r.user.CutTime = max(r.user.CutTime, c.CellTime)
		}
		if !cleared || r.user.Segments > 0 {
			if err := r.decode(c.text, &r.items); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(r.items, history.NewestFirst)
	return nil
}

type liveCell struct {
	wire.Head
	text    string
	removed int64
}

// live reads the user's state and returns the readable records of the live segment.
func (r *compact) live() (cells []liveCell, err error) {
	prefix := appendUser(nil, r.space, r.uid)
	for key, v := range each(r.snapshot, prefix, after(prefix), &err) {
		text := string(key[len(prefix):])
		if text == "" {
			if r.user, err = r.state(v, r.oldest); err != nil {
				return nil, err
			}
			r.cutTime = r.user.CutTime
		} else if head := wire.Peek(v); head.Version != 0 && head.Version.Time() >= r.oldest.clean {
			cells = append(cells, liveCell{head, text, wire.RemovedAt(v)})
		}
	}
	return cells, err
}

// decode adds a live record. An unreadable one stays in place.
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

// write makes the new segments visible. The records are then in both forms.
func (r *compact) write() error {
	segments, err := r.db.segmentsOf(r.snapshot, r.uid, r.user.Segments)
	if err != nil {
		return err
	}
	run := rand.Text()[:13]
	plan, err := segments.Compact(segment.Compact{
		Items: r.items, Staying: r.staying, Cleared: maps.Clone(r.user.Cleared), Oldest: r.oldest.clean,
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
	err = r.changeLocked(nil, func(e *edit) error {
		if plan.Changed {
			if err := r.replace(e.batch, plan); err != nil {
				return err
			}
		}
		return e.store(r.uid, r.user, 0)
	})
	if err == nil {
		r.db.compacting.all = false // set by this change
	}
	return err
}

// version returns a new version for the user's metadata, never used before. Readers cache metadata by version,
// even after the user had no segments for a while.
func (r *compact) version() uint64 {
	r.db.listed = max(r.db.listed+1, r.user.Segments+1, uint64(r.db.now())) //nolint:gosec // never before 1970
	return r.db.listed
}

func (r *compact) replace(b *pebble.Batch, plan segment.Plan) error {
	if r.user.Segments = plan.Metadata.Version; len(plan.Metadata.Chunks) == 0 {
		r.user.Segments = 0
	} else {
		r.db.anySegments = true
	}
	written, err := writeChunks(b, appendUser(nil, spaceSegments, r.uid), plan)
	r.db.segmentMetrics.Written.Add(float64(written))
	return err
}

// drop removes unchanged records from the live segment that are now in segments.
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

// unlisted returns the chunks missing from the metadata.
func (r *compact) unlisted(m *segment.Metadata, prefix []byte) (names []string, err error) {
	listed := m.Names()
	for key := range each(r.snapshot, prefix, after(prefix), &err) {
		if name := string(bytes.TrimPrefix(key, prefix)); name != "" && !listed[name] {
			names = append(names, name)
		}
	}
	return names, err
}

// Inspect describes a user's archived data. With verify it reads all chunks from disk and compares them with their
// checksums and metadata.
func (a *Archive) Inspect(ctx context.Context, uid string, verify bool) (i segment.Inspection, err error) {
	if err := a.db.enter(ctx); err != nil {
		return i, err
	}
	defer a.db.leave()
	r := &compact{Archive: a, uid: uid, snapshot: a.db.pebble.NewSnapshot(), oldest: a.oldest(uid)}
	defer func() { _ = r.snapshot.Close() }() // read only
	live, err := r.live()
	if err != nil {
		return i, err
	}
	i.Live, i.Segments = len(live), new(segment.Metadata)
	prefix := appendUser(nil, spaceSegments, uid)
	if r.user.Segments > 0 {
		if i.Segments, _, err = readMetadata(r.snapshot, prefix, r.user.Segments); err != nil {
			return i, fmt.Errorf("inspect %s: %w", history.Pseudonym(uid), err)
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

func (d *DB) compactNext(ctx context.Context) {
	uid, ok := d.notes.Take(d.now())
	if !ok {
		return
	}
	if _, err := d.Archive().Compact(ctx, uid); err != nil && ctx.Err() == nil && !errors.Is(err, history.ErrConflict) {
		d.config.Logger.Warn("compaction failed", "error", err)
	}
}

// noteLong notes a user if the live segment has too many records.
func (a *Archive) noteLong(uid string, records int) {
	if above := a.db.config.CompactAbove; above > 0 && records > above {
		a.db.notes.Add(uid, a.db.now())
	}
}

// noteRemoval notes a user for a removal from segments, after a delay, because more removals often follow.
func (a *Archive) noteRemoval(uid string) {
	if a.db.config.CompactAbove > 0 {
		a.db.notes.Add(uid, a.db.now()+removeAfter.Milliseconds())
	}
}

// deletedLately is the maximum age of a delete before a replay. The replayed record may have been archived with
// it.
const deletedLately = time.Hour

// notePut notes a user after a put of a tombstone, of a recently deleted object, or of an old record. Segments and
// summaries drop the deleted object. An old record must be summarized before it expires. The lock is held.
func (a *Archive) notePut(uid string, value []byte) {
	summaries, segments := a.db.summaryTTL > 0, a.db.anySegments && a.db.config.CompactAbove > 0
	if segments {
		u, ok := a.userInMemory(uid)
		segments = !ok || u.Segments > 0
	}
	if !summaries && !segments {
		return
	}
	head := wire.Peek(value)
	if summaries && head.Version.Time() < a.db.config.Rules.SummaryBefore(a.db.now()) {
		a.db.old.Add(uid, a.db.now()+removeAfter.Milliseconds())
	}
	if head.State != history.StateDeleted && wire.RemovedAt(value) < a.db.now()-deletedLately.Milliseconds() {
		return
	}
	a.noteSummaries(uid)
	if segments {
		a.noteRemoval(uid)
	}
}

// noteSegments notes all users with segments: some records may have expired, and notes may be lost.
func (a *Archive) noteSegments() (err error) {
	if a.db.config.CompactAbove == 0 {
		return nil
	}
	for uid := range a.db.users([]byte{spaceSegments}, []byte{spaceSegments + 1}, &err) {
		a.db.notes.Add(uid, a.db.now())
	}
	return err
}

const (
	compactStep   = 8192 // records per compaction, held in memory
	dropStep      = 500  // records removed from the live segment under one lock
	removeAfter   = time.Minute
	compactEvery  = 200 * time.Millisecond // at most one user each
	compactPauses = 19                     // pause as a multiple of a compaction: heartbeats need the CPU
)

// compacting tracks a user's changes during a compaction.
type compacting struct {
	uid     string
	all     bool // the user's own state
	changed map[string]bool
}

// change must be called before Pebble has the key.
func (r *compacting) change(uid, text []byte) {
	switch {
	case r.changed == nil || string(uid) != r.uid:
	case len(text) == 0:
		r.all = true
	default:
		r.changed[string(text)] = true
	}
}

// segmentsOf returns a reader of a version of a user's segments in a snapshot, an empty one for version 0.
func (d *DB) segmentsOf(from pebble.Reader, uid string, version uint64) (*segment.Reader, error) {
	if version == 0 {
		return &segment.Reader{Metadata: new(segment.Metadata)}, nil
	}
	prefix := appendUser(nil, spaceSegments, uid)
	r := &segment.Reader{Chunk: func(i *segment.Info) (*segment.Chunk, error) {
		return cached(d, uid+"\x00"+i.Name, func() (*segment.Chunk, int, error) { return readChunk(from, prefix, i) })
	}}
	m, err := cached(d, uid+"\x00v"+strconv.FormatUint(version, 10), func() (*segment.Metadata, int, error) {
		return readMetadata(from, prefix, version)
	})
	r.Metadata = m
	return r, err
}

func cached[T any](d *DB, name string, read func() (T, int, error)) (v T, err error) {
	if v, err = segment.Cached(d.segments, name, read); err != nil {
		err = unavailable(err)
	}
	return v, err
}

func readMetadata(from pebble.Reader, prefix []byte, version uint64) (m *segment.Metadata, size int, err error) {
	err = get(from, prefix, func(v []byte) (err error) {
		size = len(v)
		if m, err = segment.ParseMetadata(bytes.Clone(v)); err == nil && m.Version != version {
			err = fmt.Errorf("metadata of segments: %w: version %d, want %d", segment.ErrCorrupt, m.Version, version)
		}
		return err
	})
	return m, size, err
}

// writeChunks adds the changes of a plan to a batch: chunks, and metadata unless no chunk is left. It returns the bytes
// added.
func writeChunks(b *pebble.Batch, prefix []byte, plan segment.Plan) (written int, err error) {
	for _, name := range plan.Gone {
		if err := del(b, append(slices.Clip(prefix), name...)); err != nil {
			return written, err
		}
	}
	for _, c := range plan.New {
		written += len(c.Data)
		if err := set(b, append(slices.Clip(prefix), c.Name...), c.Data); err != nil {
			return written, err
		}
	}
	if len(plan.Metadata.Chunks) == 0 {
		return written, del(b, prefix)
	}
	m, err := plan.Metadata.Append(nil)
	if err != nil {
		return written, err
	}
	return written + len(m), set(b, prefix, m)
}

func readChunk(from pebble.Reader, prefix []byte, i *segment.Info) (c *segment.Chunk, size int, err error) {
	err = get(from, append(slices.Clip(prefix), i.Name...), func(v []byte) (err error) {
		if c, err = i.Open(bytes.Clone(v)); err == nil {
			size = c.Size()
		}
		return err
	})
	return c, size, err
}

// withSegments merges records from segments into live entries. An unreadable live record hides nothing.
func (d *DB) withSegments(from pebble.Reader, keys []history.Key, entries []history.Entry) error {
	byUser := make(map[string][]int)
	for i := range entries {
		_, damaged := errors.AsType[*history.DamageError](entries[i].Err)
		if entries[i].User.Segments > 0 && !keys[i].IsUser() && (entries[i].Err == nil || damaged) {
			byUser[keys[i].UID] = append(byUser[keys[i].UID], i)
		}
	}
	for uid, at := range byUser {
		segments, err := d.segmentsOf(from, uid, entries[at[0]].User.Segments)
		if err != nil {
			return err
		}
		objects, live := make([]history.Object, len(at)), make([]*history.Record, len(at))
		for n, i := range at {
			objects[n], live[n] = keys[i].Object, entries[i].Record
		}
		found, err := segments.Find(objects, live)
		if err != nil {
			return err
		}
		oldest := d.Archive().oldest(uid).clean
		for n, i := range at {
			if r := found[n]; r != nil && r.Version.Time() >= oldest {
				entries[i].Record, entries[i].Err = segment.Resolve(live[n], r), nil
			}
		}
	}
	return nil
}

// laterThanSegments reports whether a cell time is certainly later than those of the object in segments. The lock
// is held.
func (a *Archive) laterThanSegments(k history.Key, cellTime int64) (bool, error) {
	if !a.db.anySegments {
		return true, nil
	}
	u, ok := a.userInMemory(k.UID)
	if !ok || u.Segments == 0 {
		return ok, nil
	}
	segments, err := a.db.segmentsOf(a.db.pebble, k.UID, u.Segments)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(segments.Chunks, func(i segment.Info) bool {
		return i.CellTime >= cellTime && i.MayHave(k.Object)
	}), nil
}

// openSegments checks whether any user has segments.
func (d *DB) openSegments() (err error) {
	for range d.each([]byte{spaceSegments}, []byte{spaceSegments + 1}, &err) {
		d.anySegments = true
		break
	}
	return err
}
