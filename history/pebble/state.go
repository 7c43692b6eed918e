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
	stateWarm   = 1 << iota // the cache knows the user
	statePaused             // there is a pause
)

// appendState appends a user's state: the floor, the pause if there is one, and the
// clear marks. The archive has no floors.
func appendState(dst []byte, u history.User) []byte {
	flags := byte(0)
	if u.Warm {
		flags |= stateWarm
	}
	if u.Pause != (history.Pause{}) {
		flags |= statePaused
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(u.Floor))
	if flags&statePaused != 0 {
		dst = binary.AppendUvarint(dst, uint64(u.Pause.Since))
		dst = binary.AppendUvarint(dst, uint64(u.Pause.Until))
	}
	for typ, at := range u.Cleared {
		dst = binary.AppendUvarint(dst, uint64(typ))
		dst = binary.AppendUvarint(dst, uint64(at))
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
	paused := b[0]&statePaused != 0
	if err != nil || len(numbers)%2 == 0 || b[0] > stateWarm|statePaused || paused && len(numbers) < 3 {
		return u, fmt.Errorf("user state of %d bytes: %w", len(b), wire.ErrCorrupt)
	}
	u.Warm, u.Floor = b[0]&stateWarm != 0, history.Version(numbers[0])
	if paused {
		u.Pause = history.Pause{Since: int64(numbers[1]), Until: int64(numbers[2])}
		numbers = numbers[2:]
	}
	for i := 1; i < len(numbers); i += 2 {
		if u.Cleared == nil {
			u.Cleared = map[uint32]int64{}
		}
		u.Cleared[uint32(numbers[i])] = int64(numbers[i+1])
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
