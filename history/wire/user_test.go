package wire_test

import (
	"errors"
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

func TestUser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := history.User{
			Warm:         rapid.Bool().Draw(t, "warm"),
			LowWatermark: history.Version(rapid.Int64().Draw(t, "low watermark")),
			Cleared:      rapid.MapOfN(rapid.Uint32(), rapid.Int64(), 0, 3).Draw(t, "cleared"),
			CutTime:      rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "cut time"),
			Pause: history.Pause{
				Since: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "since"),
				Until: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64()).Draw(t, "until"),

				Earlier: history.Pauses(rapid.SampledFrom([]string{"", "5 9", "1764142000000 1764143000000 5 9"}).Draw(t, "earlier")),
			},
			Revision: rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "revision"),
			Segments: rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64()).Draw(t, "segments"),
		}
		got, err := wire.User(wire.AppendUser(nil, want))
		if err != nil || !sameUser(got, want) {
			t.Errorf("user %+v: got %+v, %v", want, got, err)
		}
	})
}

func sameUser(a, b history.User) bool {
	equal := maps.Equal(a.Cleared, b.Cleared)
	a.Cleared, b.Cleared = nil, nil
	return equal && reflect.DeepEqual(a, b)
}

func FuzzUser(f *testing.F) {
	f.Add([]byte{})
	f.Add(wire.AppendUser(nil, history.User{Warm: true, LowWatermark: 5, Cleared: map[uint32]int64{1: 2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := wire.User(b)
		if err != nil {
			if !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("user %x: got %v, want ErrCorrupt", b, err)
			}
			return
		}
		again, err := wire.User(wire.AppendUser(nil, u))
		if err != nil || !sameUser(again, u) {
			t.Errorf("user %x: got %+v, then %+v, %v", b, u, again, err)
		}
	})
}
