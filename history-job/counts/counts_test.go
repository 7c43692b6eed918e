package counts_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history/count"
)

var film = history.Object{ID: "film", Type: 1}

func statement(uid string) count.Statement {
	at := time.Now().UnixMilli()
	return count.Statement{UID: uid, Object: film, CellTime: at, Played: []history.Played{{At: at, Plays: 1}}}
}

// flaky fails some calls, after they took effect.
type flaky struct {
	count.Counters
	failures atomic.Int32
	err      error
}

func (f *flaky) Count(ctx context.Context, statements []count.Statement) []count.Result {
	results := f.Counters.Count(ctx, statements)
	if f.failures.Add(-1) >= 0 {
		for i := range results {
			results[i] = count.Result{Err: f.err}
		}
	}
	return results
}

// topic delivers each delivery until it is handled.
type topic struct {
	deliveries []count.Delivery
	done       chan struct{}
}

func (q *topic) Consume(ctx context.Context, handle func(context.Context, count.Delivery) error) error {
	for len(q.deliveries) > 0 {
		if err := handle(ctx, q.deliveries[0]); err != nil {
			return err
		}
		q.deliveries = q.deliveries[1:]
	}
	close(q.done)
	<-ctx.Done()
	return nil
}

// TestRun counts deliveries while the counters fail, and skips what cannot be decoded.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		store := &flaky{Counters: count.NewMemory(new(history.Rulebook), time.Now), err: history.ErrUnavailable}
		store.failures.Store(3)
		c := counts.New(counts.Config{Counters: store, Metrics: counts.NewMetrics(reg)})
		var many []count.Statement
		for i := range 9000 {
			many = append(many, statement(fmt.Sprint("user", i)))
		}
		q := &topic{done: make(chan struct{}), deliveries: []count.Delivery{
			{Statements: many, Messages: 9}, {Statements: many[:5], Messages: 1, Poison: []history.Poison{{Err: errors.New("newer"), Payload: []byte{1}}}},
		}}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(q)(ctx) }()
		<-q.done
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		all, err := store.Totals(t.Context(), []history.Object{film})
		if err != nil || all[0].All.Plays != 9000 {
			t.Errorf("totals: %+v, %v, want 9000 plays", all[0].All, err)
		}
		for name, want := range map[string]float64{"messages": 10, "undecodable_messages": 1, "failed_statements": 0, "negative_totals": 0} {
			if got := metric(t, reg, "playhead_counts_"+name+"_total"); got != want {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	})
}

// TestPublish: what can never be counted is not sent again; what was not answered is.
func TestPublish(t *testing.T) {
	for _, tt := range []struct {
		err    error
		unsent int
		failed float64
	}{{history.ErrUnavailable, 2, 0}, {history.ErrPermanent, 0, 2}} {
		reg := prometheus.NewRegistry()
		store := &flaky{Counters: count.NewMemory(new(history.Rulebook), time.Now), err: tt.err}
		store.failures.Store(1)
		c := counts.New(counts.Config{Counters: store, Metrics: counts.NewMetrics(reg)})
		unsent, err := c.Publish(t.Context(), []count.Statement{statement("ann"), statement("bob")})
		if len(unsent) != tt.unsent || (err != nil) != (tt.unsent > 0) || metric(t, reg, "playhead_counts_failed_statements_total") != tt.failed {
			t.Errorf("%v: %d unsent, %v, want %d", tt.err, len(unsent), err, tt.unsent)
		}
	}
}

func metric(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
