package historytest

import (
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

// retentions are lifetimes other than the default, each with an age that is within it and one beyond, 0 for none.
var retentions = []struct {
	keep         string
	within, gone time.Duration
}{
	{"2h", time.Hour, 2*time.Hour + time.Second},
	{"400d", 399 * 24 * time.Hour, 401 * 24 * time.Hour},
	{"forever", 30 * 365 * 24 * time.Hour, 0},
}

// ArchiveRetention tests how long an archive keeps records and tombstones. open returns an empty archive under the
// rules.
func ArchiveRetention(t *testing.T, open func(t *testing.T, rules *history.Rulebook) history.Archive) {
	for _, r := range retentions {
		t.Run(r.keep, func(t *testing.T) {
			rules := rulesFor(t, r.keep)
			a := archive{t: t, store: open(t, rules)}
			now := time.Now().UnixMilli()
			within, gone := now-r.within.Milliseconds(), now-r.gone.Milliseconds()
			a.kept(within)
			if r.gone > 0 {
				a.expiredAt(gone)
			}
			a.expiredOnce(rules, within)
		})
	}
}

func rulesFor(t *testing.T, keep string) *history.Rulebook {
	t.Helper()
	rules, err := history.ParseRules(keep, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// kept puts a record and a tombstone, which later puts of older cells do not replace.
func (a archive) kept(at int64) {
	a.t.Helper()
	uid := freshUID()
	cells := []history.Cell{cellAt(keyOf(uid, "1_1"), at, 1), deletedAt(keyOf(uid, "2_1"), at)}
	a.put(cells...)
	a.put(cellAt(cells[0].Key, at-1, 2), cellAt(cells[1].Key, at-1, 2))
	a.wantRow(uid, cells)
	a.wantCells(cells)
}

func (a archive) expiredAt(at int64) {
	a.t.Helper()
	uid := freshUID()
	cells := []history.Cell{cellAt(keyOf(uid, "1_1"), at, 1), deletedAt(keyOf(uid, "2_1"), at)}
	a.put(cells...)
	a.wantRow(uid, nil)
	a.wantCells([]history.Cell{{Key: cells[0].Key}, {Key: cells[1].Key}})
}

// expiredOnce changes the rules as after a shorter retention: what had expired then does not come back. It matters
// neither what the store still has, nor who puts it again.
func (a archive) expiredOnce(rules *history.Rulebook, at int64) {
	a.t.Helper()
	uid := freshUID()
	old, kept := cellAt(keyOf(uid, "1_1"), at, 1), cellAt(keyOf(uid, "2_1"), at+2, 2)
	a.put(old, kept)
	r := rules.Retention()
	r.Since = at + 1
	if _, err := rules.Agree(r); err != nil {
		a.t.Fatal(err)
	}
	for range 2 {
		a.wantRow(uid, []history.Cell{kept})
		a.wantCells([]history.Cell{{Key: old.Key}, kept})
		a.put(old)
	}
}

// CacheRetention tests that a cache serves records of any age within the retention. open returns a cache under the
// rules.
func CacheRetention(t *testing.T, open func(t *testing.T, rules *history.Rulebook) CacheStore) {
	for _, r := range retentions {
		t.Run(r.keep, func(t *testing.T) {
			c := &cacheCase{T: t, CacheStore: open(t, rulesFor(t, r.keep)), start: time.Now().Add(-r.within).UnixMilli()}
			uid := c.user()
			k := key(uid, 1, 1)
			it := c.item(k, c.record(5))
			c.holds(k, it.Record)
			c.lists(uid, history.Query{Limit: 3}, it)
		})
	}
}
