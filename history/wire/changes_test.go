package wire_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestChangesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []history.Change
		for _, d := range batches().Draw(t, "keys") {
			want = append(want, history.Change{Key: d.Key, Origin: rapid.SampledFrom([]uint64{0, 1, 1 << 63}).Draw(t, "origin")})
		}
		b := wire.AppendChanges(nil, want)
		got, err := wire.Changes(b)
		want = slices.CompactFunc(want, func(a, b history.Change) bool { return a == b && a.Key.IsUser() }) // encoded once
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%x:\ngot  %v, %v\nwant %v", b, got, err, want)
		}
	})
}

func TestChangesAreWhatTheGeneratedCodeWrites(t *testing.T) {
	object := &historyv1.Object{Id: "a:b_c", Type: 1 << 31}
	want := marshal(&historyv1.Changes{Users: []*historyv1.ChangedUser{
		{Uid: "u", Objects: []*historyv1.Object{object, {Id: "2", Type: 1}}, Origin: 1 << 63},
		{Uid: "u", Objects: []*historyv1.Object{object}},
		{Uid: "v", Origin: 7},
	}})
	one := history.Key{UID: "u", Object: history.Object{ID: "a:b_c", Type: 1 << 31}}
	other := history.Key{UID: "u", Object: history.Object{ID: "2", Type: 1}}
	got := wire.AppendChanges(nil, []history.Change{
		{Key: one, Origin: 1 << 63}, {Key: other, Origin: 1 << 63}, {Key: one}, {Key: history.UserKey("v"), Origin: 7},
	})
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

func TestMissed(t *testing.T) {
	want := marshal(&historyv1.Changes{Missed: true})
	if got := wire.AppendMissed(nil); !bytes.Equal(got, want) || !wire.Missed(got) {
		t.Errorf("got %x, want %x", got, want)
	}
	for _, b := range [][]byte{nil, marshal(&historyv1.Changes{Users: []*historyv1.ChangedUser{{Uid: "u"}}}), want[:1]} {
		if wire.Missed(b) {
			t.Errorf("%x says that changes were missed", b)
		}
	}
}

func TestChangesCorrupt(t *testing.T) {
	user := func(uid string, objects ...*historyv1.Object) []byte {
		return marshal(&historyv1.Changes{Users: []*historyv1.ChangedUser{{Uid: uid, Objects: objects}}})
	}
	for name, b := range map[string][]byte{
		"cut short":         user("u", &historyv1.Object{Id: "1", Type: 1})[:4],
		"no uid":            user(""),
		"uid not legal":     user("a\nb"),
		"object of no type": user("u", &historyv1.Object{Id: "1"}),
		"object not legal":  user("u", &historyv1.Object{Id: "\x00", Type: 1}),
	} {
		if got, err := wire.Changes(b); !errors.Is(err, wire.ErrCorrupt) || got != nil {
			t.Errorf("%s: got %v, %v, want ErrCorrupt", name, got, err)
		}
	}
}
