package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// Messages returns all messages of a topic, partition by partition, and leaves them there.
func Messages(ctx context.Context, broker, topic string) (all []kafka.Message, err error) {
	client := &kafka.Client{Addr: kafka.TCP(broker)}
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, t := range meta.Topics {
		if t.Error != nil {
			return nil, fmt.Errorf("read topic %s: %w", topic, t.Error)
		}
		for _, p := range t.Partitions {
			if all, err = appendPartition(ctx, all, broker, p); err != nil {
				return nil, fmt.Errorf("read topic %s: %w", topic, err)
			}
		}
	}
	return all, nil
}

func appendPartition(ctx context.Context, all []kafka.Message, broker string, p kafka.Partition) ([]kafka.Message, error) {
	conn, err := kafka.DialLeader(ctx, "tcp", broker, p.Topic, p.ID)
	if err != nil {
		return nil, err
	}
	next, end, err := conn.ReadOffsets()
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: p.Topic, Partition: p.ID, MaxWait: 100 * time.Millisecond})
	for next < end && err == nil {
		var m kafka.Message
		if m, err = r.ReadMessage(ctx); err == nil {
			all, next = append(all, m), m.Offset+1
		}
	}
	return all, errors.Join(err, r.Close())
}
