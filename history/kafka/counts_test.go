package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/kafka"
)

// TestCounts publishes statements and consumes them. What was not handled comes again, with a message that cannot be
// decoded.
func TestCounts(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	c, err := kafka.NewCounts(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []count.Statement
	for i := range 2500 {
		all = append(all, count.Statement{UID: fmt.Sprint("user", i%50), Object: history.Object{ID: fmt.Sprint("film", i%7), Type: 1}, CellTime: int64(i + 1)})
	}
	if unsent, err := c.Publish(t.Context(), all); len(unsent) > 0 || err != nil {
		t.Fatalf("publish: %d unsent, %v", len(unsent), err)
	}
	if unsent, err := c.Publish(t.Context(), nil); len(unsent) > 0 || err != nil {
		t.Errorf("publish nothing: %v, %v", unsent, err)
	}
	var got []int64
	tries := 0
	for len(got) < len(all) {
		ctx, stop := context.WithCancel(t.Context())
		_ = c.Consume(ctx, func(_ context.Context, d count.Delivery) error {
			if tries++; tries == 1 {
				return context.Canceled
			}
			if len(d.Poison) > 0 || d.Messages == 0 {
				t.Errorf("delivery: %d messages, %v", d.Messages, d.Poison)
			}
			for _, s := range d.Statements {
				got = append(got, s.CellTime)
			}
			if len(got) >= len(all) {
				stop()
			}
			return nil
		})
		stop()
	}
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != len(all) {
		t.Errorf("got %d statements, want %d", len(got), len(all))
	}
}

// TestThrough: everything published before a time is counted once it is committed, and no earlier.
func TestThrough(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	c, err := kafka.NewCounts(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if past := c.FollowOnce(t.Context(), nil); len(past) > 0 || c.Through() != 0 {
		t.Errorf("without a topic: through %d, %d ends", c.Through(), len(past))
	}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	past := c.FollowOnce(t.Context(), nil)
	empty := c.Through()
	if empty == 0 || len(past) > 0 {
		t.Errorf("an empty topic: through %d, %d ends", empty, len(past))
	}
	publish := func() int64 {
		if unsent, err := c.Publish(t.Context(), []count.Statement{{UID: "ann", Object: history.Object{ID: "film", Type: 1}, CellTime: 1}}); len(unsent) > 0 {
			t.Fatal(err)
		}
		return time.Now().UnixMilli()
	}
	consumed := func(past []kafka.Ends) []kafka.Ends {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		ended := make(chan error)
		go func() {
			ended <- c.Consume(ctx, func(context.Context, count.Delivery) error { return nil })
		}()
		for len(past) > 0 && ctx.Err() == nil {
			past = c.FollowOnce(ctx, past)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return past
	}
	for range 2 {
		before := c.Through()
		published := publish()
		past = c.FollowOnce(t.Context(), past)
		if c.Through() != before || len(past) != 1 {
			t.Errorf("a statement is not counted: through %d, want %d; %d ends", c.Through(), before, len(past))
		}
		if waits := time.Since(time.UnixMilli(published)); c.Behind() < waits {
			t.Errorf("a statement waits %v, behind %v", waits, c.Behind())
		}
		if past = consumed(past); c.Through() < published || len(past) > 0 {
			t.Errorf("all is counted: through %d, want at least %d; %d ends", c.Through(), published, len(past))
		}
	}
}

func TestThroughNewTopic(t *testing.T) { throughNewTopic(t, fresh(t, cluster(t).ListenAddrs())) }

// throughNewTopic deletes the topic while nothing counts. Nothing is left of the old one, and the new one begins at 0.
func throughNewTopic(t *testing.T, cfg kafka.Config) {
	t.Helper()
	cfg.Partitions = 1
	c, err := kafka.NewCounts(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish := func() {
		t.Helper()
		if unsent, err := c.Publish(t.Context(), []count.Statement{{UID: "ann", Object: history.Object{ID: "film", Type: 1}, CellTime: 1}}); len(unsent) > 0 {
			t.Fatal(err)
		}
	}
	for range 3 {
		publish()
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var past []kafka.Ends
	for len(past) == 0 && c.Through() == 0 && ctx.Err() == nil { // a new broker knows no group for a while
		past = c.FollowOnce(ctx, past)
	}
	if len(past) != 1 || c.Through() != 0 {
		t.Fatalf("nothing is counted: through %d, %d ends", c.Through(), len(past))
	}
	deleteTopic(t, cfg)
	publish()
	for c.Through() == 0 && ctx.Err() == nil { // metadata is a few seconds old
		past = c.FollowOnce(ctx, past)
	}
	if c.Through() == 0 {
		t.Error("the ends of the deleted topic are waited for")
	}
	counted := c.Through()
	ended := make(chan error)
	go func() {
		ended <- c.Consume(ctx, func(context.Context, count.Delivery) error { return nil })
	}()
	for len(past) > 0 && ctx.Err() == nil {
		past = c.FollowOnce(ctx, past)
	}
	stop()
	if err := <-ended; err != nil || len(past) > 0 || c.Through() <= counted {
		t.Errorf("all is counted: %v, through %d, want after %d; %d ends", err, c.Through(), counted, len(past))
	}
}
