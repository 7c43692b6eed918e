//go:build e2e

package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/playstest"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestPlays kills jobs while a client reports. In the end the topic has what was acknowledged, each user
// in one partition.
func TestPlays(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	s := pipeline.NewStack(t, e, 0, 0)
	defer s.Stop(t)
	topic := s.Name + ".plays"
	job := func() {
		s.StartJob(t, "--plays-topic", topic, "--sweep-every", "2s", "--sweep-age", "4s")
	}
	s.StartService(t, pipeline.FreeAddr(t), "--hold", "1s")
	job()
	c := playstest.New(t, fmt.Sprint("played-", time.Now().UnixNano(), "-"))
	conn := pipeline.Dial(t, s.RPC)
	service := func() historyv1.HistoryServiceClient { return historyv1.NewHistoryServiceClient(conn) }
	for round := range 4 {
		for range 100 {
			c.Act(service)
		}
		if round < 3 {
			s.Jobs[0].Kill()
			s.Jobs = nil
			job()
		}
	}
	pipeline.Await(t, 3*time.Minute, "the topic to have all plays", func(ctx context.Context) error {
		messages, err := topicOf(ctx, t, e.Kafka, topic)
		if err != nil {
			return err
		}
		return c.Judge(messages)
	})
}

// topicOf returns the messages of a topic, and fails for a user in two partitions.
func topicOf(ctx context.Context, t *testing.T, brokers, topic string) (messages []history.PlayMessage, err error) {
	all, err := process.Messages(ctx, brokers, topic)
	if err != nil {
		return nil, err
	}
	partitions := make(map[string]int)
	for _, m := range all {
		one, err := wire.Play(m.Value)
		if err != nil || one.Key.UID != string(m.Key) {
			t.Errorf("message %q: %+v, %v", m.Key, one, err)
		}
		if was, ok := partitions[one.Key.UID]; ok && was != m.Partition {
			t.Errorf("%s is in the partitions %d and %d", one.Key.UID, was, m.Partition)
		}
		partitions[one.Key.UID] = m.Partition
		messages = append(messages, one)
	}
	return messages, nil
}
