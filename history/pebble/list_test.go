package pebble_test

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestList pages through one user between changes of all kinds and compares with a sorted list.
func TestList(t *testing.T) {
	db, user := open(t, "store", pebble.Config{Keep: 120}.On(vfs.NewMem())), 0
	rapid.Check(t, func(t *rapid.T) {
		user++
		l := lister{db: db, user: user, start: now() - 1_000_000, records: map[history.Object]*history.Record{}}
		t.Repeat(map[string]func(*rapid.T){
			"write many": func(t *rapid.T) { l.write(t, 100) },
			"write":      func(t *rapid.T) { l.write(t, 1) },
			"clear":      l.clear,
			"trim":       l.trim,
			"checkpoint": func(*rapid.T) { db.Checkpoint() },
			"list":       l.list,
			"":           func(t *rapid.T) { l.page(t, history.Query{Limit: 20}, l.want(history.Query{})) },
		})
	})
}

// lister is one user and its expected state.
type lister struct {
	db      *pebble.DB
	user    int
	start   int64
	records map[history.Object]*history.Record
	cleared history.User
}

func (l *lister) drawTime(t *rapid.T) int64 {
	return l.start + rapid.Int64Range(0, 300).Draw(t, "time")
}

func (l *lister) write(t *rapid.T, n int) {
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(0, 199), 1, n, rapid.ID).Draw(t, "objects")
	writes := make([]history.Write, len(numbers))
	for i, n := range numbers {
		writes[i] = history.Write{Key: viewing(l.user, n), Record: beat(l.drawTime(t))}
		writes[i].Key.Object.Type = uint32(1 + n%2)
		if rapid.IntRange(0, 9).Draw(t, "delete") == 0 {
			writes[i].Record.State = history.StateDeleted
		}
		if was := l.records[writes[i].Key.Object]; was != nil {
			writes[i].Base = was.Revision
		}
	}
	for i, o := range l.db.Cache().Write(t.Context(), writes) {
		if o.Status == history.Applied {
			l.records[writes[i].Key.Object] = writes[i].Record
		}
	}
}

func (l *lister) clear(t *rapid.T) {
	typ, until := rapid.Uint32Range(0, 2).Draw(t, "type"), l.drawTime(t)-200
	if _, err := l.db.Cache().Clear(t.Context(), viewing(l.user, 0).UID, history.Clear{Type: typ, Until: until}); err != nil {
		t.Fatal(err)
	}
	cleared := maps.Clone(l.cleared.Cleared)
	if cleared == nil {
		cleared = map[uint32]int64{}
	}
	cleared[typ] = max(cleared[typ], until)
	l.cleared.Cleared = cleared
	maps.DeleteFunc(l.records, func(o history.Object, r *history.Record) bool {
		return r.Version.Time() <= l.cleared.ClearedAt(o.Type)
	})
	for o := range l.records { // revisions change; the contract suite checks them
		l.records[o] = l.db.Cache().Load(t.Context(), []history.Key{{UID: viewing(l.user, 0).UID, Object: o}})[0].Record
	}
}

// trim adopts what the store dropped; the contract suite checks that it is right.
func (l *lister) trim(t *rapid.T) {
	uid := viewing(l.user, 0).UID
	if err := l.db.Cache().Trim(t.Context(), []string{uid}); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(l.records, func(o history.Object, _ *history.Record) bool {
		return l.db.Cache().Load(t.Context(), []history.Key{{UID: uid, Object: o}})[0].Record == nil
	})
}

func (l *lister) list(t *rapid.T) {
	q := history.Query{Limit: rapid.IntRange(1, 100).Draw(t, "limit"), Type: rapid.Uint32Range(0, 2).Draw(t, "type")}
	if rapid.Bool().Draw(t, "bounded") {
		q.Since, q.Until = l.drawTime(t), l.drawTime(t)
	}
	l.pages(t, q)
}

// want returns all items that a query selects, in order.
func (l *lister) want(q history.Query) []history.Item {
	var want []history.Item
	for o, r := range l.records {
		at := r.Version.Time()
		if r.Visible(o, &l.cleared) == nil || q.Type != 0 && q.Type != o.Type || at < q.Since || q.Until != 0 && at > q.Until {
			continue
		}
		want = append(want, history.Item{Object: o, Record: r})
	}
	slices.SortFunc(want, func(a, b history.Item) int {
		return cmp.Or(cmp.Compare(b.Record.Version, a.Record.Version), cmp.Compare(b.Object.String(), a.Object.String()))
	})
	return want
}

func (l *lister) pages(t *rapid.T, q history.Query) {
	for want := l.want(q); ; {
		page := l.page(t, q, want)
		if want = want[len(page.Items):]; !page.More {
			return
		}
		last := page.Items[len(page.Items)-1]
		q.After = history.Cursor{Version: last.Record.Version, Object: last.Object}
	}
}

// page reads a page and checks that it is the beginning of want.
func (l *lister) page(t *rapid.T, q history.Query, want []history.Item) history.Page {
	page, err := l.db.Cache().List(t.Context(), viewing(l.user, 0).UID, q)
	if err != nil || len(page.Items) != min(q.Limit, len(want)) || page.More != (len(want) > q.Limit) {
		t.Fatalf("%+v: got %d items, more %v, %v; want %d of %d", q, len(page.Items), page.More, err, q.Limit, len(want))
	}
	for i, got := range page.Items {
		if got.Object != want[i].Object || got.Record.Revision != want[i].Record.Revision {
			t.Fatalf("%+v, item %d: got %v, want %v", q, i, got.Object, want[i].Object)
		}
	}
	return page
}
