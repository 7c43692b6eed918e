package kafka_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
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

func TestConsumeHandsOverPoison(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	keys, garbage := announced(20), []byte("not a batch")
	for _, part := range [][]history.Announcement{keys[:10], nil, keys[10:]} {
		if part != nil {
			publish(t, q, part)
			continue
		}
		w := driver.Writer{Addr: driver.TCP(cfg.Brokers...), Topic: cfg.Topic, BatchSize: 1, RequiredAcks: driver.RequireAll}
		if err := w.WriteMessages(t.Context(), driver.Message{Value: garbage}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
	}
	got := receive(t, q, 21)
	if len(got.Keys) != 20 || len(got.Poison) != 1 || got.Messages != 3 {
		t.Fatalf("%d keys, %d poison, %d messages, want 20, 1 and 3", len(got.Keys), len(got.Poison), got.Messages)
	}
	if p := got.Poison[0]; !bytes.Equal(p.Payload, garbage) || p.Partition != 0 || p.Offset != 1 || !errors.Is(p.Err, wire.ErrCorrupt) {
		t.Errorf("poison %+v, want %q at offset 1 with ErrCorrupt", p, garbage)
	}
	publish(t, q, keys[:1])
	if got := receive(t, q, 1); len(got.Poison) != 0 {
		t.Error("poison came again after its commit")
	}
}

func TestConsumeGoesOnAfterAGap(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	keys := announced(5)
	publish(t, q, keys[:1])
	receive(t, q, 1) // commits offset 1
	for i := range keys[1:] {
		publish(t, q, keys[i+1:i+2])
	}
	if err := c.DeleteRecords(cfg.Topic, 0, 3); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, q, 2).Keys; got[0] != keys[3] || got[1] != keys[4] {
		t.Errorf("got %v, want the two that retention left", got)
	}
}

// TestConsumeFromANewLog recreates the topic under a job. The generation ends, and the next one reads and commits
// the new log.
func TestConsumeFromANewLog(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	keys := announced(5)
	generations := 0
	err := q.Consume(t.Context(), func(ctx context.Context, assignment history.Assignment) error {
		generations++
		if generations == 1 {
			publish(t, q, keys)
			publish(t, q, keys)
		}
		d, err := fetch(ctx, assignment, len(keys)*(3-generations))
		if err != nil {
			return err
		}
		if want := int64(3 - generations); d.Offsets[0] != want {
			t.Errorf("generation %d: fetched up to offset %d, want %d", generations, d.Offsets[0], want)
		}
		if err := assignment.Commit(ctx, d); err != nil || generations == 2 {
			return err
		}
		if err := errors.Join(c.DeleteTopic(cfg.Topic), c.CreateTopic(cfg.Topic, 1, nil)); err != nil {
			return err
		}
		publish(t, q, keys)
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil || generations != 2 {
		t.Fatalf("%d generations, %v, want 2", generations, err)
	}
	publish(t, q, keys[:1])
	if got := receive(t, q, 1); got.Offsets[0] != 2 {
		t.Errorf("got the message before offset %d, want that before 2", got.Offsets[0])
	}
}

// TestConsumeFromAShorterLog has a log that ends before the committed offset, as after the loss of a leader. The
// job reads and commits its first message, despite the lower offset.
func TestConsumeFromAShorterLog(t *testing.T) {
	c := cluster(t)
	cfg := fresh(t, c.ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	keys := announced(5)
	publish(t, q, keys)
	err := q.Consume(t.Context(), func(ctx context.Context, assignment history.Assignment) error {
		return assignment.Commit(ctx, history.Delivery{Offsets: map[int]int64{0: 7}})
	})
	if err != nil {
		t.Fatal(err)
	}
	for want := int64(1); want <= 2; want++ {
		if got := receive(t, q, len(keys)); got.Offsets[0] != want || got.Messages != 1 {
			t.Errorf("got %d messages before offset %d, want one before %d", got.Messages, got.Offsets[0], want)
		}
		publish(t, q, keys)
	}
}

func TestConsumeTriesUntilThereIsAGroup(t *testing.T) {
	c := cluster(t)
	q := open(t, fresh(t, c.ListenAddrs()))
	missing := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, TopLevel: true, Err: kerr.CoordinatorNotAvailable})
	publish(t, q, announced(10))
	receive(t, q, 10)
	if missing.Hits() != 1 {
		t.Errorf("%d refusals, want 1", missing.Hits())
	}
}

// TestConsumeTriesUntilThePartitionsAreCounted hides the number of partitions when a generation begins.
func TestConsumeTriesUntilThePartitionsAreCounted(t *testing.T) {
	c := cluster(t)
	q := open(t, fresh(t, c.ListenAddrs()))
	var joined atomic.Bool
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SyncGroup}, Observe: true, Count: -1, When: func(kmsg.Request) bool {
		joined.Store(true)
		return true
	}})
	refused := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable, Count: 3,
		When: func(kmsg.Request) bool { return joined.Load() },
	})
	publish(t, q, announced(10))
	receive(t, q, 10)
	if refused.Hits() != 3 {
		t.Errorf("%d refusals, want 3", refused.Hits())
	}
}

