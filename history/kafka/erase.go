package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
)

// Topics are topics that name users. A message cannot be taken out of one: it goes when its time is over.
type Topics struct {
	queue *Queue
	names []string
}

var _ history.Eraser = (*Topics)(nil)

// Topics returns the named topics of the brokers of a queue.
func (q *Queue) Topics(names ...string) *Topics { return &Topics{q, names} }

// Held implements [history.Eraser]. Nobody knows which messages are of whom.
func (t *Topics) Held(context.Context, string, int64) (map[string]int, error) { return nil, nil }

// Erase implements [history.Eraser].
func (t *Topics) Erase(context.Context, string, int64) error { return nil }

// Remains implements [history.Eraser].
func (t *Topics) Remains(ctx context.Context) []string {
	remains := make([]string, len(t.names))
	for i, name := range t.names {
		remains[i] = fmt.Sprintf("Kafka topic %q: in messages of up to now, for %s", name, t.retention(ctx, name))
	}
	return remains
}

// retention says how long a topic keeps messages.
func (t *Topics) retention(ctx context.Context, topic string) string {
	const setting = "retention.ms"
	res, err := t.queue.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{setting}},
	}})
	if err != nil {
		return fmt.Sprintf("as long as it keeps them (%v)", err)
	}
	for _, r := range res.Resources {
		err = errors.Join(err, r.Error)
		for _, c := range r.ConfigEntries {
			if ms, err := strconv.ParseInt(c.ConfigValue, 10, 64); c.ConfigName == setting && err == nil && ms >= 0 {
				return (time.Duration(ms) * time.Millisecond).String()
			}
		}
	}
	return fmt.Sprintf("as long as it keeps them (%s is not known: %v)", setting, err)
}
