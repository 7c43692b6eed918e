//go:build e2e

package bench_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/playhead/backfill"
)

// oldViewings are a source of viewings of the last 80 days, of users with forty each.
type oldViewings struct {
	users, each int
	began       int64 // Unix milliseconds
}

func (o oldViewings) Identity() (string, error) { return "old", nil }

func (o oldViewings) Items(context.Context, string) iter.Seq2[backfill.Item, error] {
	return func(yield func(backfill.Item, error) bool) {
		for i := range o.users * o.each {
			if !yield(backfill.Item{Key: o.event(i).Key, Event: o.event(i)}, nil) {
				return
			}
		}
	}
}

func (o oldViewings) event(i int) *history.Event {
	at := o.began + int64(i)*1000
	k := history.Key{UID: fmt.Sprint("user-", i%o.users), Object: history.Object{ID: fmt.Sprint("film-", i/o.users), Type: 1}}
	return &history.Event{Key: k, Kind: history.KindStop, At: at, StartedAt: at - 600_000, Watched: 600_000, Position: 600_000, Duration: 1_200_000, Session: fmt.Sprint(at)}
}

// rate copies everything to a target and returns the items per second.
func (o oldViewings) rate(b *testing.B, t backfill.Target) float64 {
	b.Helper()
	c := backfill.Copy{Source: o, Target: t, MaxRejects: -1}
	r, err := c.Run(b.Context())
	if err != nil || r.Rows != int64(o.users*o.each) || r.Outcomes["missing"]+r.Outcomes["different"]+r.Outcomes["expired"] > 0 {
		b.Fatal(r, err)
	}
	return r.PerSec
}

// BenchmarkBackfill compares a copy into HBase with bare puts of the same records, and measures verify there and in the
// embedded store. Use -benchtime 1x.
func BenchmarkBackfill(b *testing.B) {
	e := pipeline.FromEnv(b, false)
	o := oldViewings{users: 2500, each: 40, began: time.Now().AddDate(0, 0, -80).UnixMilli()}
	for b.Loop() {
		name := fmt.Sprint("bench_backfill_", time.Now().UnixNano())
		open := func(table string) *hbase.Archive {
			a, err := hbase.Open(b.Context(), hbase.Config{ZooKeeper: e.HBase, Table: table})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = a.Close() })
			return a
		}
		a := open(name)
		open(name + "_bare")
		bare := o.bare(b, e.HBase, name+"_bare")
		copied := o.rate(b, &backfill.Archive{Store: a})
		again := o.rate(b, &backfill.Archive{Store: a})
		verified := o.rate(b, &backfill.Verifier{Reader: a})
		b.ReportMetric(bare, "bare-puts/s")
		b.ReportMetric(copied/bare, "copy-of-bare")
		b.ReportMetric(again/bare, "again-of-bare")
		b.ReportMetric(verified, "verify-hbase/s")

		db, err := pebble.Open(b.TempDir(), pebble.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(o.rate(b, &backfill.Archive{Store: db.Archive()}), "copy-embedded/s")
		b.ReportMetric(o.rate(b, &backfill.Verifier{Reader: db.Archive()}), "verify-embedded/s")
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// bare puts the records as a loop over gohbase's SendBatch would, and returns the records per second.
func (o oldViewings) bare(b *testing.B, zooKeeper, table string) float64 {
	b.Helper()
	client := gohbase.NewClient(zooKeeper)
	defer client.Close()
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(16)
	for from := 0; from < o.users*o.each; from += 100 {
		g.Go(func() error {
			calls := make([]hrpc.Call, 100)
			for n := range calls {
				e := o.event(from + n)
				value := wire.AppendRecord(nil, e.Record())
				put, err := hrpc.NewPutStr(b.Context(), table, history.RowKey(e.Key.UID), map[string]map[string][]byte{"info": {e.Key.Object.String(): value}}, hrpc.TimestampUint64(uint64(e.At)))
				if err != nil {
					return err
				}
				calls[n] = put
			}
			results, ok := client.SendBatch(b.Context(), calls)
			if !ok {
				return fmt.Errorf("send batch: %w", results[0].Error)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return float64(o.users*o.each) / time.Since(began).Seconds()
}
