package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func announced(users, objects int) []history.Announcement {
	var keys []history.Announcement
	for o := range objects {
		for u := range users {
			k := history.Key{UID: fmt.Sprintf("user%d", u), Object: history.Object{ID: fmt.Sprint(o), Type: 1}}
			keys = append(keys, history.Announcement{Key: k})
		}
	}
	return keys
}

func TestMessages(t *testing.T) {
	long := history.Announcement{Key: history.Key{UID: "u", Object: history.Object{ID: strings.Repeat("x", 128), Type: 1}}}
	tests := []struct {
		name       string
		keys       []history.Announcement
		partitions int
		maxBytes   int
		least      int
		most       int
	}{
		{"nothing", nil, 16, 1000, 0, 0},
		{"one message per partition", announced(500, 3), 16, wire.MaxMessage, 16, 16},
		{"one partition", announced(500, 3), 1, wire.MaxMessage, 1, 1},
		{"split by size", announced(1, 1000), 16, 1000, 14, 32},
		{"a single key above the bound", []history.Announcement{long}, 4, 10, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.keys)
			messages := wire.Messages(tt.keys, tt.partitions, tt.maxBytes)
			if n := len(messages); n < tt.least || n > tt.most {
				t.Errorf("%d keys in %d messages, want %d to %d", len(tt.keys), n, tt.least, tt.most)
			}
			if !slices.Equal(tt.keys, before) {
				t.Error("the given keys were changed")
			}
			var got []history.Announcement
			for _, m := range messages {
				got = append(got, check(t, m, tt.partitions, tt.maxBytes)...)
			}
			byKey := func(a, b history.Announcement) int { return strings.Compare(a.Key.String(), b.Key.String()) }
			if !slices.Equal(slices.SortedFunc(slices.Values(got), byKey), slices.SortedFunc(slices.Values(tt.keys), byKey)) {
				t.Errorf("the messages hold %d keys, want the %d given", len(got), len(tt.keys))
			}
		})
	}
}

// check checks a message's form and returns its keys.
func check(t *testing.T, m wire.Message, partitions, maxBytes int) []history.Announcement {
	t.Helper()
	keys, err := wire.Batch(m.Payload)
	if err != nil || !slices.Equal(keys, m.Keys) {
		t.Errorf("payload holds %d keys, %v, want the %d of the message", len(keys), err, len(m.Keys))
	}
	if len(m.Payload) > maxBytes && len(keys) > 1 {
		t.Errorf("message of %d bytes, want at most %d", len(m.Payload), maxBytes)
	}
	seen, last := map[string]bool{}, ""
	for _, k := range keys {
		uid := k.Key.UID
		if p := wire.PartitionOf(history.BucketOf(uid), partitions); p != m.Partition {
			t.Errorf("user %s is in partition %d, want %d", uid, m.Partition, p)
		}
		if uid != last && seen[uid] {
			t.Errorf("keys of user %s do not stand together", uid)
		}
		seen[uid], last = true, uid
	}
	return keys
}

// TestMessagesKeepTheOrderOfContents: contents of one key stay in the order of their announcements.
func TestMessagesKeepTheOrderOfContents(t *testing.T) {
	k := history.Key{UID: "u", Object: history.Object{ID: "1", Type: 1}}
	keys := []history.Announcement{{Key: k, Record: heartbeat()}, {Key: history.UserKey("a")}, {Key: k}, {Key: k, Record: described()}}
	want := []history.Announcement{keys[1], keys[0], keys[2], keys[3]}
	if got := wire.Messages(keys, 1, wire.MaxMessage)[0].Keys; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkMessages(b *testing.B) {
	keys := announced(5000, 2)
	b.ReportAllocs()
	for b.Loop() {
		wire.Messages(keys, 16, wire.MaxMessage)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
}

// batches draws valid keys of few users, some adjacent.
func batches() *rapid.Generator[[]history.Announcement] {
	return rapid.SliceOf(rapid.Custom(func(t *rapid.T) history.Announcement {
		d := history.Announcement{
			Key: history.UserKey(rapid.OneOf(rapid.SampledFrom([]string{"a", "b"}), rapid.StringMatching(`[A-Za-z0-9._~@-]{1,64}`)).Draw(t, "uid")),
		}
		if rapid.Bool().Draw(t, "names an object") {
			d.Key.Object.ID = rapid.StringMatching(`[A-Za-z0-9_~@:-][A-Za-z0-9._~@:-]{0,127}`).Draw(t, "id")
			d.Key.Object.Type = rapid.Uint32Min(1).Draw(t, "type")
		}
		if rapid.IntRange(0, 3).Draw(t, "with its content") == 0 {
			d.Record = records().Draw(t, "record")
			d.Record.Revision = max(d.Record.Revision, 1)
		}
		return d
	}))
}

func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := batches().Draw(t, "keys")
		b := wire.AppendBatch(nil, want)
		if got, err := wire.Batch(b); err != nil || !equal(got, want) {
			t.Fatalf("%x:\ngot  %v, %v\nwant %v", b, got, err, want)
		}
	})
}