// TestConsumeAfterAFailedCommit refuses a commit. The generation ends, and the next one delivers again, whether
// handle waits or returns the error.
func TestConsumeAfterAFailedCommit(t *testing.T) {
	for name, wait := range map[string]bool{"wait": true, "return": false} {
		t.Run(name, func(t *testing.T) { consumeAfterAFailedCommit(t, wait) })
	}
}

func consumeAfterAFailedCommit(t *testing.T, wait bool) {
	c := cluster(t)
	q := open(t, fresh(t, c.ListenAddrs()))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.IllegalGeneration})
	publish(t, q, announced(10))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	generations := 0
	err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		generations++
		d, err := fetch(ctx, assignment, 10)
		if err != nil {
			return err
		}
		if err = assignment.Commit(ctx, d); err != nil && wait {
			<-ctx.Done()
			if again := assignment.Commit(context.WithoutCancel(ctx), d); again == nil {
				t.Error("a commit succeeded after one had failed")
			}
		}
		return err
	})
	if err != nil || generations != 2 {
		t.Errorf("%d generations, %v, want 2 and no error", generations, err)
	}
}

// TestConsumeWithoutPartitions has more members than partitions.
func TestConsumeWithoutPartitions(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.Partitions, cfg.SessionTimeout = 1, time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	idle := make(chan struct{}, 2)
	done := make(chan error, 2)
	for range 2 {
		q := open(t, cfg)
		go func() {
			done <- q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
				if len(assignment.Buckets()) == 0 {
					idle <- struct{}{}
				}
				_, err := assignment.Fetch(ctx)
				return err
			})
		}()
	}
	select {
	case <-idle:
	case <-ctx.Done():
		t.Error("no member was left without partitions")
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestStopsWhileItJoins: a join may wait for the sessions of killed members, a consumer that is stopped does not.
func TestStopsWhileItJoins(t *testing.T) {
	c := cluster(t)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	defer close(answer)
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.SleepControl(func() {
			asked <- struct{}{}
			<-answer
		})
		return nil, nil, false
	})
	q := open(t, fresh(t, c.ListenAddrs()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- q.Consume(ctx, func(context.Context, history.Assignment) error { return errors.New("it has joined") })
	}()
	<-asked
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for its join")
	}
}

func publish(tb testing.TB, q *kafka.Queue, keys []history.Announcement) {
	tb.Helper()
	if unsent, err := q.Publish(tb.Context(), keys); err != nil || len(unsent) != 0 {
		tb.Fatalf("publish: %d of %d unsent, %v", len(unsent), len(keys), err)
	}
}

// memberOf passes brokers, topic, group and session timeout to a child process.
const memberOf = "PLAYHEAD_TEST_MEMBER_OF"

func TestMain(m *testing.M) {
	if args := strings.Fields(os.Getenv(memberOf)); len(args) == 4 {
		session, _ := time.ParseDuration(args[3]) // Open refuses zero
		hold(kafka.Config{Brokers: strings.Split(args[0], ","), Topic: args[1], Group: args[2], SessionTimeout: session})
	}
	os.Exit(m.Run())
}

// hold fetches ten keys, reports them, and holds them until it is killed.
func hold(cfg kafka.Config) {
	ctx := context.Background()
	q, err := kafka.Open(ctx, cfg)
	if err != nil {
		panic(err)
	}
	err = q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		if _, err := fetch(ctx, assignment, 10); err != nil {
			return err
		}
		_, err := os.Stdout.WriteString("holding\n")
		<-ctx.Done()
		return err
	})
	panic(err)
}

func TestKilledMember(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.SessionTimeout = time.Second
	killMember(t, cfg)
}

// killMember kills a process that has fetched keys: another gets them after the session timeout.
func killMember(t *testing.T, cfg kafka.Config) {
	q := open(t, cfg)
	publish(t, q, announced(10))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	args := []string{strings.Join(cfg.Brokers, ","), cfg.Topic, cfg.Group, cfg.SessionTimeout.String()}
	cmd.Env = append(os.Environ(), memberOf+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "holding\n" {
		t.Errorf("the member said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	start := time.Now()
	receive(t, q, 10)
	if took := time.Since(start); took > 5*cfg.SessionTimeout {
		t.Errorf("another member had the keys after %v, want about %v", took, cfg.SessionTimeout)
	}
}
