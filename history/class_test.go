package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
)

func TestParseClasses(t *testing.T) {
	book, err := history.ParseRules("90d", []string{
		"grace=5s", " previews: types=7,8 keep=14d list=200 least=2s", "3:done=95", "7:grace=1s",
		"preferences:types=9  changes=only keep=36h",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []history.Class{
		{Name: "previews", Types: []uint32{7, 8}, Keep: 14 * 24 * 3600 * 1000, List: 200, Least: 2000},
		{Name: "preferences", Types: []uint32{9}, Keep: 36 * 3600 * 1000, ChangesOnly: true},
	}
	if got := book.Classes(); len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, got := range book.Classes() {
		if w := want[i]; got.Name != w.Name || !slices.Equal(got.Types, w.Types) || got.Keep != w.Keep || got.List != w.List || got.Least != w.Least || got.ChangesOnly != w.ChangesOnly {
			t.Errorf("class %d: got %+v, want %+v", i, got, w)
		}
	}
	for typ, namespace := range map[uint32]string{1: "ann", 7: "ann\x01previews", 8: "ann\x01previews", 9: "ann\x01preferences"} {
		if got := book.NamespaceOf("ann", typ); got != namespace {
			t.Errorf("home of type %d: got %q, want %q", typ, got, namespace)
		}
	}
	if got := book.Of(7).Grace; got != 1000 {
		t.Errorf("a type of a class has a grace of %d, want its own", got)
	}
	const day = 24 * 3600 * 1000
	type sizes struct {
		ttl                   int64
		list, log, shorterLog int
	}
	usual := sizes{90 * day, 1000, 1000, 100}
	for namespace, want := range map[string]sizes{"ann": usual, "ann\x01previews": {14 * day, 200, 1000, 200}, "ann\x01unknown": usual} {
		got := sizes{book.NamespaceTTL(namespace), book.NamespaceList(namespace, 1000), book.NamespaceLog(namespace, 1000), book.NamespaceLog(namespace, 100)}
		if got != want {
			t.Errorf("namespace %q: got %+v, want %+v", namespace, got, want)
		}
	}
}

func TestBadClasses(t *testing.T) {
	many := make([]string, history.MaxClasses+1)
	for i := range many {
		many[i] = fmt.Sprintf("c%d: types=%d", i, i+1)
	}
	tests := []struct {
		texts []string
		want  string
	}{
		{[]string{"a: types=7,7"}, "the type 7 is there twice"},
		{[]string{"a: types=7", "b: types=8,7"}, `the type 7 is in the class "a" already`},
		{[]string{"a: types=7", "a: types=8"}, `the class "a" is there twice`},
		{many, "want at most 32 classes"},
		{[]string{"a: types=7 types=8"}, "types is there twice"},
		{[]string{"a: types=7 keep=91d"}, "keep: want 1s to 90d"},
		{[]string{"a: types=7 keep=2161h"}, "keep: want 1s to 90d"},
		{[]string{"a: types=7 keep=0d"}, "keep: want 1s to 90d"},
		{[]string{"a: types=7 keep=999ms"}, "keep: want 1s to 90d"},
		{[]string{"a: types=7 keep=-1d"}, "keep: want a time such as 14d"},
		{[]string{"a: types=7 keep=99999999d"}, "keep: want a time such as 14d"},
		{[]string{"a: types=7 keep="}, "keep: want a time such as 14d"},
		{[]string{"a: types=0"}, "types: want numbers of types"},
		{[]string{"a: types=7,"}, "types: want numbers of types"},
		{[]string{"a: types="}, "types: want numbers of types"},
		{[]string{"a: types=4294967296"}, "types: want numbers of types"},
		{[]string{"a: types=7 list=0"}, "list: want a number of records"},
		{[]string{"a: types=7 list=1000001"}, "list: want a number of records"},
		{[]string{"a: types=7 least=2"}, "least: want a time such as 10s"},
		{[]string{"a: types=7 least=2h"}, "least: want at most 1h"},
		{[]string{"a: types=7 changes=all"}, "changes: want only"},
		{[]string{"a: types=7 color=red"}, "want types, keep, list, least or changes"},
		{[]string{"a:"}, "want the types of the class"},
		{[]string{"a: keep=3d"}, "want the types of the class"},
		{[]string{"A: types=7"}, "or the name of a class"},
		{[]string{"7a: types=7"}, "or the name of a class"},
		{[]string{": types=7"}, "or the name of a class"},
		{[]string{strings.Repeat("a", 33) + ": types=7"}, "or the name of a class"},
		{[]string{"7: types=7"}, "want begun, done, short or grace"},
		{[]string{"a: types=none"}, "types: want numbers of types"},
	}
	for _, test := range tests {
		last := test.texts[len(test.texts)-1]
		if _, err := history.ParseRules("90d", test.texts); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), last) {
			t.Errorf("%q: got %v, want %q and the rule", test.texts, err, test.want)
		}
	}
}

// TestNamespaces: a namespace shares the bucket of its user, follows the user in the archive, and is no valid
// uid.
func TestNamespaces(t *testing.T) {
	namespace := history.NamespaceUID("ann", "previews")
	if history.BucketOf(namespace) != history.BucketOf("ann") {
		t.Error("a namespace is in another bucket than its user")
	}
	if row := history.RowKey("ann"); !strings.HasPrefix(history.RowKey(namespace), row+"\x01") || history.NamespaceUID("ann", "") != "ann" {
		t.Errorf("row of a namespace: %q, of its user: %q", history.RowKey(namespace), row)
	}
	for _, uid := range []string{namespace, "ann\x01", "ann\x01A", "\x01previews", "ann\x01a\x01b", "ann\x01" + strings.Repeat("a", 33), "ann\x00a"} {
		if history.ValidateUID(uid) == nil {
			t.Errorf("%q is taken for a user", uid)
		}
		if err := history.ValidateNamespace(uid); (err == nil) != (uid == namespace) {
			t.Errorf("%q: got %v", uid, err)
		}
	}
	for _, k := range []history.Key{{UID: namespace, Object: history.Object{ID: "1_2", Type: 7}}, history.UserKey(namespace)} {
		if got, err := history.ParseKey(k.String()); err != nil || got != k {
			t.Errorf("%q: got %v, %v", k, got, err)
		}
	}
}
