package replay_test

import (
	"errors"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
)

// TestRedrive redrives letters and checks the cache's records and dirty marks.
func TestRedrive(t *testing.T) {
	const now = int64(1_790_000_000_000)
	k := history.Key{UID: "ann", Object: history.Object{ID: "7", Type: 1}}
	record := func(at int64, kind history.Kind) *history.Record {
		e := history.Event{Key: k, Kind: kind, At: at, Position: 5000}
		r := e.Record()
		r.Revision = uint64(at) + uint64(kind)
		return r
	}
	letter := history.Dead{Key: k, Record: record(now, history.KindStop), Reason: "was too large"}
	for _, tt := range []struct {
		name   string
		cache  *history.Record
		clear  int64
		letter history.Dead
		want   *history.Record // in the cache, dirty; nil for none
		err    error
	}{
		{"the cache has nothing", nil, 0, letter, letter.Record, nil},
		{"the cache has the same", letter.Record, 0, letter, letter.Record, nil},
		{"the cache has newer", record(now+1000, history.KindProgress), 0, letter, record(now+1000, history.KindProgress), nil},
		{"deleted since", record(now+1000, history.KindDelete), 0, letter, record(now+1000, history.KindDelete), nil},
		{"cleared since", nil, now + 1000, letter, nil, nil},
		{"a message that decodes now", letter.Record, 0, history.Dead{Payload: wire.AppendBatch(nil, []history.Announcement{{Key: k}})}, letter.Record, nil},
		{"a message that does not", nil, 0, history.Dead{Payload: []byte{0xff}}, nil, wire.ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db, err := pebble.Open(t.TempDir(), pebble.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			cache, queue := db.Cache(), memqueue.New(memqueue.Config{})
			if tt.cache != nil {
				cache.Write(t.Context(), []history.Write{{Key: k, Record: tt.cache, BeginsHold: true}})
			}
			if tt.clear > 0 {
				if _, err := cache.Clear(t.Context(), k.UID, history.Clear{Until: tt.clear}); err != nil {
					t.Fatal(err)
				}
			}
			d := replay.Redriver{Cache: cache, Queue: queue}
			if err := d.Drive(t.Context(), tt.letter); !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			got := cache.Load(t.Context(), []history.Key{k})[0].Record
			if tt.want == nil {
				if got != nil {
					t.Errorf("the cache has %+v, want nothing", got)
				}
				return
			}
			if got == nil || got.Version != tt.want.Version || got.Deleted() != tt.want.Deleted() {
				t.Errorf("the cache has %+v, want %+v", got, tt.want)
			}
			if n, _ := queue.Stats(); n != 1 {
				t.Errorf("%d messages were published, want 1", n)
			}
		})
	}
}

// TestDriveUser redrives clears, a pause, or both, in the cache or in the letter.
func TestDriveUser(t *testing.T) {
	off, on := history.Pause{Since: 100}, history.Pause{Since: 100, Until: 200}
	for name, tt := range map[string]struct {
		pause  history.Pause
		clear  int64
		letter history.User
		want   history.Pause
		until  int64
		marked int
	}{
		"nothing":                      {},
		"pause":                        {pause: off, want: off, marked: 1},
		"clear":                        {clear: 100, until: 100, marked: 1},
		"both":                         {pause: on, clear: 100, want: on, until: 100, marked: 1},
		"what only the letter has":     {letter: history.User{Cleared: map[uint32]int64{0: 100}, Pause: off}, want: off, until: 100, marked: 1},
		"what is later in the letter":  {pause: off, clear: 50, letter: history.User{Cleared: map[uint32]int64{0: 100}, Pause: on}, want: on, until: 100, marked: 1},
		"what is later in the cache":   {pause: on, clear: 100, letter: history.User{Cleared: map[uint32]int64{0: 50}, Pause: off}, want: on, until: 100, marked: 1},
		"another type in the letter":   {clear: 100, letter: history.User{Cleared: map[uint32]int64{1: 50}}, until: 100, marked: 1},
		"a letter of an older process": {pause: off, letter: history.User{}, want: off, marked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := pebble.Open(t.TempDir(), pebble.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			cache, own := db.Cache(), history.UserKey("ann")
			w := history.WarmSet{Pause: tt.pause}
			if tt.clear > 0 {
				w.Cleared = map[uint32]int64{0: tt.clear}
			}
			if err := cache.Warm(t.Context(), "ann", w); err != nil {
				t.Fatal(err)
			}
			d := replay.Redriver{Cache: cache, Queue: memqueue.New(memqueue.Config{})}
			if err := d.Drive(t.Context(), history.Dead{Key: own, User: tt.letter}); err != nil {
				t.Fatal(err)
			}
			marks, err := cache.Overdue(t.Context(), []history.Bucket{history.BucketOf("ann")}, 0, 10)
			if err != nil || len(marks) != tt.marked {
				t.Errorf("marked: got %v, %v; want %d", marks, err, tt.marked)
			}
			u := cache.Load(t.Context(), []history.Key{own})[0].User
			if u.Pause != tt.want || u.Cleared[0] != tt.until || u.Cleared[1] != tt.letter.Cleared[1] {
				t.Errorf("got %+v, want the pause %+v, and all cleared up to %d", u, tt.want, tt.until)
			}
		})
	}
}
