// Package wire encodes the domain's types for stores and queues. All adapters share it, and thus one form of a
// record. The form is defined in proto/history/message/v1/record.proto.
//
// Every heartbeat encodes a record. The code is hand-written; tests compare it with the generated code. That makes 17
// allocations per decoded record instead of 4 (BenchmarkRecord).
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/playhead/playhead/history"
)

// ErrCorrupt means that this package did not write these bytes.
var ErrCorrupt = errors.New("corrupt")

// RevisionEnd is the end of the encoded revision of a record: a tag, then bytes 1 to 8, little endian. A script
// that compares revisions reads only these. The highest bit, in byte 8, is [history.CleanBit].
const RevisionEnd = 9

// Wire types, the three lowest bits of a tag.
const (
	wireInt   = 0
	wireFixed = 1
	wireBytes = 2
)

// Tags of a record, numbered as in the messages.
const (
	tagRevision            = 1<<3 | wireFixed
	tagCellDrift           = 2<<3 | wireInt
	tagVersion             = 3<<3 | wireInt
	tagState               = 4<<3 | wireInt
	tagPosition            = 5<<3 | wireInt
	tagDuration            = 6<<3 | wireInt
	tagDurationVersion     = 7<<3 | wireInt
	tagSession             = 8<<3 | wireBytes
	tagDevice              = 9<<3 | wireBytes
	tagMeta                = 10<<3 | wireBytes
	tagMetaVersion         = 11<<3 | wireInt
	tagPeak                = 12<<3 | wireBytes
	tagCompletion          = 13<<3 | wireBytes
	tagPlaysBefore         = 14<<3 | wireInt
	tagPlaysBeforeAt       = 15<<3 | wireInt
	tagRemoved             = 16<<3 | wireInt
	tagPartial             = 17<<3 | wireInt
	tagEarly               = 18<<3 | wireInt
	tagResumePointVersion  = 19<<3 | wireInt
	tagResumePointPosition = 20<<3 | wireInt
	tagWatch               = 21<<3 | wireBytes
	tagWatchedBefore       = 22<<3 | wireInt
	tagWatchedBeforeAt     = 23<<3 | wireInt
	tagUnknownVersion      = 24<<3 | wireInt
	tagRestored            = 25<<3 | wireInt
	tagOriginal            = 26<<3 | wireInt
	tagDismissed           = 27<<3 | wireInt
	tagStart               = 28<<3 | wireInt
	tagStartPosition       = 29<<3 | wireInt
	tagViewings            = 30<<3 | wireBytes
	tagAtEnd               = 40<<3 | wireInt
	tagLow                 = 41<<3 | wireBytes
	tagStarts              = 42<<3 | wireBytes
	tagTold                = 43<<3 | wireBytes
	lastField              = 43 // of a record; later fields are unknown

	tagMetaKey        = 1<<3 | wireBytes
	tagMetaValue      = 2<<3 | wireBytes
	tagMetaKeyVersion = 3<<3 | wireInt

	tagTime         = 1<<3 | wireInt // of a peak, completion, start or watch
	tagPeakPosition = 2<<3 | wireInt
	tagViewing      = 2<<3 | wireFixed
	tagWatched      = 3<<3 | wireInt
	tagWatchLength  = 4<<3 | wireInt
	tagWatchSpeed   = 5<<3 | wireInt

	tagViewingVersion       = 1<<3 | wireInt
	tagViewingPosition      = 3<<3 | wireInt
	tagViewingState         = 4<<3 | wireInt
	tagViewingDevice        = 5<<3 | wireBytes
	tagViewingStart         = 6<<3 | wireInt
	tagViewingStartPosition = 7<<3 | wireInt
	tagViewingAtEnd         = 8<<3 | wireInt

	tagEndLength   = 3<<3 | wireInt
	tagEndDuration = 4<<3 | wireInt
	tagEndPosition = 5<<3 | wireInt
	tagReach       = 6<<3 | wireInt
	tagAge         = 7<<3 | wireInt
	tagSure        = 8<<3 | wireInt

	tagBefore      = 1<<3 | wireInt
	tagOf          = 3<<3 | wireInt
	tagLowLength   = 4<<3 | wireInt
	tagLowDuration = 5<<3 | wireInt

	tagBeginPosition = 3<<3 | wireInt
	tagBeginDuration = 4<<3 | wireInt
)

