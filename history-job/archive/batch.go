package archive

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
)

// batch holds keys with their loaded entries.
type batch struct {
	keys    []history.Key
	entries []history.Entry
	clean   []history.Content // not put: already archived; mark clean removes a leftover mark
}

func (b *batch) add(k history.Key, e history.Entry) {
	b.keys, b.entries = append(b.keys, k), append(b.entries, e)
}

// remove removes keys.
func (b *batch) remove(keys map[history.Key]bool) {
	if len(keys) == 0 {
		return
	}
	all := *b
	b.keys, b.entries = nil, nil
	for i, k := range all.keys {
		if !keys[k] {
			b.add(k, all.entries[i])
		}
	}
}

// contents returns the contents of the batch for mark clean.
func (b *batch) contents() []history.Content {
	put := make([]history.Content, len(b.keys))
	for i, k := range b.keys {
		put[i].Key = k
		if k.IsUser() {
			put[i].Revision = b.entries[i].User.Revision
		} else if r := b.entries[i].Record; r != nil {
			put[i].Revision = r.Revision
		}
	}
	return put
}

// byBucket returns each key once, grouped by bucket, because the cache marks keys of one bucket clean together.
func byBucket(keys []history.Key) []history.Key {
	type placed struct {
		history.Key
		bucket history.Bucket
	}
	all := make([]placed, len(keys))
	for i, k := range keys {
		all[i] = placed{k, history.BucketOf(k.UID)}
	}
	slices.SortFunc(all, func(a, b placed) int {
		if a.bucket != b.bucket { // mostly; decided without the texts
			return cmp.Compare(a.bucket, b.bucket)
		}
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Object.ID, b.Object.ID), cmp.Compare(a.Object.Type, b.Object.Type))
	})
	all = slices.Compact(all)
	once := make([]history.Key, len(all))
	for i := range all {
		once[i] = all[i].Key
	}
	return once
}
