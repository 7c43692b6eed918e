//go:build e2e

package hbase_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/hbase"
)

// BenchmarkCount counts completions, each of another user, in turns of one object and of 10,000. It reports both rates
// in completions per second, and their ratio.
func BenchmarkCount(b *testing.B) {
	const calls = 10 // per turn
	c := counters(b)
	users := 0
	turn := func(objects int) time.Duration {
		start := time.Now()
		for range calls {
			users = countCompletions(b, c, users, objects)
		}
		return time.Since(start)
	}
	turn(1) // fills the first row
	turn(10_000)
	var one, many time.Duration
	turns := 0
	for b.Loop() {
		many += turn(10_000)
		one += turn(1)
		turns++
	}
	n := float64(turns * calls * 1000)
	b.ReportMetric(n/one.Seconds(), "one/s")
	b.ReportMetric(n/many.Seconds(), "many/s")
	b.ReportMetric(many.Seconds()/one.Seconds(), "ratio")
}

// BenchmarkTotals reads the totals of an object with one viewer and of one with 100,000, and a record, in turns.
func BenchmarkTotals(b *testing.B) {
	c := counters(b)
	for n := 0; n < 100_000; {
		n = countCompletions(b, c, n, 1)
	}
	countCompletions(b, c, 100_000, 1000) // the last object has one viewer
	k := history.Key{UID: "user1", Object: film(0)}
	at := time.Now().UnixMilli()
	for _, err := range c.Put(b.Context(), []history.Cell{{Key: k, Record: &history.Record{Version: history.Version(at), CellTime: at}}}) {
		b.Fatal(err)
	}
	totals := func(object int) func() error {
		return func() error {
			all, err := c.Totals(b.Context(), []history.Object{film(object)})
			if err == nil && all[0].All.Plays == 0 {
				err = fmt.Errorf("no plays of object %d", object)
			}
			return err
		}
	}
	record := func() error { _, err := c.Get(b.Context(), []history.Key{k}); return err }
	reads := []func() error{record, totals(999), totals(0)}
	spent := make([]time.Duration, len(reads))
	turns := 0
	for b.Loop() {
		for i, read := range reads {
			start := time.Now()
			for range 200 {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
			spent[i] += time.Since(start)
		}
		turns++
	}
	point := spent[0].Seconds()
	b.ReportMetric(point/float64(turns*200)*1e6, "record-us")
	b.ReportMetric(spent[1].Seconds()/point, "one-viewer-ratio")
	b.ReportMetric(spent[2].Seconds()/point, "100k-viewers-ratio")
}

func counters(b *testing.B) *hbase.Counters {
	b.Helper()
	table := tableOf(b)
	dropAfter(b, table+"_counts")
	return open(b, hbase.Config{Table: table, Counts: true}).Counters()
}

func film(n int) history.Object { return history.Object{ID: fmt.Sprint("film", n), Type: 1} }

// countCompletions counts the completions of 1,000 users in one call, and returns the number of the next user.
func countCompletions(b *testing.B, c *hbase.Counters, user, objects int) int {
	b.Helper()
	at := time.Now().UnixMilli()
	some := make([]count.Statement, 1000)
	for i := range some {
		some[i] = count.Statement{
			UID: fmt.Sprint("user", user+i), Object: film((user + i) % objects), CellTime: at,
			Played: []history.Played{{At: at, Plays: 1, Watched: 60_000}},
		}
	}
	for _, r := range c.Count(b.Context(), some) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	return user + len(some)
}
