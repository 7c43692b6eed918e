package history

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PlayMessage is a message of the stream of plays.
type PlayMessage struct {
	Kind PlayKind
	// Key of a clear has a type only, 0 for all.
	Key Key
	// Viewing is 0 for a delete or clear.
	Viewing uint64
	// At is the time of the first completion, or the time up to which plays are removed, in Unix milliseconds.
	At int64
}

// PlayKind is the kind of a message.
type PlayKind string

// Kinds of messages.
const (
	// PlayCompleted is a play, PlayRetracted one that counts no longer.
	PlayCompleted PlayKind = "completed"
	PlayRetracted PlayKind = "retracted"
	// PlaysDeleted removes the plays of an object up to a time, PlaysCleared those of a type or of all.
	PlaysDeleted PlayKind = "deleted"
	PlaysCleared PlayKind = "cleared"
)

// timeDigits is the number of base-36 digits of a time in an id.
const timeDigits = 9

// ID identifies what the message is about: a play and its retraction have the same id. It sorts by time.
func (m *PlayMessage) ID() string {
	digits := strconv.FormatInt(m.At, 36)
	digits = strings.Repeat("0", max(timeDigits-len(digits), 0)) + digits
	switch m.Kind {
	case PlaysCleared:
		return fmt.Sprintf("%s-%s-%s/%d", digits, m.Kind, m.Key.UID, m.Key.Object.Type)
	case PlaysDeleted:
		return fmt.Sprintf("%s-%s-%s/%s", digits, m.Kind, m.Key.UID, m.Key.Object)
	}
	return fmt.Sprintf("%s-%016x-%s/%s", digits, m.Viewing, m.Key.UID, m.Key.Object)
}

// ClearMessages returns a message for each clear mark of a user.
func ClearMessages(uid string, u *User) (messages []PlayMessage) {
	for typ, until := range u.Cleared {
		messages = append(messages, PlayMessage{Kind: PlaysCleared, Key: Key{UID: uid, Object: Object{Type: typ}}, At: until})
	}
	slices.SortFunc(messages, func(a, b PlayMessage) int { return cmp.Compare(a.Key.Object.Type, b.Key.Object.Type) })
	return messages
}

// told is the decoded [Record.Told]: the plays that the stream has of a record.
//
// Before messages are sent, a note says that the stream may have what it had and what the record has. So after a
// crash between the two, whatever the record is then, the same messages are sent again and none is forgotten.
type told struct {
	sure  bool  // otherwise the stream may have any of the plays
	until int64 // the stream knows that the plays up to then are removed
	plays []playID
}

// playID identifies a play within a record.
type playID struct {
	at      int64 // first completion
	viewing uint64
}

func comparePlayIDs(a, b playID) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.viewing, b.viewing))
}

const (
	toldHead = 8 + 1 // cell time, flag
	// maxNoted limits the plays of a note, at 14 bytes each. A record lists half as many.
	maxNoted = 256
	maxTold  = 4096 // bytes
)

// toldAt returns the cell time with which a note was written.
func toldAt(text string) int64 {
	if len(text) < toldHead {
		return 0
	}
	return int64(binary.BigEndian.Uint64([]byte(text[:8]))) //nolint:gosec // as it was written
}

// parseTold decodes a note. Without one the stream has nothing. After a damaged part the plays are not known.
func parseTold(text string) (t told) {
	if len(text) < toldHead {
		return told{sure: true}
	}
	t.sure = text[8] == 1
	b := []byte(text[toldHead:])
	until, n := binary.Uvarint(b)
	t.until = int64(until) //nolint:gosec // as it was written
	for at := int64(0); n > 0 && len(b) > n; {
		b = b[n:]
		var later uint64
		if later, n = binary.Uvarint(b); n <= 0 || len(b) < n+8 {
			break
		}
		at += int64(later) //nolint:gosec // as it was written
		t.plays = append(t.plays, playID{at, binary.LittleEndian.Uint64(b[n:])})
		n += 8
	}
	return t
}

