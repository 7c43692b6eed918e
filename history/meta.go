package history

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"unicode/utf8"
)

// Meta is the metadata of a record: a few texts by key, encoded in the order of the keys as a
// stored record has them (message Record in record.proto). So it is compared and stored as it
// is, and is one pointer to the garbage collector. The zero value has no entries.
type Meta string

// The tags of an entry in a record, and of its key and value.
const (
	tagEntry = 10<<3 | 2
	tagKey   = 1<<3 | 2
	tagValue = 2<<3 | 2
)

// NewMeta returns entries as metadata.
func NewMeta(entries map[string]string) Meta {
	var room [MaxMetaKeys]string
	keys := slices.AppendSeq(room[:0], maps.Keys(entries))
	slices.Sort(keys)
	var bytes [MaxMetaBytes]byte
	m := bytes[:0]
	for _, k := range keys {
		m = AppendMetaEntry(m, k, entries[k])
	}
	return Meta(m)
}

// AppendMetaEntry appends an entry to encoded metadata. Its key is greater than those before.
func AppendMetaEntry[T ~string | ~[]byte](dst []byte, key, value T) []byte {
	size := 1 + uvarintSize(len(key)) + len(key) + 1 + uvarintSize(len(value)) + len(value)
	dst = binary.AppendUvarint(append(dst, tagEntry), uint64(size)) //nolint:gosec // never negative
	return appendTagged(appendTagged(dst, tagKey, key), tagValue, value)
}

func appendTagged[T ~string | ~[]byte](dst []byte, tag byte, text T) []byte {
	return append(binary.AppendUvarint(append(dst, tag), uint64(len(text))), text...)
}

func uvarintSize(n int) (size int) {
	for size = 1; n >= 0x80; size++ {
		n >>= 7
	}
	return size
}

// All returns the entries in the order of their keys.
func (m Meta) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for rest := string(m); rest != ""; {
			_, rest = cutLength(rest[1:]) // of the entry
			var key, value string
			key, rest = cutText(rest)
			value, rest = cutText(rest)
			if !yield(key, value) {
				return
			}
		}
	}
}

// cutText takes a tagged text off the front.
func cutText(s string) (text, rest string) {
	n, rest := cutLength(s[1:])
	return rest[:n], rest[n:]
}

// cutLength takes a varint off the front.
func cutLength(s string) (n int, rest string) {
	for i := 0; ; i++ {
		n |= int(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
}

func (m Meta) validate() error {
	entries, size := 0, 0
	for k, v := range m.All() {
		entries++
		size += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return Invalid("meta", "want non-empty keys and valid UTF-8")
		}
	}
	switch {
	case entries > MaxMetaKeys:
		return Invalid("meta", "want at most 16 entries")
	case size > MaxMetaBytes:
		return Invalid("meta", "want at most 1024 bytes of keys and values")
	}
	return nil
}

// Map returns the entries, nil where there are none.
func (m Meta) Map() map[string]string {
	if m == "" {
		return nil
	}
	return maps.Collect(m.All())
}

// Get returns the value of a key, "" where there is none.
func (m Meta) Get(key string) string {
	for k, v := range m.All() {
		if k == key {
			return v
		}
	}
	return ""
}

// compareMeta is any total order: it only has to pick the same of two everywhere.
func compareMeta(a, b Meta) int {
	if a == b {
		return 0
	}
	keysA, valuesA := a.columns()
	keysB, valuesB := b.columns()
	return cmp.Or(cmp.Compare(len(keysA), len(keysB)), slices.Compare(keysA, keysB), slices.Compare(valuesA, valuesB))
}

func (m Meta) columns() (keys, values []string) {
	for k, v := range m.All() {
		keys, values = append(keys, k), append(values, v)
	}
	return keys, values
}
