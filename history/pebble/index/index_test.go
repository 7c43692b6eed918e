package index_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/wire"
)

// TestTexts writes records of a few objects, some of them after the order was made. The walk is newest first. It has
// each object once, with its latest version.
func TestTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, latest := writes(t, "before"), map[string]history.Version{}
		o, since := new(index.Order), new(index.Order)
		maps.Copy(latest, before)
		for object, v := range before {
			o.Add(v, []byte(object))
		}
		changed := writes(t, "after")
		maps.Copy(latest, changed)
		for object, v := range changed {
			since.Add(v, []byte(object))
		}
		o.Sort()
		since.Sort()
		q := history.Query{Type: uint32(rapid.IntRange(0, 2).Draw(t, "type"))} //nolint:gosec // small
		got := slices.Collect(index.Texts(q, o, since, slices.Collect(maps.Keys(changed))))
		if want := newest(latest, q.Type); !slices.Equal(got, want) {
			t.Errorf("before %v, after %v, %+v: got %q, want %q", before, changed, q, got, want)
		}
	})
}

// TestHead reads pages from a head that was filled once and written to: each that it has is that of all records.
func TestHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		never := func(history.Version, []byte) bool { return false }
		var h index.Head
		all := writes(t, "before")
		p := index.NewPager(history.Query{Limit: index.HeadSize - 1}, never)
		for object, v := range all {
			if err := p.Add([]byte(object), encode(v)); err != nil {
				t.Fatal(err)
			}
		}
		if !h.Fill(p) {
			t.Fatal("a head without writes is not filled")
		}
		for object, v := range writes(t, "after") {
			all[object] = v
			h.Write([]byte(object), encode(v))
		}
		q := history.Query{Limit: rapid.IntRange(1, 70).Draw(t, "limit")}
		p = index.NewPager(q, never)
		if !h.Read(p) {
			return
		}
		page, err := p.Page()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, it := range page.Items {
			got = append(got, it.Object.String())
		}
		want := newest(all, 0)
		more := len(want) > q.Limit
		if want = want[:min(len(want), q.Limit)]; !slices.Equal(got, want) || page.More != more {
			t.Errorf("of %v: got %q, more %t; want %q, more %t", all, got, page.More, want, more)
		}
	})
}

// writes draws objects with versions.
func writes(t *rapid.T, name string) map[string]history.Version {
	all := make(map[string]history.Version)
	for range rapid.IntRange(0, 80).Draw(t, name) {
		n := rapid.IntRange(0, 99).Draw(t, "object")
		all["o"+strconv.Itoa(n)+"_"+strconv.Itoa(1+n%2)] = history.VersionOf(rapid.Int64Range(1, 50).Draw(t, "time"), 0)
	}
	return all
}

// newest returns the objects of a type, 0 for all, newest first.
func newest(all map[string]history.Version, typ uint32) []string {
	objects := slices.Collect(maps.Keys(all))
	objects = slices.DeleteFunc(objects, func(o string) bool { return typ != 0 && index.TypeOf(o) != typ })
	slices.SortFunc(objects, func(a, b string) int {
		return index.Compare(index.Place{Version: all[a], Object: []byte(a)}, index.Place{Version: all[b], Object: []byte(b)})
	})
	return objects
}

func encode(v history.Version) []byte {
	return wire.AppendRecord(nil, &history.Record{Revision: 1, Version: v, CellTime: v.Time(), State: history.StatePlaying})
}
