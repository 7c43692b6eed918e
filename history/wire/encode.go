package wire

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/playhead/playhead/history"
)

// AppendRecord appends the encoded record to dst. The fields stand in the order of
// their numbers, the revision first and always, and those that are unknown last.
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
	dst = appendMeta(dst, r.Meta)
	dst = appendInt(dst, tagMetaVersion, relative(r.MetaVersion, r.Version))
	for _, p := range r.Peaks {
		dst = appendPeak(dst, p)
	}
	for _, c := range r.Completions {
		dst = appendCompletion(dst, c)
	}
	dst = appendInt(dst, tagPlaysBefore, int64(r.PlaysBefore))
	dst = appendInt(dst, tagPlaysBeforeAt, r.PlaysBeforeAt)
	dst = appendInt(dst, tagReset, r.Reset)
	dst = appendFlag(dst, tagPartial, r.Partial)
	dst = appendFlag(dst, tagEarly, r.Early)
	dst = appendInt(dst, tagFirmVersion, int64(r.NonEarly.Version))
	dst = appendInt(dst, tagFirmPosition, r.NonEarly.Position)
	for _, w := range r.Watches {
		dst = appendWatch(dst, w)
	}
	dst = appendInt(dst, tagWatchedBefore, r.WatchedBefore)
	dst = appendInt(dst, tagWatchedBeforeAt, r.WatchedBeforeAt)
	if len(r.Unknown) == 0 {
		return dst
	}
	return append(appendInt(dst, tagUnknownVersion, relative(r.UnknownVersion, r.Version)), r.Unknown...)
}

// relative writes a version that equals the record's own as 0, the usual case.
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

// framed makes one field of what was appended since start: it moves that aside for
// a tag and a length. The messages are short, and so nobody has to know their sizes
// before.
func framed(dst []byte, start int, tag uint64) []byte {
	var head [2 * 10]byte // two varints of the longest
	return slices.Insert(dst, start, protowire.AppendVarint(protowire.AppendVarint(head[:0], tag), uint64(len(dst)-start))...)
}

// appendMeta writes the entries in the order of their keys, so that one record has
// one form. An entry always has both parts.
func appendMeta(dst []byte, meta map[string]string) []byte {
	if len(meta) == 0 {
		return dst
	}
	keys := make([]string, 0, history.MaxMetaKeys)
	for k := range meta {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		start := len(dst)
		dst = protowire.AppendString(append(dst, tagMetaKey), k)
		dst = protowire.AppendString(append(dst, tagMetaValue), meta[k])
		dst = framed(dst, start, tagMeta)
	}
	return dst
}

func appendPeak(dst []byte, p history.Peak) []byte {
	start := len(dst)
	dst = appendInt(appendInt(dst, tagTime, p.At), tagPeakPosition, p.Position)
	return framed(dst, start, tagPeak)
}

func appendCompletion(dst []byte, c history.Completion) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagTime, c.At), tagViewing, c.Viewing)
	return framed(dst, start, tagCompletion)
}

func appendWatch(dst []byte, w history.Watch) []byte {
	start := len(dst)
	dst = appendFixed(appendInt(dst, tagTime, w.At), tagViewing, w.Viewing)
	dst = appendInt(dst, tagWatched, w.Watched)
	return framed(dst, start, tagWatch)
}
