package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/part"
)

// partsOf returns a reader of a user's parts of a version, as they are in a snapshot.
func (d *DB) partsOf(from pebble.Reader, uid string, version uint64) (*part.Reader, error) {
	prefix := appendUser(nil, spaceParts, uid)
	r := &part.Reader{Chunk: func(i *part.Info) (*part.Chunk, error) {
		return cached(d, uid+"\x00"+i.Name, func() (*part.Chunk, int, error) { return readChunk(from, prefix, i) })
	}}
	m, err := cached(d, uid+"\x00v"+strconv.FormatUint(version, 10), func() (*part.Metadata, int, error) {
		return readMetadata(from, prefix, version)
	})
	r.Metadata = m
	return r, err
}

func cached[T any](d *DB, name string, read func() (T, int, error)) (v T, err error) {
	if v, err = part.Cached(d.parts, name, read); err != nil {
		err = unavailable(err)
	}
	return v, err
}

func readMetadata(from pebble.Reader, prefix []byte, version uint64) (m *part.Metadata, size int, err error) {
	err = get(from, prefix, func(v []byte) (err error) {
		size = len(v)
		if m, err = part.ParseMetadata(bytes.Clone(v)); err == nil && m.Version != version {
			err = fmt.Errorf("metadata of parts: %w: version %d, want %d", part.ErrCorrupt, m.Version, version)
		}
		return err
	})
	return m, size, err
}

func readChunk(from pebble.Reader, prefix []byte, i *part.Info) (c *part.Chunk, size int, err error) {
	err = get(from, append(slices.Clip(prefix), i.Name...), func(v []byte) (err error) {
		if c, err = i.Open(bytes.Clone(v)); err == nil {
			size = c.Size()
		}
		return err
	})
	return c, size, err
}

// withParts adds what parts have to entries of the live part. A live record that cannot be read hides
// nothing.
func (d *DB) withParts(from pebble.Reader, keys []history.Key, entries []history.Entry) error {
	byUser := make(map[string][]int)
	for i := range entries {
		_, damaged := errors.AsType[*history.DamageError](entries[i].Err)
		if entries[i].User.Parts > 0 && !keys[i].IsUser() && (entries[i].Err == nil || damaged) {
			byUser[keys[i].UID] = append(byUser[keys[i].UID], i)
		}
	}
	for uid, at := range byUser {
		parts, err := d.partsOf(from, uid, entries[at[0]].User.Parts)
		if err != nil {
			return err
		}
		objects, live := make([]history.Object, len(at)), make([]*history.Record, len(at))
		for n, i := range at {
			objects[n], live[n] = keys[i].Object, entries[i].Record
		}
		found, err := parts.Find(objects, live)
		if err != nil {
			return err
		}
		oldest := d.Archive().oldest()
		for n, i := range at {
			if r := found[n]; r != nil && r.Version.Time() >= oldest {
				entries[i].Record, entries[i].Err = part.Resolve(live[n], r), nil
			}
		}
	}
	return nil
}

// stitch reads the records of a page of a user who has parts.
func (a *Archive) stitch(page *history.Page, uid string, m moment, s selection) error {
	parts, err := a.db.partsOf(m.snapshot, uid, page.User.Parts)
	if err != nil {
		return err
	}
	l := &liveRow{archive: a, page: page, uid: uid, moment: m, oldest: a.oldest()}
	q := s.query
	q.Since = max(q.Since, l.oldest, page.User.ClearedAt(q.Type)+1)
	for it, err := range part.Stitch(part.Live{Items: l.items(s), Get: l.get}, parts, q) {
		if err != nil {
			return err
		}
		if it.Record = it.Record.After(page.User.ClearedAt(it.Object.Type)); it.Record == nil {
			continue
		}
		if len(page.Items) == q.Limit {
			page.More = true
			return nil
		}
		page.Items = append(page.Items, it)
	}
	return nil
}

// liveRow reads the live part of a user's row.
type liveRow struct {
	archive *Archive
	page    *history.Page // gets what is damaged
	uid     string
	moment  moment
	oldest  int64
}

