package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/playhead/playhead/history"
)

// The flags in the first byte of a user.
const (
	userWarm     = 1 << iota // known to the cache
	userPaused               // has a pause
	userCut                  // has a cut time
	userRevision             // has a revision
	userSegments             // has segments; older versions reject it
	userPauses               // has earlier pauses
	userEnd
)

// AppendUser encodes a user's own state for the embedded store. It has flags, earlier pauses, low watermark, pause, cut
// time, revision, version of the segments, and clear marks. The flags tell which optional fields are present.
//
// The archive has no low watermarks or revisions; the cache has no segments.
func AppendUser(dst []byte, u history.User) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if earlier := u.Pause.Earlier; earlier != "" {
		dst[at] |= userPauses
		dst = append(binary.AppendUvarint(dst, uint64(len(earlier))), earlier...)
	}
	dst = binary.AppendUvarint(dst, uint64(u.LowWatermark))
	if u.Warm {
		dst[at] |= userWarm
	}
	if u.Pause != (history.Pause{}) {
		dst[at] |= userPaused
		dst = appendTimes(dst, u.Pause.Since, u.Pause.Until)
	}
	if u.CutTime != 0 {
		dst[at] |= userCut
		dst = appendTimes(dst, u.CutTime)
	}
	if u.Revision != 0 {
		dst[at] |= userRevision
		dst = binary.AppendUvarint(dst, u.Revision)
	}
	if u.Segments != 0 {
		dst[at] |= userSegments
		dst = binary.AppendUvarint(dst, u.Segments)
	}
	for typ, until := range u.Cleared {
		dst = binary.AppendUvarint(dst, uint64(typ))
		dst = appendTimes(dst, until)
	}
	return dst
}

func appendTimes(dst []byte, times ...int64) []byte {
	for _, t := range times {
		dst = binary.AppendUvarint(dst, uint64(t))
	}
	return dst
}

// User decodes what [AppendUser] encoded. It fails with [ErrCorrupt]. Empty input is a cold user.
func User(b []byte) (u history.User, err error) {
	if len(b) == 0 {
		return u, nil
	}
	flags, b := b[0], b[1:]
	if flags&userPauses != 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return u, fmt.Errorf("earlier pauses in a user state: %w", ErrCorrupt)
		}
		u.Pause.Earlier, b = history.Pauses(b[size:size+int(n)]), b[size+int(n):]
	}
	numbers, err := uvarints(b)
	need := 1 + 2*int(flags&userPaused/userPaused) + int(flags&userCut/userCut) + int(flags&userRevision/userRevision) + int(flags&userSegments/userSegments)
	if err != nil || flags >= userEnd || len(numbers) < need || (len(numbers)-need)%2 != 0 {
		return history.User{}, fmt.Errorf("user state of %d bytes: %w", len(b), ErrCorrupt)
	}
	next := func() (n uint64) {
		n, numbers = numbers[0], numbers[1:]
		return n
	}
	u.Warm, u.LowWatermark = flags&userWarm != 0, history.Version(next())
	if flags&userPaused != 0 {
		u.Pause.Since, u.Pause.Until = int64(next()), int64(next())
	}
	if flags&userCut != 0 {
		u.CutTime = int64(next())
	}
	if flags&userRevision != 0 {
		u.Revision = next()
	}
	if flags&userSegments != 0 {
		u.Segments = next()
	}
	for len(numbers) > 0 {
		if u.Cleared == nil {
			u.Cleared = map[uint32]int64{}
		}
		u.Cleared[uint32(next())] = int64(next())
	}
	return u, nil
}

func uvarints(b []byte) (numbers []uint64, err error) {
	for len(b) > 0 {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, ErrCorrupt
		}
		numbers, b = append(numbers, x), b[n:]
	}
	return numbers, nil
}
