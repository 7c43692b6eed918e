package pebble

import (
	"bytes"
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
