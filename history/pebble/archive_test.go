package pebble_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/history/wire"
)

// TestArchiveEqualCellTimes puts two contents of one cell time in both orders, in one call and in two: the
// result is their fold. An equal content changes nothing.
func TestArchiveEqualCellTimes(t *testing.T) {
	archive := open(t, t.TempDir(), pebble.Config{}).Archive()
	at := now()
	one, other := beat(at), beat(at)
	one.Completions = []history.Stay{{At: at - 10, Viewing: 1}}
	other.Completions = []history.Stay{{At: at - 20, Viewing: 2}}
	both, again := history.Merge(one, other), *one
	again.Revision++
	for n, test := range []struct {
		calls [][]*history.Record
		want  *history.Record
	}{
		{[][]*history.Record{{one}, {other}}, both},
		{[][]*history.Record{{other}, {one}}, both},
		{[][]*history.Record{{one, other}}, both},
		{[][]*history.Record{{one}, {&again}}, one},
		{[][]*history.Record{{one, &again}}, one},
		{[][]*history.Record{{one}, {other}, {one}}, both},
	} {
		k := viewing(1, n)
		for _, records := range test.calls {
			var cells []history.Cell
			for _, r := range records {
				cells = append(cells, history.Cell{Key: k, Record: r})
			}
			if errs := archive.Put(t.Context(), cells); errs != nil {
				t.Fatal(errs)
			}
		}
		got, err := archive.Get(t.Context(), []history.Key{k})
		if err != nil || !reflect.DeepEqual(got[0].Record, test.want) {
			t.Errorf("%d: got %+v, %v; want %+v", n, got[0].Record, err, test.want)
		}
	}
}

// TestArchiveDamage omits an unreadable cell, logs it once, and serves the rest. The next put repairs it at any
// cell time.
func TestArchiveDamage(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewPedanticRegistry()
	archive := open(t, t.TempDir(), pebble.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Registry: registry}).Archive()
	keys := []history.Key{viewing(1, 1), viewing(1, 2), viewing(1, 3), viewing(1, 4)}
	r := beat(now())
	for _, k := range keys {
		if errs := archive.Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
	}
	late := *r
	late.CellTime += 1 << 40
	ahead := append(wire.AppendRecord(nil, &late), 0xff)
	archive.Damage(keys[1], "", []byte("not a record"))
	archive.Damage(keys[2], "", ahead)
	archive.Damage(keys[3], "no object", []byte("?"))

	for range 2 {
		row, err := archive.Page(t.Context(), keys[0].UID, history.Query{Limit: 10_000})
		if err != nil || len(row.Items) != 2 || len(row.Damaged) != 3 {
			t.Fatalf("row: got %+v, %v; want two items and three damaged cells", row, err)
		}
		for _, d := range row.Damaged {
			if !errors.Is(d.Err, history.ErrPermanent) || errors.Is(d.Err, history.ErrUnavailable) || len(d.Bytes) == 0 {
				t.Errorf("damage: got %+v, want the bytes and ErrPermanent", d)
			}
		}
		if row.Damaged[1].Object != keys[1].Object || row.Damaged[2].Object != keys[2].Object {
			t.Errorf("damage: got %+v, want the objects %v and %v", row.Damaged, keys[1].Object, keys[2].Object)
		}
		entries, err := archive.Get(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			damaged := i == 1 || i == 2
			if errors.Is(e.Err, history.ErrPermanent) != damaged || errors.Is(e.Err, history.ErrUnavailable) || (e.Record == nil) != damaged {
				t.Errorf("get %s: got %+v, want it damaged: %t", keys[i], e, damaged)
			}
		}
	}
	if n := counted(t, registry, "playhead_pebble_damaged_cells_total"); n != 3 {
		t.Errorf("metrics: got %v damaged cells, want three", n)
	}
	for _, column := range []string{keys[1].Object.String(), keys[2].Object.String(), `"no object"`} {
		if n := strings.Count(log.String(), "row="+history.Pseudonym(keys[0].UID)+" column="+column+" "); n != 1 {
			t.Errorf("column %s: got %d lines, want 1 in\n%s", column, n, log.String())
		}
	}

	for _, k := range keys[1:3] {
		if errs := archive.Put(t.Context(), []history.Cell{{Key: k, Record: r}}); errs != nil {
			t.Fatal(errs)
		}
	}
	if row, err := archive.Page(t.Context(), keys[0].UID, history.Query{Limit: 10_000}); err != nil || len(row.Items) != 4 {
		t.Errorf("row after another put: got %+v, %v; want four items", row, err)
	}
}

// counted returns the value of a counter or a gauge.
func counted(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, f := range families {
		if m := f.GetMetric()[0]; f.GetName() == name {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestCacheDamageBySuite(t *testing.T) {
	cache := open(t, t.TempDir(), pebble.Config{}).Cache()
	historytest.CacheDamage(t, cache, cache.Damage)
}

func TestArchiveDamageBySuite(t *testing.T) {
	archive := open(t, t.TempDir(), pebble.Config{}).Archive()
	historytest.ArchiveDamage(t, archive, func(k history.Key, _ int64, value []byte) { archive.Damage(k, "", value) })
}

// TestPutsBesideReads puts cells of any time during reads of the same keys: the latest wins.
func TestPutsBesideReads(t *testing.T) {
	db := open(t, t.TempDir(), pebble.Config{})
	const users, each = 4, 300
	start := now()
	var latest [users]atomic.Int64
	var callers sync.WaitGroup
	for caller := range 4 {
		random := rand.New(rand.NewPCG(uint64(caller), 1))
		callers.Go(func() {
			for range each {
				n := random.IntN(users)
				if random.IntN(2) == 0 {
					if _, err := db.Archive().Get(t.Context(), []history.Key{viewing(n, 0)}); err != nil {
						t.Error(err)
					}
					continue
				}
				r := beat(start)
				r.CellTime = start + 1 + random.Int64N(10_000)
				if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: viewing(n, 0), Record: r}}); errs != nil {
					t.Error(errs)
				}
				for was := latest[n].Load(); was < r.CellTime && !latest[n].CompareAndSwap(was, r.CellTime); {
					was = latest[n].Load()
				}
			}
		})
	}
	callers.Wait()
	for n := range users {
		got, err := db.Archive().Get(t.Context(), []history.Key{viewing(n, 0)})
		if err != nil || got[0].Record == nil || got[0].Record.CellTime != latest[n].Load() {
			t.Errorf("%d: %+v, %v; want the cell of %d", n, got, err, latest[n].Load())
		}
	}
}
