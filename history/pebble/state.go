package pebble

import (
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// What the first byte of a state says.
const (
	stateWarm     = 1 << iota // the cache knows the user
	statePaused               // there is a pause
	stateCut                  // there is a cut time
	stateRevision             // there is a revision
	stateEnd
)

// appendState appends a user's state: the floor, the pause, the cut time and the
// revision if there are any, and the clear marks. The archive has no floors and no
// revisions.
func appendState(dst []byte, u history.User) []byte {
	at := len(dst)
	dst = binary.AppendUvarint(append(dst, 0), uint64(u.Floor))
	if u.Warm {
		dst[at] |= stateWarm
	}
	if u.Pause != (history.Pause{}) {
		dst[at] |= statePaused
		dst = appendTimes(dst, u.Pause.Since, u.Pause.Until)
	}
	if u.CutTime != 0 {
		dst[at] |= stateCut
		dst = appendTimes(dst, u.CutTime)
	}
	if u.Revision != 0 {
		dst[at] |= stateRevision
		dst = binary.AppendUvarint(dst, u.Revision)
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

// parseState is the inverse of appendState. It fails with [wire.ErrCorrupt]; no
// bytes are a cold user.
func parseState(b []byte) (u history.User, err error) {
	if len(b) == 0 {
		return u, nil
	}
	numbers, err := uvarints(b[1:])
	flags := b[0]
	need := 1 + 2*int(flags&statePaused/statePaused) + int(flags&stateCut/stateCut) + int(flags&stateRevision/stateRevision)
	if err != nil || flags >= stateEnd || len(numbers) < need || (len(numbers)-need)%2 != 0 {
		return u, fmt.Errorf("user state of %d bytes: %w", len(b), wire.ErrCorrupt)
	}
	next := func() (n uint64) {
		n, numbers = numbers[0], numbers[1:]
		return n
	}
	u.Warm, u.Floor = flags&stateWarm != 0, history.Version(next())
	if flags&statePaused != 0 {
		u.Pause = history.Pause{Since: int64(next()), Until: int64(next())}
	}
	if flags&stateCut != 0 {
		u.CutTime = int64(next())
	}
	if flags&stateRevision != 0 {
		u.Revision = next()
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
			return nil, wire.ErrCorrupt
		}
		numbers, b = append(numbers, x), b[n:]
	}
	return numbers, nil
}

// mergeCleared returns the later of two clear marks of every type.
func mergeCleared(a, b map[uint32]int64) map[uint32]int64 {
	if len(b) == 0 {
		return a
	}
	merged := maps.Clone(b)
	for typ, at := range a {
		merged[typ] = max(merged[typ], at)
	}
	return merged
}
