package history

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Meta is the metadata of a report or a record: entries sorted by key, encoded as in a stored record (message
// Record in record.proto). It is compared and stored as is, and is one pointer to the garbage collector. The
// zero value is empty.
//
// An entry of the record's newest version, [Record.MetaVersion], omits its version. Mostly all entries come
// from one report, and none has a version.
type Meta string

// MetaEntry is a report's value for a key, or the removal of the key.
type MetaEntry[T ~string | ~[]byte] struct {
	Key, Value T
	Removed    bool
	// Version is 0 if it equals the version of the whole metadata.
	Version Version
}

// Tags of an entry in a record, and of its fields.
const (
	tagEntry        = 10<<3 | 2
	tagKey          = 1<<3 | 2
	tagValue        = 2<<3 | 2 // absent if the key is removed
	tagEntryVersion = 3 << 3
)

// NewMeta returns a report's metadata: values by key, and removed keys. A key in both keeps its value.
func NewMeta(values map[string]string, removed ...string) Meta {
	var room [MaxMetaKeys]MetaEntry[string]
	entries := room[:0]
	for k, v := range values {
		entries = append(entries, MetaEntry[string]{Key: k, Value: v})
	}
	for _, k := range removed {
		if _, ok := values[k]; !ok {
			entries = append(entries, MetaEntry[string]{Key: k, Removed: true})
		}
	}
	slices.SortFunc(entries, byMetaKey)
	entries = slices.CompactFunc(entries, func(a, b MetaEntry[string]) bool { return a.Key == b.Key })
	return encodeMeta(entries)
}

// MetaOf encodes entries and returns their newest version. Each entry has a version, and keys are distinct.
func MetaOf(entries []MetaEntry[string]) (Meta, Version) {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, byMetaKey)
	return versioned(entries)
}

// versioned encodes sorted entries and changes them. It reuses an equal known text.
func versioned(entries []MetaEntry[string], known ...Meta) (m Meta, newest Version) {
	for i := range entries {
		newest = max(newest, entries[i].Version)
	}
	for i := range entries {
		if entries[i].Version == newest {
			entries[i].Version = 0
		}
	}
	return encodeMeta(entries, known...), newest
}

func encodeMeta(entries []MetaEntry[string], known ...Meta) Meta {
	var room [MaxMetaBytes]byte
	b := room[:0]
	for _, e := range entries {
		b = AppendMetaEntry(b, e)
	}
	for _, m := range known {
		if string(b) == string(m) {
			return m
		}
	}
	return Meta(b)
}

func byMetaKey(a, b MetaEntry[string]) int { return strings.Compare(a.Key, b.Key) }

// AppendMetaEntry appends an entry to encoded metadata. Its key must be greater than all before.
func AppendMetaEntry[T ~string | ~[]byte](dst []byte, e MetaEntry[T]) []byte {
	size := sizeOf(len(e.Key))
	if !e.Removed {
		size += sizeOf(len(e.Value))
	}
	if e.Version != 0 {
		size += 1 + uvarintSize(uint64(e.Version)) //nolint:gosec // bits
	}
	dst = binary.AppendUvarint(append(dst, tagEntry), uint64(size)) //nolint:gosec // never negative
	dst = appendTagged(dst, tagKey, e.Key)
	if !e.Removed {
		dst = appendTagged(dst, tagValue, e.Value)
	}
	if e.Version != 0 {
		dst = binary.AppendUvarint(append(dst, tagEntryVersion), uint64(e.Version)) //nolint:gosec // bits
	}
	return dst
}

func sizeOf(n int) int { return 1 + uvarintSize(uint64(n)) + n } //nolint:gosec // never negative

func appendTagged[T ~string | ~[]byte](dst []byte, tag byte, text T) []byte {
	return append(binary.AppendUvarint(append(dst, tag), uint64(len(text))), text...)
}

func uvarintSize(n uint64) (size int) {
	for size = 1; n >= 0x80; size++ {
		n >>= 7
	}
	return size
}

