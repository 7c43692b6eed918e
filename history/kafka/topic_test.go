package kafka_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

func TestPublishMakesTheTopicAgain(t *testing.T) { publishAgain(t, fresh(t, cluster(t).ListenAddrs())) }

func TestConsumeMakesTheTopicAgain(t *testing.T) { consumeAgain(t, fresh(t, cluster(t).ListenAddrs())) }

func TestOffsetMovedByHand(t *testing.T) { moveOffset(t, fresh(t, cluster(t).ListenAddrs())) }

func deleteTopic(t *testing.T, cfg kafka.Config) {
	t.Helper()
	client := driver.Client{Addr: driver.TCP(cfg.Brokers...)}
	before := make([]int64, cfg.Partitions)
	for p := range before {
		before[p] = lastOffset(t, client, cfg.Topic, p)
	}
	res, err := client.DeleteTopics(t.Context(), &driver.DeleteTopicsRequest{Topics: []string{cfg.Topic}})
	if err != nil || res.Errors[cfg.Topic] != nil {
		t.Fatalf("delete %s: %v, %v", cfg.Topic, err, res)
	}
	// The brokers learn of it later and take messages for the old topic until then. A job may have recreated the
	// topic by now; a new one begins at 0.
	late := time.Now().Add(time.Minute)
	for p, n := range before {
		for n > 0 && lastOffset(t, client, cfg.Topic, p) >= n {
			if time.Now().After(late) {
				t.Fatalf("partition %d of %s is still there", p, cfg.Topic)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// lastOffset returns the end of the partition, -1 if missing.
func lastOffset(t *testing.T, client driver.Client, topic string, p int) int64 {
	t.Helper()
	requests := map[string][]driver.OffsetRequest{topic: {driver.LastOffsetOf(p)}}
	res, err := client.ListOffsets(t.Context(), &driver.ListOffsetsRequest{Topics: requests})
	if err != nil || len(res.Topics[topic]) != 1 || res.Topics[topic][0].Error != nil {
		return -1
	}
	return res.Topics[topic][0].LastOffset
}

func partitionsOf(t *testing.T, cfg kafka.Config) int {
	t.Helper()
	all, err := driver.LookupPartitions(t.Context(), "tcp", cfg.Brokers[0], cfg.Topic)
	if err != nil {
		t.Errorf("partitions of %s: %v", cfg.Topic, err)
	}
	return len(all)
}

// publishAgain deletes the topic under services. Everything they then announce, concurrently or not, is on the new
// one.
func publishAgain(t *testing.T, cfg kafka.Config) {
	cfg.Partitions = 3
	services := []*kafka.Queue{open(t, cfg), open(t, cfg)}
	for _, q := range services {
		publish(t, q, announced(100))
	}
	var log strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	services[1] = open(t, cfg)
	publish(t, services[1], announced(100))
	deleteTopic(t, cfg)
	publish(t, services[1], announced(100))
	if want := `level=ERROR msg="topic was deleted; created again" topic=` + cfg.Topic; strings.Count(log.String(), want) != 1 {
		t.Errorf("the log has %q, want %q once", log.String(), want)
	}
	deleteTopic(t, cfg)
	var wg sync.WaitGroup
	for _, q := range services {
		wg.Go(func() { publish(t, q, announced(100)) })
	}
	wg.Wait()
	if n := partitionsOf(t, cfg); n != 3 {
		t.Errorf("%d partitions, want 3 as configured", n)
	}
	receive(t, services[0], 200)
}

// follow runs a job that commits everything. It returns channels of received keys and owned buckets.
func follow(t *testing.T, q *kafka.Queue) (keys chan history.Key, owned chan int) {
	keys, owned = make(chan history.Key, 100_000), make(chan int, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
			owned <- len(assignment.Buckets())
			for {
				d, err := assignment.Fetch(ctx)
				if err != nil {
					return err
				}
				for _, a := range d.Keys {
					keys <- a.Key
				}
				if err := assignment.Commit(ctx, d); err != nil {
					return err
				}
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("consume: %v", err)
		}
	})
	return keys, owned
}

// await waits for all announced keys.
func await(t *testing.T, keys chan history.Key, announced []history.Announcement) {
	t.Helper()
	missing := map[history.Key]bool{}
	for _, a := range announced {
		missing[a.Key] = true
	}
	late := time.After(time.Minute)
	for len(missing) > 0 {
		select {
		case k := <-keys:
			delete(missing, k)
		case <-late:
			t.Fatalf("%d of %d keys have not come", len(missing), len(announced))
		}
	}
}

// consumeAgain deletes the topic under a job while nobody publishes. The job owns all buckets again, for its sweep.
func consumeAgain(t *testing.T, cfg kafka.Config) {
	t.Parallel()
	cfg.Partitions = 3
	q := open(t, cfg)
	keys, owned := follow(t, q)
	publish(t, q, announced(100))
	await(t, keys, announced(100))
	for len(owned) > 0 {
		<-owned
	}
	deleteTopic(t, cfg)
	for n, late := 0, time.After(time.Minute); n != history.Buckets; {
		select {
		case n = <-owned: // zero while the topic is missing
		case <-late:
			t.Fatalf("%d buckets after the topic was deleted, want all", n)
		}
	}
	if n := partitionsOf(t, cfg); n != 3 {
		t.Errorf("%d partitions, want 3 as configured", n)
	}
	publish(t, q, announced(50))
	await(t, keys, announced(50))
}

// moveOffset moves the group's offset to where there is no message, ahead and behind.
func moveOffset(t *testing.T, cfg kafka.Config) {
	t.Parallel()
	cfg.Partitions = 1
	q := open(t, cfg)
	for _, offset := range []int64{1000, 0} {
		publish(t, q, announced(10))
		receive(t, q, 10)
		client := driver.Client{Addr: driver.TCP(cfg.Brokers...)}
		res, err := client.OffsetCommit(t.Context(), &driver.OffsetCommitRequest{
			GroupID: cfg.Group, GenerationID: -1,
			Topics: map[string][]driver.OffsetCommit{cfg.Topic: {{Partition: 0, Offset: offset}}},
		})
		if err != nil || res.Topics[cfg.Topic][0].Error != nil {
			t.Fatalf("move to %d: %v, %+v", offset, err, res)
		}
		receive(t, q, 10) // from the first existing message
	}
	if n := q.Skipped(); n != 0 {
		t.Errorf("%d messages counted as gone, want none", n)
	}
}

func TestSkippedIsCounted(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	publish(t, q, announced(1))
	receive(t, q, 1)
	for range 5 {
		publish(t, q, announced(1))
	}
	if err := c.DeleteRecords(cfg.Topic, 0, 4); err != nil {
		t.Fatal(err)
	}
	receive(t, q, 2)
	if n := q.Skipped(); n != 3 {
		t.Errorf("%d messages counted as gone, want 3", n)
	}
}

// TestGroupDividedTooEarly assigns partitions before the topic exists; the members look after its creation.
func TestGroupDividedTooEarly(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	q := open(t, fresh(t, c.ListenAddrs()))
	var joined atomic.Bool
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1, When: func(kmsg.Request) bool {
		joined.Store(true)
		return true
	}})
	unseen := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.UnknownTopicOrPartition,
		When: func(r kmsg.Request) bool { return joined.Load() && r.GetVersion() <= 6 },
	})
	_, owned := follow(t, q)
	for _, want := range []int{0, history.Buckets} {
		select {
		case n := <-owned:
			if n != want {
				t.Errorf("%d buckets, want %d", n, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no generation with %d buckets", want)
		}
	}
	if unseen.Hits() != 1 {
		t.Errorf("the topic was missed %d times, want once", unseen.Hits())
	}
}

func TestLettersAndFirstsMakeTheirTopicsAgain(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	dead, err := kafka.OpenDead(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	deleteTopic(t, cfg)
	if err := dead.Add(t.Context(), []history.Dead{{Key: history.UserKey("ann"), At: 1}}); err != nil {
		t.Errorf("add: %v", err)
	}
	if got := redriven(t, dead, nil); len(got) != 1 {
		t.Errorf("redrove %v, want one letter", got)
	}
	first, err := kafka.NewFirstOfDay(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	deleteTopic(t, cfg)
	if err := first.Announce(t.Context(), []history.First{{Sighting: history.Sighting{UID: "ann", Day: 20_778}}}); err != nil {
		t.Errorf("announce: %v", err)
	}
}

func TestTopicGrows(t *testing.T) { growTopic(t, fresh(t, cluster(t).ListenAddrs())) }

// growTopic adds partitions under a job, which then reads all of them.
func growTopic(t *testing.T, cfg kafka.Config) {
	t.Parallel()
	cfg.Partitions = 2
	q := open(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	generations := 0
	err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		if generations++; generations == 1 {
			grow(t, cfg, 5)
			<-ctx.Done()
			return ctx.Err()
		}
		publish(t, open(t, cfg), announced(1000))
		d, err := fetch(ctx, assignment, 1000)
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
