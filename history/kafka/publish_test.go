package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/wire"
)

func TestPublishReturnsWhatFailed(t *testing.T) {
	c := cluster(t)
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 8})
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{2, 5}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	keys := announced(2000)
	unsent, err := q.Publish(t.Context(), keys)
	if !errors.Is(err, history.ErrUnavailable) || len(err.Error()) > 250 {
		t.Errorf("got %v, want one sentence and ErrUnavailable", err)
	}
	lost := map[history.Announcement]bool{}
	for _, k := range unsent {
		lost[k] = true
	}
	for _, k := range keys {
		p := wire.PartitionOf(history.BucketOf(k.Key.UID), 8)
		if got, want := lost[k], p == 2 || p == 5; got != want {
			t.Errorf("key %v of partition %d: unsent %t, want %t", k.Key, p, got, want)
		}
	}
	if messages, _ := q.Stats(); messages != 6 {
		t.Errorf("%d messages counted, want the 6 that arrived", messages)
	}
}

func TestPublishWhilePartitionsMove(t *testing.T) {
	c := cluster(t)
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 4})
	moving := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 6})
	keys := announced(1000)
	if unsent, err := q.Publish(t.Context(), keys); err != nil || len(unsent) != 0 {
		t.Errorf("%d unsent, %v, want all sent in the end", len(unsent), err)
	}
	if moving.Hits() != 6 {
		t.Errorf("%d refusals, want 6", moving.Hits())
	}
	receive(t, q, len(keys))
}

// TestPublishUnanswered has a broker that takes messages and loses its answers.
func TestPublishUnanswered(t *testing.T) {
	c := cluster(t)
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 4})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	keys := announced(1000)
	unsent, err := q.Publish(ctx, keys)
	if !errors.Is(err, history.ErrUnavailable) || len(unsent) != len(keys) {
		t.Errorf("%d of %d unsent, %v, want all of them and ErrUnavailable", len(unsent), len(keys), err)
	}
}

// TestPublishBesideAStalledBroker stalls one of two brokers. Messages for the other arrive in time, and soon calls
// to the stalled one fail fast.
func TestPublishBesideAStalledBroker(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(4, "history.flush"))
	for p := range int32(4) {
		if err := c.MoveTopicPartition("history.flush", p, p%2); err != nil {
			t.Fatal(err)
		}
	}
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	var stalled atomic.Bool
	stalled.Store(true)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, nil, stalled.Load() && c.CurrentNode() == 1
	})
	lost := func(patience time.Duration) int {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		unsent, err := q.Publish(ctx, announced(1000))
		if err != nil && !errors.Is(err, history.ErrUnavailable) {
			t.Error(err)
		}
		for _, k := range unsent {
			p := wire.PartitionOf(history.BucketOf(k.Key.UID), 4)
			if p%2 != 1 {
				t.Errorf("%s of partition %d, which another broker leads, was not sent", k.Key, p)
			}
		}
		return len(unsent)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if lost(4*time.Second) == 0 {
				t.Error("all was sent, also to the broker that does not answer")
			}
		})
	}
	wg.Wait()
	start := time.Now()
	if lost(time.Minute); time.Since(start) > 10*time.Second {
		t.Errorf("took %v, want no waiting any more", time.Since(start))
	}
	if got, want := q.Silent(), map[string]bool{c.ListenAddrs()[0]: false, c.ListenAddrs()[1]: true}; !maps.Equal(got, want) {
		t.Errorf("silent brokers %v, want %v", got, want)
	}
	stalled.Store(false)
	for late := time.Now().Add(30 * time.Second); lost(10*time.Second) > 0; {
		if time.Now().After(late) {
			t.Fatal("the broker answers again, and nothing is sent to it")
		}
	}
}

func TestPublishWithoutBrokers(t *testing.T) {
	c := cluster(t)
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 4})
	c.Close()
	keys := announced(1000)
	unsent, err := q.Publish(t.Context(), keys)
	if !errors.Is(err, history.ErrUnavailable) || len(unsent) != len(keys) {
		t.Errorf("%d of %d unsent, %v, want all of them and ErrUnavailable", len(unsent), len(keys), err)
	}
}

func TestPublishDividesMessages(t *testing.T) {
	c := cluster(t)
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 1, MaxBytes: 1024})
	keys := announced(1000)
	if _, err := q.Publish(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	messages, bytes := q.Stats()
	if messages < bytes/1024 || messages > bytes/256 {
		t.Errorf("%d messages for %d bytes, want 256 to 1,024 bytes each", messages, bytes)
	}
	var want []history.Announcement
	for _, m := range wire.Messages(keys, 1, 1024) {
		want = append(want, m.Keys...)
	}
	if got := receive(t, q, len(keys)).Keys; !slices.Equal(got, want) {
		t.Error("the messages of a partition came out of order")
	}
}