// All returns the values in key order.
func (m Meta) All() iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		for e := range m.Entries() {
			if !e.Removed && !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

// Entries returns the entries in key order.
func (m Meta) Entries() iter.Seq[MetaEntry[string]] {
	return func(yield func(MetaEntry[string]) bool) {
		for m != "" {
			var e MetaEntry[string]
			if e, m = m.cut(); !yield(e) {
				return
			}
		}
	}
}

func (m Meta) cut() (e MetaEntry[string], rest Meta) {
	n, text := cutLength(string(m[1:]))
	text, rest = text[:n], Meta(text[n:])
	e.Key, text = cutText(text)
	if e.Removed = text == "" || text[0] != tagValue; !e.Removed {
		e.Value, text = cutText(text)
	}
	if text != "" {
		n, _ = cutLength(text[1:])
		e.Version = Version(n)
	}
	return e, rest
}

func cutText(s string) (text, rest string) {
	n, rest := cutLength(s[1:])
	return rest[:n], rest[n:]
}

func cutLength(s string) (n int, rest string) {
	for i := 0; ; i++ {
		n |= int(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
}

// validate checks the metadata of a report, or of a record with a larger limit in bytes.
func (m Meta) validate(bytes int) error {
	entries, size := 0, 0
	for e := range m.Entries() {
		entries++
		n := len(e.Key) + len(e.Value)
		size += n
		switch {
		case e.Key == "" || !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value):
			return Invalid("meta", "want non-empty keys and valid UTF-8")
		case n > MaxMetaBytes:
			return Invalid("meta", "want at most 1024 bytes of a key and its value")
		}
	}
	switch {
	case entries > MaxMetaKeys:
		return Invalid("meta", "want at most 16 keys")
	case size > bytes:
		return Invalid("meta", "want at most 1024 bytes of keys and values")
	}
	return nil
}

// Map returns the values, nil if there are no entries.
func (m Meta) Map() (values map[string]string) {
	for k, v := range m.All() {
		if values == nil {
			values = make(map[string]string)
		}
		values[k] = v
	}
	return values
}

// Get returns the value of a key, "" if it has none.
func (m Meta) Get(key string) string {
	for k, v := range m.All() {
		if k == key {
			return v
		}
	}
	return ""
}

// says reports whether m agrees with a report's metadata o on the keys of o.
func (m Meta) says(o Meta) bool {
	if m == o {
		return true
	}
	for o != "" {
		var want, e MetaEntry[string]
		for want, o = o.cut(); e.Key != want.Key; {
			if m == "" {
				return false
			}
			e, m = m.cut()
		}
		if e.Value != want.Value || e.Removed != want.Removed {
			return false
		}
	}
	return true
}

// mergeMeta keeps the newest entry per key, and the newest 16 keys by version, then key. A dropped key is older
// than 16 others in every later merge, so the result is a fold.
func (r *Record) mergeMeta(o *Record) {
	switch {
	case o.Meta == "":
		return
	case r.Meta == "":
		r.Meta, r.MetaVersion = o.Meta, o.MetaVersion
		return
	case r.Meta == o.Meta: // common case: entries without a version have the newer one, the others are equal
		r.MetaVersion = max(r.MetaVersion, o.MetaVersion)
		return
	}
	var room [2 * MaxMetaKeys]MetaEntry[string]
	all := r.metaEntries(room[:0])
	for e := range o.Meta.Entries() {
		e.Version = cmp.Or(e.Version, o.MetaVersion)
		switch i, found := slices.BinarySearchFunc(all, e, byMetaKey); {
		case !found:
			all = slices.Insert(all, i, e)
		case compareMetaEntries(e, all[i]) > 0:
			all[i] = e
		}
	}
	if len(all) > MaxMetaKeys {
		slices.SortFunc(all, func(a, b MetaEntry[string]) int {
			return cmp.Or(cmp.Compare(b.Version, a.Version), strings.Compare(b.Key, a.Key))
		})
		all = all[:MaxMetaKeys]
		slices.SortFunc(all, byMetaKey)
	}
	r.Meta, r.MetaVersion = versioned(all, r.Meta, o.Meta)
}

// MetaEntries returns the entries in key order, each with its version.
func (r *Record) MetaEntries() []MetaEntry[string] { return r.metaEntries(nil) }

func (r *Record) metaEntries(dst []MetaEntry[string]) []MetaEntry[string] {
	for e := range r.Meta.Entries() {
		e.Version = cmp.Or(e.Version, r.MetaVersion)
		dst = append(dst, e)
	}
	return dst
}

// compareMetaEntries orders two entries of one key: by version, then a value above a removal, then by value.
func compareMetaEntries(a, b MetaEntry[string]) int {
	return cmp.Or(cmp.Compare(a.Version, b.Version), compareFlags(a.Removed, b.Removed), strings.Compare(a.Value, b.Value))
}

// forgetMeta drops the keys from before the removal.
func (r *Record) forgetMeta() {
	if r.MetaVersion.Time() <= r.RemovedAt {
		r.Meta, r.MetaVersion = "", 0
		return
	}
	var room [MaxMetaKeys]MetaEntry[string]
	left := slices.DeleteFunc(r.metaEntries(room[:0]), func(e MetaEntry[string]) bool { return e.Version.Time() <= r.RemovedAt })
	r.Meta, r.MetaVersion = versioned(left, r.Meta)
}

// oldestMeta returns the version of the oldest key, 0 without keys.
func (r *Record) oldestMeta() Version {
	oldest := r.MetaVersion
	for e := range r.Meta.Entries() {
		oldest = min(oldest, cmp.Or(e.Version, oldest))
	}
	return oldest
}
