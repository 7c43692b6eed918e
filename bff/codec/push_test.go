package codec_test

import (
	"encoding/json"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestPush(t *testing.T) {
	object := &historyv1.Object{Id: "100", Type: 1}
	for want, c := range map[string]*historyv1.Change{
		`{"push":{"resync":true}}`:                        {Resync: true, Uid: "u1", Origin: 1, Added: []uint64{1}},
		`{"push":{"removed":[{"id":"100","type":1}]}}`:    {Removed: []*historyv1.Object{object}},
		`{"push":{"items":[` + inWords(t, object) + `]}}`: {Items: []*historyv1.Item{{Object: object, PositionMs: 5}}},
	} {
		if got, err := json.Marshal(codec.Reply{Push: codec.NewPush(c)}); err != nil || string(got) != want {
			t.Errorf("%v: got %s, %v; want %s", c, got, err, want)
		}
	}
}

// inWords is the record at position 5 as in any other answer.
func inWords(t *testing.T, o *historyv1.Object) string {
	t.Helper()
	text, err := json.Marshal(codec.NewRecord(&historyv1.Item{Object: o, PositionMs: 5}))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
