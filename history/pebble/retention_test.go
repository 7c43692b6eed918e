package pebble_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

func rulesFor(t *testing.T, retention string, rules ...string) *history.Rulebook {
	t.Helper()
	b, err := history.ParseRules(retention, rules)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRetentionIsStored: only a change opens a store with another retention, and what had expired before stays
// expired.
func TestRetentionIsStored(t *testing.T) {
	files, clock := vfs.NewMem(), time.Now()
	config := func(b *history.Rulebook) pebble.Config {
		return pebble.Config{Rules: b, Now: func() time.Time { return clock }}.On(files)
	}
	with := func(c pebble.Config, do func(db *pebble.DB)) {
		t.Helper()
		db, err := pebble.Open("store", c)
		if err != nil {
			t.Fatal(err)
		}
		do(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	day := func(n int) int64 { return clock.AddDate(0, 0, -n).UnixMilli() }
	cell := func(days int) history.Cell {
		k := history.Key{UID: "ann", Object: history.Object{ID: "film", Type: uint32(days + 1)}} //nolint:gosec // a small one
		e := history.Event{Key: k, Kind: history.KindStop, At: day(days), Position: 5}
		return history.Cell{Key: k, Record: e.Record().Successor(nil)}
	}
	put := func(db *pebble.DB, days int) {
		t.Helper()
		if errs := db.Archive().Put(t.Context(), []history.Cell{cell(days)}); errs != nil {
			t.Fatal(errs)
		}
	}
	has := func(db *pebble.DB, want ...int) {
		t.Helper()
		page, err := db.Archive().Page(t.Context(), "ann", history.Query{Limit: 9})
		if err != nil || len(page.Items) != len(want) {
			t.Fatalf("got %+v, %v, want records of %d days ago", page.Items, err, want)
		}
		for i, days := range want {
			if page.Items[i].Record.Version.Time() != day(days) {
				t.Errorf("record %d: got %+v, want that of %d days ago", i, page.Items[i].Record, days)
			}
		}
	}
	accept := func(was, next history.Retention) error { return nil }

	with(config(nil), func(db *pebble.DB) { put(db, 50); put(db, 200) }) // 90 days
	for _, other := range []string{"365d", "forever", "30d"} {
		_, err := pebble.Open("store", config(rulesFor(t, other)))
		if !errors.Is(err, history.ErrRetention) || !strings.Contains(err.Error(), "playhead retention set "+other+" --data ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with the command", other, err)
		}
	}

	longer := config(rulesFor(t, "365d"))
	longer.Change = accept
	with(longer, func(db *pebble.DB) { has(db, 50) })
	with(config(rulesFor(t, "365d")), func(db *pebble.DB) {
		put(db, 89)
		put(db, 91) // was expired when records began to live longer
		has(db, 50, 89)
		clock = clock.AddDate(0, 0, 100)
		if _, err := db.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		has(db, 150, 189)
	})

	shorter := config(rulesFor(t, "160d"))
	refused := errors.New("not confirmed")
	shorter.Change = func(was, next history.Retention) error {
		if !next.Shortens(was) || was.Keep != 365*24*3_600_000 {
			t.Errorf("got %s after %s, want a shorter one", next, was)
		}
		return refused
	}
	if _, err := pebble.Open("store", shorter); !errors.Is(err, refused) {
		t.Errorf("not confirmed: got %v", err)
	}
	with(config(rulesFor(t, "365d")), func(db *pebble.DB) { has(db, 150, 189) })
	shorter.Change = accept
	with(shorter, func(db *pebble.DB) { has(db, 150) })
	with(config(nil), func(db *pebble.DB) { // takes over what is stored
		has(db, 150)
		if got := db.Retention().String(); got != "160d" {
			t.Errorf("got %s, want 160d", got)
		}
	})
}

// TestClassesAreStored: types change their classes while the store has no data. After that a process that moves one is
// refused with one line, and a tool without rules has the stored classes.
func TestClassesAreStored(t *testing.T) {
	files := vfs.NewMem()
	open := func(rules *history.Rulebook, do func(db *pebble.DB)) error {
		db, err := pebble.Open("store", pebble.Config{Rules: rules}.On(files))
		if err != nil {
			return err
		}
		do(db)
		return db.Close()
	}
	nothing := func(*pebble.DB) {}
	for _, rule := range []string{"a: types=7", "a: types=8"} {
		if err := open(rulesFor(t, "", rule), nothing); err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
	}
	e := history.Event{Key: history.Key{UID: "ann\x01a", Object: history.Object{ID: "film", Type: 8}}, Kind: history.KindStop, At: time.Now().UnixMilli(), Position: 5}
	err := open(rulesFor(t, "", "a: types=8"), func(db *pebble.DB) {
		if errs := db.Archive().Put(t.Context(), []history.Cell{{Key: e.Key, Record: e.Record().Successor(nil)}}); errs != nil {
			t.Fatal(errs)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range []*history.Rulebook{rulesFor(t, ""), rulesFor(t, "", "a: types=7,8"), rulesFor(t, "", "b: types=8")} {
		err := open(rules, nothing)
		if !errors.Is(err, history.ErrRetention) || !strings.Contains(err.Error(), "playhead replay copy --from archive:") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: got %v, want one line with the command", rules.Classes(), err)
		}
	}
	rules := new(history.Rulebook)
	if err := open(rules, nothing); err != nil || rules.Home(history.Key{UID: "ann", Object: e.Key.Object}) != e.Key {
		t.Errorf("a tool: got %v, classes %v, want those of the store", err, rules.Classes())
	}
}

// TestRetentionOfClassesIsStored refuses another lifetime of a class, and stores new classes.
func TestRetentionOfClassesIsStored(t *testing.T) {
	files := vfs.NewMem()
	for _, step := range []struct{ rule, err string }{
		{"a: types=7 keep=14d", ""},
		{"a: types=7,8 keep=14d", ""},
		{"b: types=9 keep=2d", ""},
		{"a: types=7 keep=15d", "its records of the class a live 14d, not 15d"},
		{"b: types=9 keep=1d", "its records of the class b live 2d, not 1d"},
	} {
		db, err := pebble.Open("store", pebble.Config{Rules: rulesFor(t, "", step.rule)}.On(files))
		if (err != nil) != (step.err != "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: got %v, want %q", step.rule, err, step.err)
		}
		if err == nil && db.Close() != nil {
			t.Errorf("%s: not closed", step.rule)
		}
	}
}