// Tags of a batch.
const (
	tagUser   = 1<<3 | wireBytes
	tagUID    = 1<<3 | wireBytes
	tagObject = 2<<3 | wireBytes
	tagID     = 1<<3 | wireBytes
	tagType   = 2<<3 | wireInt
	tagRecord = 3<<3 | wireBytes
	tagOrigin = 3<<3 | wireFixed // of a changed user, which otherwise resembles a batch's
)

// AppendRecord appends the encoded record. Fields are in the order of their numbers: the revision is first and
// always present, unknown fields are last.
func AppendRecord(dst []byte, r *history.Record) []byte {
	dst = append(dst, tagRevision)
	dst = protowire.AppendFixed64(dst, r.Revision)
	dst = appendInt(dst, tagCellDrift, max(r.CellTime-r.Version.Time(), 0))
	dst = appendInt(dst, tagVersion, int64(r.Version))
	dst = appendInt(dst, tagState, int64(r.State))
	dst = appendInt(dst, tagPosition, r.Position)
	dst = appendInt(dst, tagDuration, r.Duration)
	dst = appendInt(dst, tagDurationVersion, relative(r.DurationVersion, r.Version))
	dst = appendText(dst, tagSession, r.Session)
	dst = appendText(dst, tagDevice, r.Device)
	dst = append(dst, r.Meta...)
	dst = appendInt(dst, tagMetaVersion, relative(r.MetaVersion, r.Version))
	for _, p := range r.Peaks {
		dst = appendPeak(dst, p)
	}
	for i := range r.Completions {
		dst = appendCompletion(dst, &r.Completions[i], r.Duration)
	}
	dst = appendInt(dst, tagPlaysBefore, int64(r.PlaysBefore))
	dst = appendInt(dst, tagPlaysBeforeAt, r.PlaysBeforeAt)
	dst = appendInt(dst, tagRemoved, r.RemovedAt)
	dst = appendFlag(dst, tagPartial, r.Partial)
	dst = appendFlag(dst, tagEarly, r.Early)
	dst = appendInt(dst, tagResumePointVersion, int64(r.ResumePoint.Version))
	dst = appendInt(dst, tagResumePointPosition, r.ResumePoint.Position)
	for i := range r.Watches {
		dst = appendWatch(dst, &r.Watches[i])
	}
	dst = appendInt(dst, tagWatchedBefore, r.WatchedBefore)
	dst = appendInt(dst, tagWatchedBeforeAt, r.WatchedBeforeAt)
	if len(r.Unknown) > 0 {
		dst = appendInt(dst, tagUnknownVersion, relative(r.UnknownVersion, r.Version))
	}
	dst = appendFlag(dst, tagRestored, r.Restored)
	dst = appendInt(dst, tagOriginal, int64(r.Original))
	dst = appendInt(dst, tagDismissed, int64(r.Dismissed))
	dst = appendInt(dst, tagStart, r.Start.At)
	dst = appendInt(dst, tagStartPosition, r.Start.Position)
	for i := range r.Viewings {
		dst = appendViewing(dst, &r.Viewings[i], r.Device)
	}
	dst = appendFlag(dst, tagAtEnd, r.AtEnd)
	for i := range r.Lows {
		dst = appendLow(dst, &r.Lows[i], r)
	}
	for _, s := range r.Starts {
		dst = appendStart(dst, s)
	}
	dst = appendText(dst, tagTold, r.Told)
	return append(dst, r.Unknown...)
}

