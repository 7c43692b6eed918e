package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// AppendFirst appends the encoded first sighting of a user on a day to dst.
func AppendFirst(dst []byte, f history.First) []byte {
	dst, err := proto.MarshalOptions{}.MarshalAppend(dst, &historyv1.FirstOfDay{Uid: f.UID, Date: f.Day.Number(), TimeMs: f.At})
	if err != nil { // only for invalid UTF-8, which validation has refused in the uid
		panic(fmt.Sprintf("encode first of day: %v", err))
	}
	return dst
}

// First decodes a first sighting. It fails with [ErrCorrupt].
func First(b []byte) (history.First, error) {
	var m historyv1.FirstOfDay
	if err := proto.Unmarshal(b, &m); err != nil {
		return history.First{}, fmt.Errorf("first of day of %d bytes: %w: %w", len(b), ErrCorrupt, err)
	}
	day, ok := history.NumberedDay(m.GetDate())
	if !ok {
		return history.First{}, fmt.Errorf("first of day %d: %w", m.GetDate(), ErrCorrupt)
	}
	return history.First{Sighting: history.Sighting{UID: m.GetUid(), Day: day}, At: m.GetTimeMs()}, nil
}
