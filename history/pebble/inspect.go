package pebble

import (
	"bytes"
	"context"
	"fmt"

	"github.com/playhead/playhead/history/part"
)

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
