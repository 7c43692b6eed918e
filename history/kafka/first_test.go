package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/wire"
)

func TestFirstOfDay(t *testing.T) { announceFirsts(t, fresh(t, cluster(t).ListenAddrs())) }

// announceFirsts announces more than fits into one request and reads it as others do.
func announceFirsts(t *testing.T, cfg kafka.Config) {
	const n = 2500
	cfg.Partitions = 2
	f, err := kafka.NewFirstOfDay(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	firsts := make([]history.First, n)
	for i := range firsts {
		firsts[i] = history.First{Sighting: history.Sighting{UID: fmt.Sprint("user", i), Day: 20_778}, At: int64(i)}
	}
	for _, some := range [][]history.First{nil, firsts} {
		if err := f.Announce(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[history.First]bool{}
	for p := range cfg.Partitions {
		r := driver.NewReader(driver.ReaderConfig{Brokers: cfg.Brokers, Topic: cfg.Topic, Partition: p, MaxWait: 100 * time.Millisecond})
		defer r.Close()
		want := 0
		for _, one := range firsts {
			if int(history.BucketOf(one.UID))%cfg.Partitions == p {
				want++
			}
		}
		for range want {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				t.Fatalf("partition %d: %v, after %d messages", p, err, len(got))
			}
			one, err := wire.First(m.Value)
			if err != nil || one.UID != string(m.Key) || one.Day.Number() != 20261121 {
				t.Errorf("message %q: got %+v, %v", m.Key, one, err)
			}
			got[one] = true
		}
	}
	if len(got) != n {
		t.Errorf("%d users came, want %d", len(got), n)
	}
}

func TestFirstOfDayWithoutBrokers(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(1, "history.first-of-day"))
	f, err := kafka.NewFirstOfDay(kafka.Config{Brokers: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	firsts := []history.First{{Sighting: history.Sighting{UID: "ann", Day: 20_778}}}
	if err := f.Announce(t.Context(), firsts); err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Announce(ctx, firsts); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("announce to nobody: %v, want unavailable", err)
	}
}
