package history_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// golden reads the keys that stores use, each line split into its fields.
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

// ids draws from few letters: different ids look alike.
func ids() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a1_/:%2F*.é]{1,4}`), rapid.StringN(1, 64, history.MaxID)).
		Filter(func(id string) bool { return history.ValidateUID(id) == nil && id != "." && id != ".." && id != "/" })
}

func keys() *rapid.Generator[history.Key] {
	return rapid.Custom(func(t *rapid.T) history.Key {
		k := history.UserKey(ids().Draw(t, "uid"))
		if rapid.Bool().Draw(t, "of an object") {
			k.Object.ID = ids().Draw(t, "id")
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

// TestKeysDiffer: different keys have different texts, and different users have different rows.
func TestKeysDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys().Draw(t, "a"), keys().Draw(t, "b")
		if (a == b) != (a.String() == b.String()) || (a.UID == b.UID) != (history.RowKey(a.UID) == history.RowKey(b.UID)) {
			t.Fatalf("%+v and %+v are %q and %q, in the rows %q and %q", a, b, a, b, history.RowKey(a.UID), history.RowKey(b.UID))
		}
		if bytes.HasPrefix([]byte(a.String()), append(history.AppendUID(nil, b.UID), '/')) && a.UID != b.UID {
			t.Fatalf("%q is in the range of %q", a, b.UID)
		}
	})
}

// badObjects are texts that [history.Object.String] never writes for a legal object.
var badObjects = []struct{ text, field string }{
	{"", "object"},
	{"100", "object"},
	{"*", "object"},
	{"_1", "object.id"},
	{strings.Repeat("a", 257) + "_1", "object.id"},
	{"a\nb_1", "object.id"},
	{"\xff_1", "object.id"},
	{"a\x00_1", "object.id"},
	{"100_", "object.type"},
	{"100_0", "object.type"},
	{"100_01", "object.type"},
	{"100_+1", "object.type"},
	{"100_-1", "object.type"},
	{"100_1 ", "object.type"},
	{"100_0x1", "object.type"},
	{"100_4294967296", "object.type"},
	{"100_99999999999999999999", "object.type"},
}

func TestParseObjectRefuses(t *testing.T) {
	for _, bad := range badObjects {
		_, err := history.ParseObject(bad.text)
		wantField(t, fmt.Sprintf("%q", bad.text), err, bad.field)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for _, bad := range badObjects {
		if bad.text == "*" {
			continue
		}
		_, err := history.ParseKey("ann/" + bad.text)
		wantField(t, fmt.Sprintf("ann/%q", bad.text), err, bad.field)
	}
	for _, bad := range []struct{ text, field string }{
		{"", "key"},
		{"ann", "key"},
		{"/100_1", "uid"},
		{strings.Repeat("a", 257) + "/100_1", "uid"},
		{"a:b/100_1", "uid"},
		{"*/*", "uid"},
		{"%61nn/100_1", "uid"},
		{"a%3ab/100_1", "uid"},
		{"a%/100_1", "uid"},
		{"a%FF/100_1", "uid"},
		{"a%01b/100_1", "uid"},
		{"ann/100_1/", "object.type"},
		{"ann/**", "object"},
	} {
		_, err := history.ParseKey(bad.text)
		wantField(t, fmt.Sprintf("%q", bad.text), err, bad.field)
	}
}

// wantField checks that err is an [history.ErrInvalid] for the field.
func wantField(t *testing.T, what string, err error, field string) {
	t.Helper()
	var invalid *history.FieldError
	if !errors.As(err, &invalid) || !errors.Is(err, history.ErrInvalid) {
		t.Errorf("%s: got error %v, want one of %s", what, err, field)
		return
	}
	if invalid.Field != field || invalid.Reason == "" || err.Error() != field+": "+invalid.Reason {
		t.Errorf("%s: got error %q of %q, want one of %q", what, err, invalid.Field, field)
	}
}

// FuzzParseObject: an accepted text is a legal object and round-trips.
func FuzzParseObject(f *testing.F) {
	f.Add("100_1")
	for _, bad := range badObjects {
		f.Add(bad.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := history.ParseObject(s)
		if err != nil {
			if !errors.Is(err, history.ErrInvalid) {
				t.Fatalf("%q: got %v, want ErrInvalid", s, err)
			}
			return
		}
		if o.String() != s || o.Validate() != nil {
			t.Fatalf("%q: got %+v, written %q, %v", s, o, o, o.Validate())
		}
	})
}

// FuzzParseKey: an accepted text is a legal key and round-trips.
func FuzzParseKey(f *testing.F) {
	f.Add("ann/*")
	f.Add("ann@example.org/ep_7:de_4294967295")
	f.Add("auth0%7C5f7c/https://example.org/é?a=b%20c_1")
	f.Add("%C3%A9\x01a/*")
	for _, bad := range badObjects {
		f.Add("ann/" + bad.text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := history.ParseKey(s)
		if err != nil {
			if !errors.Is(err, history.ErrInvalid) {
				t.Fatalf("%q: got %v, want ErrInvalid", s, err)
			}
			return
		}
		if k.String() != s || history.ValidateNamespace(k.UID) != nil || !k.IsUser() && k.Object.Validate() != nil {
			t.Fatalf("%q: got %+v, written %q", s, k, k)
		}
	})
}

// TestPseudonym: the digits are the same in every version, since operators search old logs for them.
func TestPseudonym(t *testing.T) {
	for _, tt := range []struct {
		uid, class, hidden, shown string
	}{
		{"ann", "", "u-e98a8ce52854ea1a", "ann"},
		{"ann", "previews", "u-e98a8ce52854ea1a/previews", "ann/previews"},
	} {
		namespace := tt.uid
		if tt.class != "" {
			namespace = history.NamespacePrefix(tt.uid) + tt.class
		}
		if got := history.Pseudonym(namespace); got != tt.hidden {
			t.Errorf("%q: got %s, want %s", namespace, got, tt.hidden)
		}
		history.LogUIDs(true)
		got := history.Pseudonym(namespace)
		history.LogUIDs(false)
		if got != tt.shown {
			t.Errorf("%q with --log-uids: got %s, want %s", namespace, got, tt.shown)
		}
	}
}