// relative encodes a version equal to the record's own, the usual case, as 0.
func relative(v, own history.Version) int64 {
	if v == own {
		return 0
	}
	return int64(v)
}

func appendFlag(dst []byte, tag uint64, set bool) []byte {
	if !set {
		return dst
	}
	return appendInt(dst, tag, 1)
}

func appendInt(dst []byte, tag uint64, v int64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendVarint(protowire.AppendVarint(dst, tag), uint64(v))
}

func appendText(dst []byte, tag uint64, s string) []byte {
	if s == "" {
		return dst
	}
	return protowire.AppendString(protowire.AppendVarint(dst, tag), s)
}

func appendFixed(dst []byte, tag byte, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return protowire.AppendFixed64(append(dst, tag), v)
}

// framed turns the bytes since start into a field: it moves them behind a tag and a length. Messages are short,
// so this costs less than computing sizes first.
func framed(dst []byte, start int, tag uint64) []byte {
	var head [2 * 10]byte // two varints of maximal length
	return slices.Insert(dst, start, protowire.AppendVarint(protowire.AppendVarint(head[:0], tag), uint64(len(dst)-start))...)
}

func appendPeak(dst []byte, p history.Peak) []byte {
	start := len(dst)
	dst = appendInt(appendInt(dst, tagTime, p.At), tagPeakPosition, p.Position)
	return framed(dst, start, tagPeak)
}

// appendOther omits the usual value.
func appendOther(dst []byte, tag byte, v, usual int64) []byte {
	if v == usual {
		return dst
	}
	return protowire.AppendVarint(append(dst, tag), uint64(v))
}

func appendCompletion(dst []byte, c *history.Stay, duration int64) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagTime, c.At), tagViewing, c.Viewing)
	dst = appendOther(appendInt(dst, tagEndLength, c.Length), tagEndDuration, c.Duration, duration)
	dst = appendOther(appendInt(dst, tagEndPosition, c.Position), tagReach, c.Reach, history.ReachOf(c.Position))
	dst = appendFlag(appendOther(dst, tagAge, c.At-c.Began, c.At), tagSure, c.Sure)
	return framed(dst, start, tagCompletion)
}

func appendLow(dst []byte, l *history.Low, r *history.Record) []byte {
	start := len(dst)
	dst = appendInt(dst, tagBefore, r.Version.Time()-l.At)
	if of := r.IndexOf(l.Viewing); of >= 0 {
		dst = appendInt(dst, tagOf, int64(of))
	} else {
		dst = protowire.AppendFixed64(append(dst, tagViewing), l.Viewing)
	}
	dst = appendOther(appendInt(dst, tagLowLength, l.Length), tagLowDuration, l.Duration, r.Duration)
	return framed(dst, start, tagLow)
}

func appendStart(dst []byte, s history.Start) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagTime, s.At), tagViewing, s.Viewing)
	dst = appendInt(appendInt(dst, tagBeginPosition, s.Position), tagBeginDuration, s.Duration)
	return framed(dst, start, tagStarts)
}

// appendWatch omits the length of a session without pauses.
func appendWatch(dst []byte, w *history.WatchedTime) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagTime, w.At), tagViewing, w.Viewing)
	dst = appendInt(dst, tagWatched, w.Watched)
	if length := w.At - w.Began; length != w.Watched {
		dst = protowire.AppendVarint(append(dst, tagWatchLength), uint64(length))
	}
	dst = appendInt(dst, tagWatchSpeed, w.Speed)
	return framed(dst, start, tagWatch)
}