// text encodes a note.
func (t *told) text(cellTime int64) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(cellTime)) //nolint:gosec // never negative
	if t.sure {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(t.until)) //nolint:gosec // never negative
	at := int64(0)
	for _, p := range t.plays[max(len(t.plays)-maxNoted, 0):] {
		b = binary.AppendUvarint(b, uint64(p.at-at)) //nolint:gosec // ascending
		b = binary.LittleEndian.AppendUint64(b, p.viewing)
		at = p.at
	}
	return string(b)
}

// playIDs returns the ids of the listed plays, ascending.
func (r *Record) playIDs() (ids []playID) {
	for _, p := range r.plays() {
		ids = append(ids, playID{p.First, p.Viewing})
	}
	slices.SortFunc(ids, comparePlayIDs)
	return ids
}

// goneUntil is the time up to which the user removed the object, or marked it as unwatched.
func (r *Record) goneUntil() int64 {
	if r.PlaysBefore > 0 {
		return r.RemovedAt
	}
	return max(r.RemovedAt, r.PlaysBeforeAt)
}

// known returns the plays that the stream has, or may have, and that no delete covers. Plays that the record counts
// but no longer lists stay in the stream.
func (r *Record) known(t *told) []playID {
	gone := int64(0)
	if until := r.goneUntil(); until > t.until {
		gone = until
	}
	if r.PlaysBefore > 0 {
		gone = max(gone, r.PlaysBeforeAt)
	}
	return slices.DeleteFunc(slices.Clone(t.plays), func(p playID) bool { return p.at <= gone })
}

// Untold returns the messages that the stream of plays lacks of a record, in order. It may have some of them if a
// job was interrupted. u is the user's state. A record before [Record.After] is not allowed.
func (r *Record) Untold(k Key, u *User) (messages []PlayMessage) {
	t := parseTold(r.Told)
	if until := r.goneUntil(); until > t.until {
		m := PlayMessage{Kind: PlaysDeleted, Key: k, At: until}
		if cleared := u.ClearedAt(k.Object.Type); cleared >= until {
			m = u.clearMessage(k, cleared)
		}
		messages = append(messages, m)
	}
	plays, known := r.playIDs(), r.known(&t)
	add := func(kind PlayKind, p playID) {
		messages = append(messages, PlayMessage{Kind: kind, Key: k, Viewing: p.viewing, At: p.at})
	}
	for _, p := range known {
		if _, counts := slices.BinarySearchFunc(plays, p, comparePlayIDs); !counts {
			add(PlayRetracted, p)
		}
	}
	for _, p := range plays {
		if _, has := slices.BinarySearchFunc(known, p, comparePlayIDs); !has || !t.sure {
			add(PlayCompleted, p)
		}
	}
	return messages
}

// clearMessage returns the message of the mark that clears a key up to a time.
func (u *User) clearMessage(k Key, until int64) PlayMessage {
	typ := k.Object.Type
	if u.Cleared[0] == until {
		typ = 0
	}
	return PlayMessage{Kind: PlaysCleared, Key: Key{UID: k.UID, Object: Object{Type: typ}}, At: until}
}

// Unsure reports whether messages of the record may not have been sent.
func (r *Record) Unsure() bool { return len(r.Told) >= toldHead && !parseTold(r.Told).sure }

// BeforeTelling returns the successor of a record with messages to send, with a note of them. It returns nil if the
// record has such a note already.
func (r *Record) BeforeTelling(u *User) *Record {
	t := parseTold(r.Told)
	all := append(r.known(&t), r.playIDs()...)
	slices.SortFunc(all, comparePlayIDs)
	all = slices.Compact(all)
	if !t.sure && slices.Equal(all, t.plays) {
		return nil
	}
	m := r.Successor(u)
	m.Told = (&told{until: t.until, plays: all}).text(m.CellTime)
	return m
}

// AfterTelling returns the successor of a record of which all messages were sent.
func (r *Record) AfterTelling(u *User) *Record {
	m := r.Successor(u)
	m.Told = (&told{sure: true, until: r.goneUntil(), plays: r.playIDs()}).text(m.CellTime)
	return m
}
