package job

import "github.com/playhead/playhead/history"

// batch holds keys with their loaded entries.
type batch struct {
	keys    []history.Key
	entries []history.Entry
	clean   []history.Content // not put: already archived; mark clean removes a leftover mark
}

func (b *batch) add(k history.Key, e history.Entry) {
	b.keys, b.entries = append(b.keys, k), append(b.entries, e)
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

func unique(keys []history.Key) []history.Key {
	seen := make(map[history.Key]struct{}, len(keys))
	out := make([]history.Key, 0, len(keys))
	for _, k := range keys {
		if _, again := seen[k]; !again {
			seen[k] = struct{}{}
			out = append(out, k)
		}
	}
	return out
}

// byBucket groups keys by bucket, because the cache marks keys of one bucket clean together.
func byBucket(keys []history.Key) []history.Key {
	var next [history.Buckets + 1]int // the next position of each bucket
	for _, k := range keys {
		next[history.BucketOf(k.UID)+1]++
	}
	for b := range history.Buckets {
		next[b+1] += next[b]
	}
	out := make([]history.Key, len(keys))
	for _, k := range keys {
		b := history.BucketOf(k.UID)
		out[next[b]] = k
		next[b]++
	}
	return out
}
