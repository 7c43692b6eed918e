package kafka_test

import (
	"context"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

func TestTopicGrows(t *testing.T) { growTopic(t, fresh(t, cluster(t).ListenAddrs())) }

// growTopic adds partitions under a job: it goes on with all of them.
func growTopic(t *testing.T, cfg kafka.Config) {
	t.Parallel()
	cfg.Partitions = 2
	q := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	generations := 0
	err := q.Consume(ctx, func(ctx context.Context, claim history.Claim) error {
		if generations++; generations == 1 {
			grow(t, cfg, 5)
			<-ctx.Done()
			return ctx.Err()
		}
		publish(t, open(t, cfg), announced(1000))
		d, err := fetch(ctx, claim, 1000)
		if err == nil && len(d.Offsets) != 5 {
			t.Errorf("messages of %d partitions, want 5", len(d.Offsets))
		}
		return err
	})
	if err != nil || ctx.Err() != nil {
		t.Errorf("consume: %v, %v", err, ctx.Err())
	}
}

func grow(t *testing.T, cfg kafka.Config, partitions int32) {
	t.Helper()
	client := driver.Client{Addr: driver.TCP(cfg.Brokers...)}
	topic := driver.TopicPartitionsConfig{Name: cfg.Topic, Count: partitions}
	res, err := client.CreatePartitions(t.Context(), &driver.CreatePartitionsRequest{Topics: []driver.TopicPartitionsConfig{topic}})
	if err != nil || res.Errors[cfg.Topic] != nil {
		t.Errorf("grow: %v, %v", err, res)
	}
}
