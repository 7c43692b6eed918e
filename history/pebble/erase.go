package pebble

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// Held counts a user's stored items by place.
func (d *DB) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.leave()
	h := holding{db: d, uid: uid, until: until, places: make(map[string]int)}
	for _, count := range []func() error{h.cached, h.logged, h.archived, h.inSegments, h.inSummaries, h.played} {
		if err := count(); err != nil {
			return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
		}
	}
	return h.places, nil
}

type holding struct {
	db     *DB
	uid    string
	until  int64
	places map[string]int
}

func (h *holding) counts(version history.Version) bool {
	return h.until == 0 || version.Time() <= h.until
}

func (h *holding) cached() (err error) {
	h.places["cache: records"], h.places["cache: dirty marks"], err = h.count(&h.db.Cache().keyspace)
	return err
}

// count counts a row at one point in time. It holds no lock meanwhile.
func (h *holding) count(s *keyspace) (records, marks int, err error) {
	s.lock.Lock()
	row, err := s.rowOf(h.uid)
	s.lock.Unlock()
	if err != nil {
		return 0, 0, err
	}
	for text, v := range row.all(&err) {
		mark, b := s.split(v)
		if len(text) == 0 || !h.counts(peek(b).version) {
			continue
		}
		if records++; mark != 0 {
			marks++
		}
	}
	return records, marks, err
}

// logged counts data without a time, so only for an erasure of all times.
func (h *holding) logged() (err error) {
	entries, days := 0, 0
	if h.until == 0 {
		prefix := appendUser(nil, spaceLog, h.uid)
		for range h.db.each(prefix, after(prefix), &err) {
			entries++
		}
		var seen history.SeenDays
		if seen, err = seenDays(h.db.pebble, appendUser(nil, spaceSeen, h.uid)); seen != 0 {
			days = 1
		}
	}
	h.places["cache: changes"], h.places["cache: days"] = entries, days
	return err
}

func (h *holding) archived() (err error) {
	h.places["archive: live records"], _, err = h.count(&h.db.Archive().keyspace)
	return err
}

func (h *holding) inSegments() (err error) {
	h.places["archive: records in segments"], h.places["archive: chunks"], err = h.inChunks(spaceSegments)
	return err
}

func (h *holding) inSummaries() (err error) {
	h.places["archive: summaries"], h.places["archive: chunks of summaries"], err = h.inChunks(spaceSummaries)
	return err
}

// inChunks also counts chunks that the metadata lacks, as with damaged metadata.
func (h *holding) inChunks(space byte) (records, chunks int, err error) {
	prefix := appendUser(nil, space, h.uid)
	snapshot := h.db.pebble.NewSnapshot()
	defer func() { _ = snapshot.Close() }() // read only
	m := new(segment.Metadata)
	err = get(snapshot, prefix, func(v []byte) error {
		if v != nil {
			if read, err := segment.ParseMetadata(v); err == nil {
				m = read
			}
		}
		return nil
	})
	it, iterErr := snapshot.NewIter(rangeOf(prefix))
	if err = errors.Join(err, iterErr); err != nil {
		return 0, 0, unavailable(err)
	}
	listed := make(map[string]*segment.Info, len(m.Chunks))
	for i := range m.Chunks {
		listed[m.Chunks[i].Name] = &m.Chunks[i]
	}
	for key := range steps(it, &err) {
		name := string(key[len(prefix):])
		if i := listed[name]; i != nil && h.counts(i.Oldest) {
			records, chunks = records+i.Count, chunks+1
		} else if i == nil && name != "" {
			chunks++
		}
	}
	return records, chunks, err
}

// Namespaces returns a user's namespaces with possible data. It makes a checkpoint, because a namespace may exist only in memory.
// That includes namespaces of classes that the current rules no longer have.
func (d *DB) Namespaces(ctx context.Context, uid string) (all []string, err error) {
	if err := d.enter(ctx); err != nil {
		return nil, err
	}
	defer d.leave()
	if err := d.checkpointNow(ctx); err != nil {
		return nil, fmt.Errorf("namespaces of %s: %w", history.Pseudonym(uid), err)
	}
	for _, space := range []byte{spaceArchive, spaceCache, spaceLogHead, spaceSegments, spaceSummaries} {
		prefix := append(appendBucket(nil, space, history.BucketOf(uid)), history.NamespacePrefix(uid)...)
		for namespace := range d.users(prefix, after(prefix), &err) {
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("namespaces of %s: %w", history.Pseudonym(uid), err)
		}
	}
	return all, nil
}

func (h *holding) played() error {
	messages := 0
	err := h.db.Plays().ofUser(h.uid, h.until, func([]byte, []byte) error { messages++; return nil })
	h.places["stream of plays"] = messages
	return err
}

