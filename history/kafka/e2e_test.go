//go:build e2e

package kafka_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
)

func brokers(tb testing.TB) []string {
	tb.Helper()
	const name = "PLAYHEAD_TEST_KAFKA"
	addr := os.Getenv(name)
	if addr == "" {
		tb.Fatalf("%s is not set, want host:port of a Kafka broker", name)
	}
	return strings.Split(addr, ",")
}

func TestBrokersContract(t *testing.T) { historytest.Queue(t, topics(brokers(t))) }

func TestBrokersRereadContract(t *testing.T) { historytest.QueueReread(t, topics(brokers(t))) }

func TestBrokersGroupContract(t *testing.T) { historytest.QueueGroup(t, topics(brokers(t))) }

func TestBrokersKilledMember(t *testing.T) { killMember(t, fresh(t, brokers(t))) }

func TestBrokersFirstOfDay(t *testing.T) { announceFirsts(t, fresh(t, brokers(t))) }

func TestBrokersTopicGrows(t *testing.T) { growTopic(t, fresh(t, brokers(t))) }

// TestBrokersConsumeGoesOnInTheNewTopic deletes the topic under a job and publishes at once. The first offsets of
// the new topic are below the job's.
func TestBrokersConsumeGoesOnInTheNewTopic(t *testing.T) {
	cfg := fresh(t, brokers(t))
	cfg.Partitions = 1
	q := open(t, cfg)
	keys, _ := follow(t, q)
	for round := range 3 {
		for range 1 + round {
			publish(t, q, announced(10))
			await(t, keys, announced(10))
		}
		deleteTopic(t, cfg)
		publish(t, q, announced(10))
		await(t, keys, announced(10))
	}
}

func BenchmarkPublish(b *testing.B) {
	q, keys := open(b, fresh(b, brokers(b))), announced(10_000)
	b.ReportAllocs()
	for b.Loop() {
		publish(b, q, keys)
	}
	messages, bytes := q.Stats()
	b.ReportMetric(float64(b.N*len(keys))/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric(float64(bytes)/float64(b.N*len(keys)), "bytes/key")
	b.ReportMetric(float64(messages)/float64(b.N), "messages/op")
}

func BenchmarkConsume(b *testing.B) {
	q, keys := open(b, fresh(b, brokers(b))), announced(10_000)
	for range 100 {
		publish(b, q, keys)
	}
	for b.Loop() { // each from the start: nothing is committed
		err := q.Consume(b.Context(), func(ctx context.Context, assignment history.Assignment) error {
			_, err := fetch(ctx, assignment, 100*len(keys))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*100*len(keys))/b.Elapsed().Seconds(), "keys/s")
}

func TestBrokersPublishMakesTheTopicAgain(t *testing.T) { publishAgain(t, fresh(t, brokers(t))) }

func TestBrokersConsumeMakesTheTopicAgain(t *testing.T) { consumeAgain(t, fresh(t, brokers(t))) }

func TestBrokersThroughNewTopic(t *testing.T) { throughNewTopic(t, fresh(t, brokers(t))) }

func TestBrokersOffsetMovedByHand(t *testing.T) { moveOffset(t, fresh(t, brokers(t))) }
