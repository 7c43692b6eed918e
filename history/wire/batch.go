package wire

import (
	"fmt"

	"github.com/playhead/playhead/history"
)

// AppendBatch appends an encoded batch of announced keys to dst. Keys of one user
// that stand together share the uid.
func AppendBatch(dst []byte, keys []history.Announcement) []byte {
	for len(keys) > 0 {
		start, uid := len(dst), keys[0].Key.UID
		dst = appendText(dst, tagUID, uid)
		for len(keys) > 0 && keys[0].Key.UID == uid {
			dst = appendObject(dst, keys[0])
			keys = keys[1:]
		}
		dst = framed(dst, start, tagUser)
	}
	return dst
}

func appendObject(dst []byte, d history.Announcement) []byte {
	start := len(dst)
	dst = appendText(dst, tagID, d.Key.Object.ID)
	dst = appendInt(dst, tagType, int64(d.Key.Object.Type))
	if d.Record != nil {
		record := len(dst)
		dst = framed(AppendRecord(dst, d.Record), record, tagRecord)
	}
	return framed(dst, start, tagObject)
}

// Batch decodes a batch of announced keys. It fails with [ErrCorrupt], also when a
// key in it is not legal: nothing that comes from a queue is trusted further.
func Batch(b []byte) ([]history.Announcement, error) {
	keys := make([]history.Announcement, 0, len(b)/32)
	s := scanner{rest: b}
	for s.next() {
		if s.tag == tagUser {
			keys, s.err = appendUser(keys, s.bytes)
		}
	}
	if s.err != nil {
		return nil, fmt.Errorf("batch of %d bytes: %w: %w", len(b), ErrCorrupt, s.err)
	}
	return keys, nil
}

// appendUser decodes the keys of one user.
func appendUser(keys []history.Announcement, b []byte) ([]history.Announcement, error) {
	uid, first := "", len(keys)
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagUID:
			uid = s.text()
		case tagObject:
			var d history.Announcement
			d, s.err = object(s.bytes)
			keys = append(keys, d)
		}
	}
	for i := first; i < len(keys); i++ {
		keys[i].Key.UID = uid
	}
	if s.err == nil && len(keys) > first {
		s.err = history.ValidateUID(uid)
	}
	return keys, s.err
}

// object decodes one announced object.
func object(b []byte) (history.Announcement, error) {
	var d history.Announcement
	var record []byte
	o := &d.Key.Object
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagID:
			o.ID = s.text()
		case tagType:
			o.Type = uint32(s.num)
		case tagRecord:
			record = s.bytes
		}
	}
	if s.err == nil && !d.Key.IsUser() {
		s.err = o.Validate()
	}
	if s.err == nil {
		d.Record, s.err = Record(record)
	}
	return d, s.err
}