// appendViewing omits the record's own device.
func appendViewing(dst []byte, v *history.Viewing, device string) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagViewingVersion, int64(v.Version)), tagViewing, v.Viewing)
	dst = appendInt(appendInt(dst, tagViewingPosition, v.Position), tagViewingState, int64(v.State))
	if v.Device != device {
		dst = protowire.AppendString(append(dst, tagViewingDevice), v.Device)
	}
	dst = appendInt(appendInt(dst, tagViewingStart, v.Start.At), tagViewingStartPosition, v.Start.Position)
	dst = appendFlag(dst, tagViewingAtEnd, v.AtEnd)
	return framed(dst, start, tagViewings)
}

// Revision returns the revision of an encoded record, 0 without one.
func Revision(b []byte) uint64 {
	if len(b) < RevisionEnd || b[0] != tagRevision {
		return 0
	}
	return binary.LittleEndian.Uint64(b[1:RevisionEnd])
}

// Head has the fields that place a record, readable without decoding it.
type Head struct {
	Version  history.Version
	State    history.State
	CellTime int64 // see [history.Record.CellTime]
}

// Peek reads the head of a record encoded by [AppendRecord]. For other bytes the result is arbitrary; decoding
// reports the damage.
func Peek(record []byte) (h Head) {
	if len(record) < RevisionEnd {
		return h
	}
	record = record[RevisionEnd:]
	drift, n := intField(record, tagCellDrift)
	record = record[n:]
	if v, n := intField(record, tagVersion); n > 0 {
		h.Version, record = history.Version(v), record[n:]
	}
	state, _ := intField(record, tagState)
	h.State = history.State(state)
	h.CellTime = h.Version.Time() + int64(drift)
	return h
}

// Whole reports whether the bytes are a valid record that is not partial. It costs a tenth of decoding.
func Whole(record []byte) bool {
	version := uint64(0)
	s := scanner{rest: record}
	for s.next() {
		switch s.tag {
		case tagVersion:
			version = s.num
		case tagPartial:
			if s.num != 0 {
				return false
			}
		}
	}
	return s.err == nil && version != 0
}

// RemovedAt returns the latest delete time of an encoded record, 0 without one. It costs a tenth of decoding.
func RemovedAt(record []byte) int64 {
	for s := (scanner{rest: record}); s.next(); {
		if s.tag == tagRemoved {
			return int64(s.num) //nolint:gosec // as it was encoded
		}
	}
	return 0
}

// intField returns the number at the front of b under a tag, and its length; 0 if the tag differs.
func intField(b []byte, tag byte) (v uint64, n int) {
	if len(b) == 0 || b[0] != tag {
		return 0, 0
	}
	if v, n = protowire.ConsumeVarint(b[1:]); n < 0 {
		return 0, 0
	}
	return v, n + 1
}

// Record decodes a record, nil for no bytes. It fails with [ErrCorrupt].
func Record(b []byte) (*history.Record, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := new(history.Record)
	if err := Fields(r, b); err != nil {
		return nil, err
	}
	r.CellTime += r.Version.Time()
	r.DurationVersion = absolute(r.DurationVersion, r.Version, r.Duration != 0)
	return r, nil
}

