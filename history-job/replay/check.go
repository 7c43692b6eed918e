package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
)

// Report is what a check found: keys that a store does not have, and keys that it
// has otherwise than expected.
type Report struct {
	Records, Users int // of the model
	Missing, Wrong int
	// Examples are some of the differences, in words.
	Examples []string
}

// OK reports whether everything was as expected.
func (r Report) OK() bool { return r.Missing == 0 && r.Wrong == 0 }

// maxExamples bounds how many differences are told.
const maxExamples = 5

// checkBatch is how many keys are read at once.
const checkBatch = 500

// Reader reads records in bulk: nil where there is none.
type Reader func(ctx context.Context, keys []history.Key) ([]*history.Record, error)

// FromCache reads from a cache.
func FromCache(c history.Loader) Reader {
	return func(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
		rs := make([]*history.Record, len(keys))
		for i, e := range c.Load(ctx, keys) {
			if e.Err != nil {
				return nil, e.Err
			}
			rs[i] = e.Record
		}
		return rs, nil
	}
}

// FromArchive reads from an archive.
func FromArchive(a history.Archive) Reader {
	return func(ctx context.Context, keys []history.Key) ([]*history.Record, error) {
		entries, err := a.Get(ctx, keys)
		rs := make([]*history.Record, len(entries))
		for i, e := range entries {
			if e.Err != nil {
				return nil, e.Err
			}
			rs[i] = e.Record
		}
		return rs, err
	}
}

// Check compares every record of the model with what each store holds.
func Check(ctx context.Context, model map[history.Key]*Expected, stores map[string]Reader) (Report, error) {
	keys := slices.Collect(maps.Keys(model))
	rep := Report{Records: len(keys), Users: users(keys)}
	for name, read := range stores {
		for batch := range slices.Chunk(keys, checkBatch) {
			rs, err := read(ctx, batch)
			if err != nil {
				return rep, fmt.Errorf("check %s: %w", name, err)
			}
			if len(rs) != len(batch) { // a key that was not looked at is not right
				return rep, fmt.Errorf("check %s: %d answers for %d keys", name, len(rs), len(batch))
			}
			for i, r := range rs {
				rep.compare(name, batch[i], model[batch[i]], r)
			}
		}
	}
	return rep, nil
}

func (r *Report) compare(store string, k history.Key, want *Expected, got *history.Record) {
	switch {
	case got == nil:
		r.Missing++
		r.example("%s: %s is missing", store, k)
	case !want.Matches(got):
		r.Wrong++
		r.example("%s: %s is %+v, want %+v with %d plays", store, k, *got, *want, want.Plays())
	}
}

func (r *Report) example(format string, args ...any) {
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

func users(keys []history.Key) int {
	seen := make(map[string]struct{})
	for _, k := range keys {
		seen[k.UID] = struct{}{}
	}
	return len(seen)
}
