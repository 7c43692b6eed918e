package wire

import "github.com/playhead/playhead/history"

// AppendChanges appends encoded names of changes to dst. Those of one user and origin
// that stand together share both.
func AppendChanges(dst []byte, changes []history.Change) []byte {
	for len(changes) > 0 {
		start, first := len(dst), changes[0]
		dst = appendText(dst, tagUID, first.Key.UID)
		for len(changes) > 0 && together(changes[0], first) {
			if o := changes[0].Key.Object; !first.Key.IsUser() {
				object := len(dst)
				dst = framed(appendInt(appendText(dst, tagID, o.ID), tagType, int64(o.Type)), object, tagObject)
			}
			changes = changes[1:]
		}
		dst = framed(appendFixed(dst, tagOrigin, first.Origin), start, tagUser)
	}
	return dst
}

// AppendMissed appends the word that changes were missed to dst.
func AppendMissed(dst []byte) []byte { return append(dst, 2<<3, 1) }

// Missed reports whether encoded names of changes say that others were missed.
func Missed(b []byte) (missed bool) {
	s := scanner{rest: b}
	for s.next() {
		missed = missed || s.tag == 2<<3 && s.num != 0
	}
	return missed && s.err == nil
}

func together(a, b history.Change) bool {
	return a.Key.UID == b.Key.UID && a.Origin == b.Origin && a.Key.IsUser() == b.Key.IsUser()
}

// Changes decodes names of changes. It fails with [ErrCorrupt], also when a key in it is
// not legal.
func Changes(b []byte) ([]history.Change, error) {
	return users("changes", b, nil, appendChanged)
}

// appendChanged decodes what has changed of one user: all of it where no object is named.
func appendChanged(changes []history.Change, b []byte) ([]history.Change, error) {
	uid, origin, first := "", uint64(0), len(changes)
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagUID:
			uid = s.text()
		case tagObject:
			var c history.Change
			c.Key.Object, s.err = changed(s.bytes)
			changes = append(changes, c)
		case tagOrigin:
			origin = s.num
		}
	}
	if len(changes) == first {
		changes = append(changes, history.Change{})
	}
	for i := first; i < len(changes); i++ {
		changes[i].Key.UID, changes[i].Origin = uid, origin
	}
	if s.err == nil {
		s.err = history.ValidateUID(uid)
	}
	return changes, s.err
}

func changed(b []byte) (o history.Object, err error) {
	s := scanner{rest: b}
	for s.next() {
		switch s.tag {
		case tagID:
			o.ID = s.text()
		case tagType:
			o.Type = uint32(s.num)
		}
	}
	if s.err == nil {
		s.err = o.Validate()
	}
	return o, s.err
}