// Fields decodes the fields from the metadata on into a record that has those before. It fails with [ErrCorrupt].
func Fields(r *history.Record, b []byte) error {
	if err := decode(r, b); err != nil {
		return fmt.Errorf("record of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	r.MetaVersion = absolute(r.MetaVersion, r.Version, len(r.Meta) != 0)
	r.UnknownVersion = absolute(r.UnknownVersion, r.Version, len(r.Unknown) != 0)
	return nil
}

// absolute is the inverse of relative. An absent value has no version.
func absolute(v, own history.Version, present bool) history.Version {
	switch {
	case !present:
		return 0
	case v == 0:
		return own
	}
	return v
}

func decode(r *history.Record, b []byte) error {
	s := scanner{rest: b}
	var room [256]byte
	meta, lastKey := room[:0], []byte(nil)
	for field := b; s.next(); field = s.rest {
		switch s.tag {
		case tagRevision:
			r.Revision = s.num
		case tagState:
			r.State = history.State(min(uint32(s.num), math.MaxUint8)) // larger values are as unknown as 255
		case tagSession:
			r.Session = s.text()
		case tagDevice:
			r.Device = s.text()
		case tagMeta:
			e := s.entry()
			meta, lastKey = addEntry(meta, lastKey, e)
		case tagPeak:
			n := s.numbers(tagTime, tagPeakPosition)
			r.Peaks = append(r.Peaks, history.Peak{At: int64(n[0]), Position: int64(n[1])})
		case tagCompletion:
			r.Completions = append(r.Completions, s.completion(r.Duration))
		case tagAtEnd:
			r.AtEnd = s.num != 0
		case tagLow:
			r.Lows = append(r.Lows, s.low(r))
		case tagStarts:
			r.Starts = append(r.Starts, s.start())
		case tagTold:
			r.Told = string(s.bytes)
		case tagWatch:
			r.Watches = append(r.Watches, s.watch())
		case tagViewings:
			r.Viewings = append(r.Viewings, s.viewing(r.Device))
		case tagPlaysBefore:
			r.PlaysBefore = s.num
		case tagPartial:
			r.Partial = s.num != 0
		case tagEarly:
			r.Early = s.num != 0
		case tagRestored:
			r.Restored = s.num != 0
		default:
			if p := numberOf(r, s.tag); p != nil {
				*p = int64(s.num)
			} else if s.tag>>3 > lastField {
				r.Unknown += string(field[:len(field)-len(s.rest)])
			}
		}
	}
	r.Meta = history.Meta(meta)
	return s.err
}

// numberOf returns the integer field of r for a tag, nil for other tags.
func numberOf(r *history.Record, tag uint64) *int64 {
	switch tag {
	case tagCellDrift:
		return &r.CellTime
	case tagVersion:
		return (*int64)(&r.Version)
	case tagPosition:
		return &r.Position
	case tagDuration:
		return &r.Duration
	case tagDurationVersion:
		return (*int64)(&r.DurationVersion)
	case tagMetaVersion:
		return (*int64)(&r.MetaVersion)
	case tagPlaysBeforeAt:
		return &r.PlaysBeforeAt
	case tagRemoved:
		return &r.RemovedAt
	case tagResumePointVersion:
		return (*int64)(&r.ResumePoint.Version)
	case tagResumePointPosition:
		return &r.ResumePoint.Position
	case tagWatchedBefore:
		return &r.WatchedBefore
	case tagWatchedBeforeAt:
		return &r.WatchedBeforeAt
	case tagUnknownVersion:
		return (*int64)(&r.UnknownVersion)
	case tagOriginal:
		return (*int64)(&r.Original)
	case tagDismissed:
		return (*int64)(&r.Dismissed)
	case tagStart:
		return &r.Start.At
	case tagStartPosition:
		return &r.Start.Position
	}
	return nil
}

// numbers decodes a message of up to two numbers, in the order of the given tags.
func (s *scanner) numbers(tags ...uint64) (values [2]uint64) {
	in := scanner{rest: s.bytes}
	for in.next() {
		if i := slices.Index(tags, in.tag); i >= 0 {
			values[i] = in.num
		}
	}
	s.err = in.err
	return values
}

// completion decodes a stay at the end of a record with the given duration.
func (s *scanner) completion(duration int64) history.Stay {
	c := history.Stay{Duration: duration}
	reach, age := int64(0), int64(0)
	hasReach, hasAge := false, false
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagTime:
			c.At = int64(in.num)
		case tagViewing:
			c.Viewing = in.num
		case tagEndLength:
			c.Length = int64(in.num)
		case tagEndDuration:
			c.Duration = int64(in.num)
		case tagEndPosition:
			c.Position = int64(in.num)
		case tagReach:
			reach, hasReach = int64(in.num), true
		case tagAge:
			age, hasAge = int64(in.num), true
		case tagSure:
			c.Sure = in.num != 0
		}
	}
	if c.Reach = reach; !hasReach {
		c.Reach = history.ReachOf(c.Position)
	}
	if hasAge {
		c.Began = c.At - age
	}
	s.err = in.err
	return c
}

