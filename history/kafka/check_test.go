package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

// TestExistingTopicsAreChecked: a useless topic ends the start, a volatile one is reported.
func TestExistingTopicsAreChecked(t *testing.T) {
	brokers := cluster(t, kfake.NumBrokers(3)).ListenAddrs()
	for name, tt := range map[string]struct {
		replicas       int
		settings       map[string]string
		unusable, lose string // in the errors; none if empty
	}{
		"safe":                  {replicas: 3, settings: map[string]string{"min.insync.replicas": "2"}},
		"two replicas":          {replicas: 2, lose: "replication factor 2, want 3"},
		"acknowledged by one":   {replicas: 3, settings: map[string]string{"min.insync.replicas": "1"}, lose: "min.insync.replicas 1, want 2"},
		"an hour":               {replicas: 3, settings: map[string]string{"min.insync.replicas": "2", "retention.ms": "3600000"}, lose: "retention.ms 3600000, want 172800000 or more"},
		"takes no message":      {replicas: 1, settings: map[string]string{"min.insync.replicas": "2"}, unusable: "takes no message: want 1", lose: "replication factor 1"},
		"takes short messages":  {replicas: 3, settings: map[string]string{"min.insync.replicas": "2", "max.message.bytes": "1000"}, unusable: "max.message.bytes 1000, want 524288 or more"},
		"drops unread messages": {replicas: 3, settings: map[string]string{"min.insync.replicas": "2", "cleanup.policy": "compact"}, unusable: "want delete"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := fresh(t, brokers)
			createTopic(t, cfg, tt.replicas, tt.settings)
			q, err := kafka.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			err = q.Prepare(t.Context())
			if final := err != nil && !errors.Is(err, history.ErrUnavailable); final != (tt.unusable != "") || !strings.Contains(fmt.Sprint(err), tt.unusable) {
				t.Errorf("Prepare = %v, want a final error with %q", err, tt.unusable)
			}
			err = q.Fit(t.Context())
			if tt.unusable != "" {
				tt.lose = tt.unusable
			}
			if (err != nil) != (tt.lose != "") || errors.Is(err, history.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), tt.lose) {
				t.Errorf("Fit = %v, want %q", err, tt.lose)
			}
		})
	}
}

func createTopic(t *testing.T, cfg kafka.Config, replicas int, settings map[string]string) {
	t.Helper()
	topic := driver.TopicConfig{Topic: cfg.Topic, NumPartitions: 2, ReplicationFactor: replicas}
	for name, value := range settings {
		topic.ConfigEntries = append(topic.ConfigEntries, driver.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	client := driver.Client{Addr: driver.TCP(cfg.Brokers...)}
	res, err := client.CreateTopics(t.Context(), &driver.CreateTopicsRequest{Topics: []driver.TopicConfig{topic}})
	if err != nil || res.Errors[cfg.Topic] != nil {
		t.Fatalf("create %s: %v, %v", cfg.Topic, err, res)
	}
}

// TestNewTopicsAreSafe: a new topic is on three brokers, if there are three.
func TestNewTopicsAreSafe(t *testing.T) {
	for brokers, want := range map[int]int{1: 1, 2: 2, 4: 3} {
		cfg := fresh(t, cluster(t, kfake.NumBrokers(brokers)).ListenAddrs())
		q := open(t, cfg)
		if err := q.Fit(t.Context()); err != nil {
			t.Errorf("%d brokers: Fit = %v", brokers, err)
		}
		res, err := (&driver.Client{Addr: driver.TCP(cfg.Brokers...)}).Metadata(t.Context(), &driver.MetadataRequest{Topics: []string{cfg.Topic}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(res.Topics[0].Partitions[0].Replicas); got != want {
			t.Errorf("%d brokers: %d replicas, want %d", brokers, got, want)
		}
	}
}
