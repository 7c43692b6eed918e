package wire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
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

// check returns the keys of one message after a look at its form.
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

// The contents of one key stay in the order in which they were announced.
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
