package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// segmentsOf returns a reader of a version of a user's segments in a snapshot.
func (d *DB) segmentsOf(from pebble.Reader, uid string, version uint64) (*segment.Reader, error) {
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
	if !ok {
		return false, nil
	}
	if u.Segments == 0 {
		return true, nil
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