// low decodes a stay below the end. Preceding fields of r are already decoded.
func (s *scanner) low(r *history.Record) history.Low {
	l := history.Low{At: r.Version.Time(), Duration: r.Duration}
	of, named := uint64(0), false
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagBefore:
			l.At -= int64(in.num)
		case tagViewing:
			l.Viewing, named = in.num, true
		case tagOf:
			of = in.num
		case tagLowLength:
			l.Length = int64(in.num)
		case tagLowDuration:
			l.Duration = int64(in.num)
		}
	}
	if s.err = in.err; !named {
		l.Viewing = r.ViewingAt(of)
	}
	return l
}

func (s *scanner) start() (b history.Start) {
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagTime:
			b.At = int64(in.num)
		case tagViewing:
			b.Viewing = in.num
		case tagBeginPosition:
			b.Position = int64(in.num)
		case tagBeginDuration:
			b.Duration = int64(in.num)
		}
	}
	s.err = in.err
	return b
}

func (s *scanner) watch() (w history.WatchedTime) {
	paused := false
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagTime:
			w.At = int64(in.num)
		case tagViewing:
			w.Viewing = in.num
		case tagWatched:
			w.Watched = int64(in.num)
		case tagWatchLength:
			w.Began, paused = int64(in.num), true
		case tagWatchSpeed:
			w.Speed = int64(in.num)
		}
	}
	if !paused {
		w.Began = w.Watched
	}
	w.Began = w.At - w.Began
	s.err = in.err
	return w
}

// viewing decodes a viewing of a record with the given device.
func (s *scanner) viewing(device string) history.Viewing {
	v := history.Viewing{Device: device}
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagViewingVersion:
			v.Version = history.Version(in.num)
		case tagViewing:
			v.Viewing = in.num
		case tagViewingPosition:
			v.Position = int64(in.num)
		case tagViewingState:
			v.State = history.State(min(uint32(in.num), math.MaxUint8))
		case tagViewingDevice:
			v.Device = in.text()
		case tagViewingStart:
			v.Start.At = int64(in.num)
		case tagViewingStartPosition:
			v.Start.Position = int64(in.num)
		case tagViewingAtEnd:
			v.AtEnd = in.num != 0
		}
	}
	s.err = in.err
	return v
}

func (s *scanner) entry() (e history.MetaEntry[[]byte]) {
	e.Removed = true
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagMetaKey:
			e.Key = in.valid()
		case tagMetaValue:
			e.Value, e.Removed = in.valid(), false
		case tagMetaKeyVersion:
			e.Version = history.Version(in.num)
		}
	}
	s.err = in.err
	return e
}

// addEntry adds an entry to encoded metadata with the greatest key last. Entries are in key order, unless
// another writer encoded them. Of two entries with one key the later wins.
func addEntry(meta, last []byte, e history.MetaEntry[[]byte]) (added, greatest []byte) {
	if len(meta) == 0 || bytes.Compare(e.Key, last) > 0 {
		return history.AppendMetaEntry(meta, e), e.Key
	}
	entries := slices.Collect(history.Meta(meta).Entries())
	one := history.MetaEntry[string]{Key: string(e.Key), Value: string(e.Value), Removed: e.Removed, Version: e.Version}
	i, found := slices.BinarySearchFunc(entries, one.Key, func(e history.MetaEntry[string], key string) int { return strings.Compare(e.Key, key) })
	if !found {
		entries = slices.Insert(entries, i, one)
	}
	entries[i], meta = one, meta[:0]
	for _, e := range entries {
		meta = history.AppendMetaEntry(meta, e)
	}
	return meta, last
}
