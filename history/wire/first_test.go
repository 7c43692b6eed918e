package wire_test

import (
	"errors"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

func TestFirst(t *testing.T) {
	f := history.First{Sighting: history.Sighting{UID: "ann", Day: 20_778}, At: 1_795_300_000_123}
	b := wire.AppendFirst([]byte("x"), f)
	if got, err := wire.First(b[1:]); err != nil || got != f {
		t.Errorf("got %+v, %v; want %+v", got, err, f)
	}
	for _, bad := range [][]byte{nil, {0xff}, b[1:4], append([]byte{0x10, 0x01}, b[1:]...)[:2]} {
		if got, err := wire.First(bad); !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%x: got %+v, %v; want corrupt", bad, got, err)
		}
	}
}
