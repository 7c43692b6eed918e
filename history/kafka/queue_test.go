package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/kafka"
)

func TestContract(t *testing.T) { historytest.Queue(t, topics(cluster(t).ListenAddrs())) }

func TestRereadContract(t *testing.T) { historytest.QueueReread(t, topics(cluster(t).ListenAddrs())) }

func TestGroupContract(t *testing.T) { historytest.QueueGroup(t, topics(cluster(t).ListenAddrs())) }

// cluster starts brokers in this process.
func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// topics opens a fresh topic and group for each test.
func topics(brokers []string) historytest.OpenQueue {
	return func(t *testing.T) (history.Publisher, func(*testing.T) history.Consumer) {
		cfg := fresh(t, brokers)
		return open(t, cfg), func(t *testing.T) history.Consumer { return open(t, cfg) }
	}
}

// fresh names a topic and a group that nobody has used. The topic goes at the end
// of the test.
func fresh(tb testing.TB, brokers []string) kafka.Config {
	tb.Helper()
	topic := "flush-" + rand.Text()
	tb.Cleanup(func() {
		client := driver.Client{Addr: driver.TCP(brokers...)}
		_, _ = client.DeleteTopics(context.WithoutCancel(tb.Context()), &driver.DeleteTopicsRequest{Topics: []string{topic}})
	})
	return kafka.Config{
		Brokers: brokers, Topic: topic, Group: "job-" + topic, SessionTimeout: 6 * time.Second,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
}

// open opens a queue and closes it at the end of the test.
func open(tb testing.TB, cfg kafka.Config) *kafka.Queue {
	tb.Helper()
	q, err := kafka.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = q.Close() })
	return q
}

// announced returns n keys, two of each user.
func announced(n int) []history.Announcement {
	keys := make([]history.Announcement, n)
	for i := range keys {
		keys[i].Key = history.Key{UID: fmt.Sprintf("user%d", i/2), Object: history.Object{ID: fmt.Sprint(i), Type: 1}}
	}
	return keys
}

// fetch fetches until n keys and poisoned messages have come.
func fetch(ctx context.Context, claim history.Claim, n int) (history.Delivery, error) {
	var all history.Delivery
	for len(all.Keys)+len(all.Poison) < n {
		d, err := claim.Fetch(ctx)
		if err != nil {
			return all, err
		}
		all.Keys, all.Poison = append(all.Keys, d.Keys...), append(all.Poison, d.Poison...)
		all.Messages, all.Bytes, all.Offsets = all.Messages+d.Messages, all.Bytes+d.Bytes, d.Offsets
	}
	return all, nil
}

// receive returns the next n keys and poisoned messages, committed.
func receive(t *testing.T, q *kafka.Queue, n int) history.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got history.Delivery
	err := q.Consume(ctx, func(ctx context.Context, claim history.Claim) (err error) {
		if got, err = fetch(ctx, claim, n); err != nil {
			return err
		}
		return claim.Commit(ctx, got)
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("consume: %v, %v", err, ctx.Err())
	}
	return got
}
