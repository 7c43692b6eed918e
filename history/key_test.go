package history_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// golden reads what stores already hold: it never changes. Each line is given as
// its fields.
func golden(t *testing.T, name string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	var lines [][]string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.Fields(line))
		}
	}
	return lines
}

func TestGoldenUsers(t *testing.T) {
	for _, want := range golden(t, "users") {
		uid := want[0]
		got := []string{
			uid, fmt.Sprint(history.BucketOf(uid)), history.RowKey(uid), fmt.Sprintf("%016x", history.ViewingOf(uid)),
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
	if history.Buckets != 1024 {
		t.Errorf("%d buckets, want 1024 for ever", history.Buckets)
	}
}

func TestGoldenKeys(t *testing.T) {
	for _, want := range golden(t, "keys") {
		k, err := history.ParseKey(want[4])
		if err != nil {
			t.Errorf("%s: %v", want[4], err)
			continue
		}
		got := []string{k.UID, k.Object.ID, fmt.Sprint(k.Object.Type), k.Member(), k.String()}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	}
}

func TestUserKey(t *testing.T) {
	k := history.UserKey("ann")
	if !k.IsUser() || k.Member() != "*" || k.String() != "ann/*" {
		t.Errorf("got %v, member %s, is user %v; want ann/*", k, k.Member(), k.IsUser())
	}
	if got, err := history.ParseKey("ann/*"); err != nil || got != k {
		t.Errorf("parsed ann/*: got %v, %v", got, err)
	}
	if (history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 1}}).IsUser() {
		t.Error("ann/1_1 is taken for the state of a user")
	}
}

func keys() *rapid.Generator[history.Key] {
	return rapid.Custom(func(t *rapid.T) history.Key {
		k := history.UserKey(rapid.StringMatching(`[A-Za-z0-9._~@-]{1,64}`).Draw(t, "uid"))
		if rapid.Bool().Draw(t, "of an object") {
			k.Object.ID = rapid.StringMatching(`[A-Za-z0-9._~@:-]{1,128}`).Draw(t, "id")
			k.Object.Type = rapid.Uint32Range(1, math.MaxUint32).Draw(t, "type")
		}
		return k
	})
}

func TestKeyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := keys().Draw(t, "key")
		if got, err := history.ParseKey(k.String()); err != nil || got != k {
			t.Fatalf("%s: got %+v, %v, want %+v", k, got, err, k)
		}
		if k.IsUser() {
			return
		}
		if got, err := history.ParseObject(k.Object.String()); err != nil || got != k.Object {
			t.Fatalf("%s: got %+v, %v, want %+v", k.Object, got, err, k.Object)
		}
	})
}
