//go:build e2e

package bench_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/e2e/bench"
	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/playhead/backfill"
)

// old is a source of old viewings in the order of time, as in a file: 2,500 users with forty each.
type old []history.Event

func oldViewings() old {
	const users, each = 2500, 40
	began := time.Now().AddDate(0, 0, -80).UnixMilli()
	all := make(old, users*each)
	for i := range all {
		at := began + int64(i)*1000
		k := history.Key{UID: fmt.Sprint("user-", i%users), Object: history.Object{ID: fmt.Sprint("film-", i/users), Type: 1}}
		all[i] = history.Event{Key: k, Kind: history.KindStop, At: at, StartedAt: at - 600_000, Watched: 600_000, Position: 600_000, Duration: 1_200_000, Session: fmt.Sprint(at)}
	}
	return all
}

func (old) Identity() (string, error) { return "old", nil }

func (o old) Items(context.Context, string) iter.Seq2[backfill.Item, error] {
	return func(yield func(backfill.Item, error) bool) {
		for i := range o {
			if !yield(backfill.Item{Key: o[i].Key, Event: &o[i]}, nil) {
				return
			}
		}
	}
}

// copied copies all viewings, of a file or of a store.
func (o old) copied(b *testing.B, m meter, from backfill.Source, to backfill.Target) figures {
	b.Helper()
	return m.measure(b, len(o), func() time.Duration {
		began := time.Now()
		r, err := (&backfill.Copy{Source: from, Target: to, MaxRejects: -1}).Run(b.Context())
		if err != nil || r.Rows != int64(len(o)) || r.Outcomes["missing"]+r.Outcomes["different"]+r.Outcomes["expired"] > 0 {
			b.Fatal(r, err)
		}
		return time.Since(began)
	})
}

// BenchmarkBackfill measures copies and verify, of a file and of a store, with the processor time of a row. The baseline
// in HBase is bare puts of the same records, for an embedded store a copy into a service. An iteration is a round of
// all; figures are medians. Use -benchtime 5x.
func BenchmarkBackfill(b *testing.B) {
	o := oldViewings()
	b.Run("embedded", func(b *testing.B) { o.rounds(b, "service", o.embedded) })
	b.Run("hbase", func(b *testing.B) { o.rounds(b, "bare", o.hbase) })
}

// rounds reports the figures of rounds, with the rates as shares of one of them.
func (o old) rounds(b *testing.B, base string, round func(b *testing.B, n int) map[string]figures) {
	all := make(map[string][]float64)
	for n := 0; b.Loop(); n++ {
		found := round(b, n)
		for name, f := range found {
			for figure, value := range map[string]float64{"/s": f.rate, "-us": f.cpu["all"], "-of-" + base: f.rate / found[base].rate} {
				all[name+figure] = append(all[name+figure], value)
			}
		}
	}
	for figure, values := range all {
		b.ReportMetric(bench.SpreadOf(values).Median, figure)
	}
	b.ReportMetric(0, "ns/op")
}

func (o old) embedded(b *testing.B, _ int) map[string]figures {
	m := newMeter(b, nil)
	var stores [2]*pebble.DB
	for i := range stores {
		db, err := pebble.Open(b.TempDir(), pebble.Config{})
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		stores[i] = db
	}
	target := func(db *pebble.DB) *backfill.Archive {
		return &backfill.Archive{Store: db.Archive(), Cache: db.Cache()} // whose cache is empty
	}
	verifier := func(db *pebble.DB) *backfill.Verifier {
		return &backfill.Verifier{Reader: backfill.Both{Archive: db.Archive(), Cache: db.Cache()}}
	}
	conn := pipeline.Dial(b, []string{allinonetest.Start(b, allinone.Config{}).RPC()})
	store := &backfill.FromArchive{Store: stores[0].Archive()}
	return map[string]figures{
		"service":      o.copied(b, m, o, backfill.NewService(conn, 16)),
		"copy-file":    o.copied(b, m, o, target(stores[0])),
		"copy-store":   o.copied(b, m, store, target(stores[1])),
		"verify-file":  o.copied(b, m, o, verifier(stores[0])),
		"verify-store": o.copied(b, m, store, verifier(stores[1])),
	}
}

func (o old) hbase(b *testing.B, n int) map[string]figures {
	e := pipeline.FromEnv(b, false)
	m := newMeter(b, map[string]string{"hbase": e.HBase})
	table := func(name string) *hbase.Archive {
		return openTableAs(b, hbase.Config{ZooKeeper: e.HBase, Table: fmt.Sprint("bench_backfill_", name, n), Bulk: true})
	}
	file, store := table("file"), table("store")
	puts := &bare{b: b, meter: m, client: openBare(b, e.HBase), table: fmt.Sprint("bench_backfill_bare", n)}
	openTable(b, e.HBase, puts.table)
	cells := make([]bench.Cell, len(o))
	for i := range o {
		cells[i] = bench.CellOf(o[i].Key, o[i].Record())
	}
	from := &backfill.FromArchive{Store: file}
	return map[string]figures{
		"bare":         puts.round(cells),
		"copy-file":    o.copied(b, m, o, &backfill.Archive{Store: file}),
		"copy-again":   o.copied(b, m, o, &backfill.Archive{Store: file}),
		"copy-store":   o.copied(b, m, from, &backfill.Archive{Store: store}),
		"verify-file":  o.copied(b, m, o, &backfill.Verifier{Reader: file}),
		"verify-store": o.copied(b, m, from, &backfill.Verifier{Reader: store}),
	}
}
