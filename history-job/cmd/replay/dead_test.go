package main

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
)

// TestDead drives letters again of which one still cannot be decoded: it is kept, and
// those behind it come through all the same, now and in the next run.
func TestDead(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	server := miniredis.RunT(t)
	letters, err := kafka.OpenDead(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close()
	e := history.Event{
		Key:  history.Key{UID: "u", Object: history.Object{ID: "o", Type: 1}},
		Kind: history.KindProgress, At: time.Now().UnixMilli(), Position: 7, Duration: 100, Session: "s",
	}
	refused := history.Dead{Key: e.Key, Record: e.Record(), Origin: "archive", Reason: "too large", At: 1}
	if err := letters.Add(t.Context(), []history.Dead{{Payload: []byte{0xff}, Origin: "partition 0 offset 0", Reason: "corrupt", At: 1}, refused}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 letters driven again, 1 kept", "0 letters driven again, 1 kept"} {
		var out strings.Builder
		err := dead(t.Context(), []string{"--redis", server.Addr(), "--kafka", cluster.ListenAddrs()[0]}, none, &out)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("replay dead: %v, said %q, want %q", err, out.String(), want)
		}
	}
	cache, err := redis.Open(t.Context(), redis.Config{Addrs: []string{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if got := cache.Load(t.Context(), []history.Key{e.Key})[0]; got.Record == nil || got.Record.Position != e.Position {
		t.Errorf("the cache has %+v, want the record of the letter", got)
	}
}