func TestBatchIsWhatTheGeneratedCodeWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := batches().Draw(t, "keys")
		want := marshal(flushBatch(keys))
		if got := wire.AppendBatch(nil, keys); !bytes.Equal(got, want) {
			t.Fatalf("%v:\ngot  %x\nwant %x", keys, got, want)
		}
	})
}

func equal(a, b []history.Announcement) bool {
	return slices.EqualFunc(a, b, func(a, b history.Announcement) bool { return reflect.DeepEqual(a, b) })
}

func TestBatchCorrupt(t *testing.T) {
	user := func(uid string, objects ...*historyv1.AnnouncedObject) []byte {
		return marshal(&historyv1.FlushBatch{Users: []*historyv1.UserKeys{{Uid: uid, Objects: objects}}})
	}
	tests := map[string][]byte{
		"cut short":         wire.AppendBatch(nil, flush(10))[:50],
		"no uid":            user("", &historyv1.AnnouncedObject{Id: "1", Type: 1}),
		"uid too long":      user(strings.Repeat("u", history.MaxID+1), &historyv1.AnnouncedObject{Id: "1", Type: 1}),
		"uid not legal":     user("a\nb", &historyv1.AnnouncedObject{}),
		"object of no type": user("u", &historyv1.AnnouncedObject{Id: "1"}),
		"type of no object": user("u", &historyv1.AnnouncedObject{Type: 1}),
		"object not legal":  user("u", &historyv1.AnnouncedObject{Id: "\x00", Type: 1}),
		"record cut short":  user("u", &historyv1.AnnouncedObject{Id: "1", Type: 1, Record: []byte{9, 1}}),
		"a record":          wire.AppendRecord(nil, heartbeat())[:wire.RevisionEnd-1],
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if keys, err := wire.Batch(b); !errors.Is(err, wire.ErrCorrupt) || keys != nil {
				t.Errorf("%x: got %v, %v, want ErrCorrupt", b, keys, err)
			}
		})
	}
}

func TestBatchOfManyUsers(t *testing.T) {
	for _, n := range []int{0, 1, 10_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			want := flush(n)
			if got, err := wire.Batch(wire.AppendBatch(nil, want)); err != nil || !slices.Equal(got, want) {
				t.Errorf("got %d keys, %v, want the %d given", len(got), err, n)
			}
		})
	}
}

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

// TestDead encodes and decodes letters.
func TestDead(t *testing.T) {
	user := history.User{Cleared: map[uint32]int64{0: 7, 3: 9}, Pause: history.Pause{Since: 11, Until: 13, Earlier: "4 5"}}
	for _, want := range []history.Dead{
		{Key: history.UserKey("ann"), User: user, Origin: "archive", Reason: "no", At: 5},
		{Key: history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 2}}, Cell: []byte{1, 2}, Origin: "archive", At: 5},
		{Payload: []byte{3}, Origin: "partition 1 offset 2", Reason: "bad"},
	} {
		got, err := wire.Dead(wire.AppendDead(nil, want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}
