package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/playhead/playhead/history"
)

// Revision returns the revision of an encoded record, 0 when there is none.
func Revision(b []byte) uint64 {
	if len(b) < RevisionEnd || b[0] != tagRevision {
		return 0
	}
	return binary.LittleEndian.Uint64(b[1:RevisionEnd])
}

// Record decodes a record. It fails with [ErrCorrupt]; no bytes are nil.
func Record(b []byte) (*history.Record, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := new(history.Record)
	if err := decode(r, b); err != nil {
		return nil, fmt.Errorf("record of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	r.CellTime += r.Version.Time()
	r.DurationVersion = absolute(r.DurationVersion, r.Version, r.Duration != 0)
	r.MetaVersion = absolute(r.MetaVersion, r.Version, len(r.Meta) != 0)
	r.UnknownVersion = absolute(r.UnknownVersion, r.Version, len(r.Unknown) != 0)
	return r, nil
}

// absolute is the inverse of relative. What is not there has no version.
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
	for field := b; s.next(); field = s.rest {
		switch s.tag {
		case tagRevision:
			r.Revision = s.num
		case tagState:
			r.State = history.State(min(uint32(s.num), math.MaxUint8)) // one too large is as unknown as 255
		case tagSession:
			r.Session = s.text()
		case tagDevice:
			r.Device = s.text()
		case tagMeta:
			s.entry(&r.Meta)
		case tagPeak:
			n := s.numbers(tagTime, tagPeakPosition)
			r.Peaks = append(r.Peaks, history.Peak{At: int64(n[0]), Position: int64(n[1])})
		case tagCompletion:
			n := s.numbers(tagTime, tagViewing)
			r.Completions = append(r.Completions, history.Completion{At: int64(n[0]), Viewing: n[1]})
		case tagWatch:
			n := s.numbers(tagTime, tagViewing, tagWatched)
			r.Watches = append(r.Watches, history.Watch{At: int64(n[0]), Viewing: n[1], Watched: int64(n[2])})
		case tagPlaysBefore:
			r.PlaysBefore = s.num
		case tagPartial:
			r.Partial = s.num != 0
		case tagEarly:
			r.Early = s.num != 0
		default:
			if p := number(r, s.tag); p != nil {
				*p = int64(s.num)
			} else if s.tag>>3 > lastField {
				r.Unknown += string(field[:len(field)-len(s.rest)])
			}
		}
	}
	return s.err
}

// number returns where a field of r belongs that is a plain integer, nil for
// others.
func number(r *history.Record, tag uint64) *int64 {
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
	case tagReset:
		return &r.Reset
	case tagFirmVersion:
		return (*int64)(&r.NonEarly.Version)
	case tagFirmPosition:
		return &r.NonEarly.Position
	case tagWatchedBefore:
		return &r.WatchedBefore
	case tagWatchedBeforeAt:
		return &r.WatchedBeforeAt
	case tagUnknownVersion:
		return (*int64)(&r.UnknownVersion)
	}
	return nil
}

// numbers reads a message of up to three numbers, in the order of the given tags.
func (s *scanner) numbers(tags ...uint64) (values [3]uint64) {
	in := scanner{rest: s.bytes}
	for in.next() {
		if i := slices.Index(tags, in.tag); i >= 0 {
			values[i] = in.num
		}
	}
	s.err = in.err
	return values
}

// entry reads one entry of a map. Of two with one key the later one stands.
func (s *scanner) entry(m *map[string]string) {
	var key, value string
	in := scanner{rest: s.bytes}
	for in.next() {
		switch in.tag {
		case tagMetaKey:
			key = in.text()
		case tagMetaValue:
			value = in.text()
		}
	}
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[key] = value
	s.err = in.err
}
