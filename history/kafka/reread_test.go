package kafka_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/wire"
)

// reread counts all reread keys.
func reread(ctx context.Context, q *kafka.Queue) (got map[history.Key]int, err error) {
	got = map[history.Key]int{}
	err = q.Reread(ctx, history.AllBuckets(), time.Now().Add(-time.Hour), func(_ context.Context, keys []history.Announcement) error {
		for _, k := range keys {
			got[k.Key]++
		}
		return nil
	})
	return got, err
}

func TestRereadPassesPoisonOver(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	publish(t, q, announced(10))
	w := driver.Writer{Addr: driver.TCP(cfg.Brokers...), Topic: cfg.Topic, BatchSize: 1, RequiredAcks: driver.RequireAll}
	if err := w.WriteMessages(t.Context(), driver.Message{Value: []byte("not a batch")}); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	publish(t, q, announced(20)[10:])
	if got, err := reread(t.Context(), q); err != nil || len(got) != 20 {
		t.Errorf("got %d keys, %v, want 20", len(got), err)
	}
}

func TestRereadWhatRetentionLeft(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	for i := range 5 {
		publish(t, q, announced(10)[2*i:2*i+2])
	}
	if err := c.DeleteRecords(cfg.Topic, 0, 3); err != nil {
		t.Fatal(err)
	}
	if got, err := reread(t.Context(), q); err != nil || len(got) != 4 {
		t.Errorf("got %d keys, %v, want the 4 that are left", len(got), err)
	}
	deleteTopic(t, cfg)
	if got, err := reread(t.Context(), open(t, kafka.Config{Brokers: cfg.Brokers, Topic: cfg.Topic + "-other"})); err != nil || len(got) != 0 {
		t.Errorf("of a new topic: got %d keys, %v", len(got), err)
	}
}

// TestRereadBesideABrokenPartition fails one partition. The others are read, and the error reports the gap.
func TestRereadBesideABrokenPartition(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 4
	q := open(t, cfg)
	publish(t, q, announced(1000))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Partitions: []int32{2}, Err: kerr.KafkaStorageError, Count: -1})
	others := slices.DeleteFunc(announced(1000), func(a history.Announcement) bool {
		return wire.PartitionOf(history.BucketOf(a.Key.UID), 4) == 2
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := map[history.Key]int{}
	err := q.Reread(ctx, history.AllBuckets(), time.Now().Add(-time.Hour), func(_ context.Context, keys []history.Announcement) error {
		for _, k := range keys {
			got[k.Key]++
		}
		if len(got) == len(others) {
			time.AfterFunc(200*time.Millisecond, cancel) // nothing comes twice
		}
		return nil
	})
	if !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, history.ErrUnavailable)
	}
	for _, k := range others {
		if got[k.Key] != 1 {
			t.Errorf("%s: came %d times, want once", k.Key, got[k.Key])
		}
	}
	if len(got) != len(others) {
		t.Errorf("%d keys came, want the %d of the other partitions", len(got), len(others))
	}
}

// TestBetween reads the messages before a time only.
func TestBetween(t *testing.T) {
	q := open(t, fresh(t, cluster(t).ListenAddrs()))
	publish(t, q, announced(10))
	until := time.Now().Truncate(time.Millisecond).Add(time.Millisecond)
	for time.Now().Before(until) { // times of messages are in milliseconds
		runtime.Gosched()
	}
	publish(t, q, announced(30)[10:])
	for _, tt := range []struct {
		since, until time.Time
		want         int
	}{
		{until.Add(-time.Hour), time.Time{}, 30},
		{until.Add(-time.Hour), until, 10},
		{until, until.Add(time.Hour), 20},
		{until, until, 0},
		{until.Add(-time.Hour), until.Add(-time.Minute), 0},
	} {
		got := 0
		if err := q.Between(t.Context(), history.AllBuckets(), tt.since, tt.until, func(_ context.Context, keys []history.Announcement) error {
			got += len(keys)
			return nil
		}); err != nil || got != tt.want {
			t.Errorf("%v to %v: got %d keys, %v, want %d", tt.since, tt.until, got, err, tt.want)
		}
	}
}
