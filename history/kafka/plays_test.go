package kafka_test

import (
	"context"
	"errors"
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

// TestPlays sends more than one request takes. A user's messages are in one partition, in order, also after a request
// that the broker refused at first.
func TestPlays(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 2
	p, err := kafka.NewPlays(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			one := kmsg.ProduceResponseTopic{Topic: topic.Topic}
			for _, partition := range topic.Partitions {
				one.Partitions = append(one.Partitions, kmsg.ProduceResponseTopicPartition{Partition: partition.Partition, ErrorCode: kerr.NotLeaderForPartition.Code})
			}
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	want := make(map[string][]history.PlayMessage)
	var all []history.PlayMessage
	for i := range 5000 {
		k := announced(i%7 + 1)[i%7].Key
		m := history.PlayMessage{Kind: history.PlayCompleted, Key: k, Viewing: 7, At: int64(i)}
		all, want[k.UID] = append(all, m), append(want[k.UID], m)
	}
	for _, some := range [][]history.PlayMessage{nil, all} {
		if err := p.Send(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	got := make(map[string][]history.PlayMessage)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for partition := range cfg.Partitions {
		r := driver.NewReader(driver.ReaderConfig{Brokers: cfg.Brokers, Topic: cfg.Topic, Partition: partition, MaxWait: 100 * time.Millisecond})
		defer r.Close()
		for uid, messages := range want {
			if int(history.BucketOf(uid))%cfg.Partitions != partition {
				continue
			}
			for range messages {
				m, err := r.ReadMessage(ctx)
				if err != nil {
					t.Fatalf("partition %d: %v", partition, err)
				}
				one, err := wire.Play(m.Value)
				if err != nil || one.Key.UID != string(m.Key) {
					t.Errorf("message %q: got %+v, %v", m.Key, one, err)
				}
				got[one.Key.UID] = append(got[one.Key.UID], one)
			}
		}
	}
	for uid, messages := range want {
		if !slices.Equal(got[uid], messages) {
			t.Errorf("%s: %d messages, or another order, want %d", uid, len(got[uid]), len(messages))
		}
	}
}

func TestPlaysWithoutBrokers(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "history.plays"))
	p, err := kafka.NewPlays(kafka.Config{Brokers: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	messages := []history.PlayMessage{{Kind: history.PlaysCleared, Key: history.UserKey("ann"), At: 1}}
	if err := p.Send(t.Context(), messages); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Send(ctx, messages); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("send to nobody: %v, want unavailable", err)
	}
}