// Erase removes a user's data up to a time. It rewrites the files with data of the user.
func (d *DB) Erase(ctx context.Context, uid string, until int64) error {
	if err := d.Archive().erase(ctx, uid, until); err != nil {
		return fmt.Errorf("erase %s: %w", history.Pseudonym(uid), err)
	}
	if err := d.Days().erase(ctx, uid); err != nil {
		return fmt.Errorf("erase %s: %w", history.Pseudonym(uid), err)
	}
	if err := d.Plays().erase(ctx, uid, until); err != nil {
		return fmt.Errorf("erase %s: %w", history.Pseudonym(uid), err)
	}
	if err := d.rewrite(ctx, uid); err != nil {
		return fmt.Errorf("erase %s from the files: %w", history.Pseudonym(uid), err)
	}
	return nil
}

// erase removes live records, segments and summaries. The clear mark changes the user's state, so a concurrent
// compaction gives up.
func (a *Archive) erase(ctx context.Context, uid string, until int64) error {
	if err := a.dropDamaged(ctx, uid, until); err != nil {
		return err
	}
	if err := a.PutUser(ctx, uid, history.User{Cleared: map[uint32]int64{0: until}}); err != nil {
		return err
	}
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	for {
		err := a.eraseSegments(uid)
		if err == nil {
			err = a.eraseSummaries(uid)
		}
		if !errors.Is(err, history.ErrConflict) || ctx.Err() != nil { // the user was paused or cleared meanwhile
			return err
		}
	}
}

// eraseSegments rewrites the segments without cleared records.
func (a *Archive) eraseSegments(uid string) error {
	r := a.beginCompact(uid)
	defer a.endCompact(r)
	if _, err := r.live(); err != nil || r.user.Segments == 0 {
		return err
	}
	r.cutTime = r.user.CutTime
	return r.write()
}

// dropDamaged removes segments with unreadable metadata.
func (a *Archive) dropDamaged(ctx context.Context, uid string, until int64) error {
	prefix := appendUser(nil, spaceSegments, uid)
	return a.update(ctx, durable, func(e *edit) error {
		u, _, err := a.stored(uid)
		if err != nil || u.Segments == 0 {
			return err
		}
		if _, _, err = readMetadata(a.db.pebble, prefix, u.Segments); !errors.Is(err, segment.ErrCorrupt) {
			return err
		}
		u.Segments, u.CutTime = 0, max(u.CutTime, until)
		if err := delRow(e.batch, prefix); err != nil {
			return err
		}
		return e.store(uid, u, 0)
	})
}

// erase forgets the days on which a user was seen.
func (d *Days) erase(ctx context.Context, uid string) error {
	return d.update(ctx, durable, func(e *edit) error { return del(e.batch, appendUser(nil, spaceSeen, uid)) })
}

// rewrite rewrites all files with keys of a user: a checkpoint for the journal, compactions for Pebble.
func (d *DB) rewrite(ctx context.Context, uid string) error {
	if err := d.enterWriting(ctx); err != nil {
		return err
	}
	defer d.leave()
	if err := d.checkpointNow(ctx); err != nil {
		return err
	}
	for _, space := range []byte{spaceArchive, spaceCache, spaceLogHead, spaceLog, spaceSegments, spaceSeen, spaceSummaries} {
		prefix := appendUser(nil, space, uid)
		if err := d.compact(ctx, prefix, after(prefix)); err != nil {
			return err
		}
	}
	for _, space := range []byte{spacePlays, spaceDirty} { // ordered by time
		if err := d.compact(ctx, []byte{space}, []byte{space + 1}); err != nil {
			return err
		}
	}
	return nil
}

// checkpointNow flushes everything from memory to Pebble.
func (d *DB) checkpointNow(ctx context.Context) error { return d.checkpointThen(ctx, nil) }

// checkpointThen also calls then, before the next checkpoint begins.
func (d *DB) checkpointThen(ctx context.Context, then func()) error {
	done := make(chan struct{})
	select {
	case d.lean <- leanRequest{then, done}:
		<-done
		return d.fault.err()
	case <-d.done:
		return unavailable(history.ErrClosed)
	case <-d.fault.failed:
		return d.fault.err()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

func (d *DB) compact(ctx context.Context, from, to []byte) error {
	if err := d.pebble.Compact(ctx, from, to, false); err != nil {
		return unavailable(err)
	}
	return d.fault.err()
}

// Remains says where erased bytes stay.
func (d *DB) Remains(context.Context) []string {
	return []string{"copies of the data directory have what was there when they were made"}
}