// items yields the records of a selection. Those that cannot be read are left out and named.
func (l *liveRow) items(s selection) func(func(history.Item, error) bool) {
	return func(yield func(history.Item, error) bool) {
		for text := range s.all(l.oldest) {
			var it history.Item
			err := l.read(text, func(v []byte) {
				found := history.Page{Damaged: l.page.Damaged}
				l.archive.add(&found, l.uid, text, v, l.oldest)
				if l.page.Damaged = found.Damaged; len(found.Items) > 0 {
					it = found.Items[0]
				}
			})
			if (err != nil || it.Record != nil) && !yield(it, err) {
				return
			}
		}
	}
}

// get returns a live record that can be read, nil for none.
func (l *liveRow) get(o history.Object) (r *history.Record, err error) {
	err = l.read(o.String(), func(v []byte) {
		if found, damage := l.archive.record(v, l.oldest); damage == nil {
			r = found
		}
	})
	return r, err
}

func (l *liveRow) read(text string, use func(value []byte)) error {
	return get(l.moment.snapshot, append(slices.Clip(l.moment.prefix), text...), func(v []byte) error {
		if v != nil {
			use(v)
		}
		return nil
	})
}

// cutParts raises the cut time of a user to what new clear marks hide in parts, or to a little more:
// that of all in each chunk where they may hide something. The lock is held.
func (a *Archive) cutParts(uid string, u *history.User) error {
	if u.Parts == 0 {
		return nil
	}
	parts, err := a.db.partsOf(a.db.pebble, uid, u.Parts)
	if err != nil {
		return err
	}
	at := int64(0)
	for _, until := range u.Cleared {
		at = max(at, until)
	}
	for _, i := range parts.Chunks {
		if i.Oldest.Time() <= at {
			u.CutTime = max(u.CutTime, i.CellTime)
		}
	}
	a.noteRemoval(uid)
	return nil
}

// laterThanParts reports whether a record with a cell time is surely later than what parts have of
// its object. The lock is held.
func (a *Archive) laterThanParts(k history.Key, cellTime int64) (bool, error) {
	if !a.db.anyParts {
		return true, nil
	}
	u, ok := a.userInMemory(k.UID)
	if !ok {
		return false, nil
	}
	if u.Parts == 0 {
		return true, nil
	}
	parts, err := a.db.partsOf(a.db.pebble, k.UID, u.Parts)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(parts.Chunks, func(i part.Info) bool {
		return i.CellTime >= cellTime && i.MayHave(k.Object)
	}), nil
}

// openParts finds out whether anybody has parts.
func (d *DB) openParts() (err error) {
	for range d.each([]byte{spaceParts}, []byte{spaceParts + 1}, &err) {
		d.anyParts = true
		break
	}
	return err
}

// Inspect says what the archive has of a user. To verify it reads all chunks as they are on disk, and
// compares them with their checksums and with what is listed of them.
func (a *Archive) Inspect(ctx context.Context, uid string, verify bool) (i part.Inspection, err error) {
	if err := a.db.enter(ctx); err != nil {
		return i, err
	}
	defer a.db.leave()
	r := &roll{Archive: a, uid: uid, snapshot: a.db.pebble.NewSnapshot(), oldest: a.oldest()}
	defer func() { _ = r.snapshot.Close() }() // it was only read
	live, err := r.live()
	if err != nil {
		return i, err
	}
	i.Live, i.Parts = len(live), new(part.Metadata)
	prefix := appendUser(nil, spaceParts, uid)
	if r.user.Parts > 0 {
		if i.Parts, _, err = readMetadata(r.snapshot, prefix, r.user.Parts); err != nil {
			return i, fmt.Errorf("inspect %s: %w", uid, err)
		}
	}
	if i.Unlisted, err = r.unlisted(i.Parts, prefix); err != nil || !verify {
		return i, err
	}
	var objects map[string]int
	reader := &part.Reader{Metadata: i.Parts, Chunk: func(info *part.Info) (*part.Chunk, error) {
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

// unlisted finds chunks that nobody reads.
func (r *roll) unlisted(m *part.Metadata, prefix []byte) (names []string, err error) {
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
