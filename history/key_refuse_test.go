package history_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
)

// badObjects are not what [history.Object.String] writes for a legal object.
var badObjects = []struct{ text, field string }{
	{"", "object"},
	{"100", "object"},
	{"*", "object"},
	{"_1", "object.id"},
	{strings.Repeat("a", 129) + "_1", "object.id"},
	{"a b_1", "object.id"},
	{"a/b_1", "object.id"},
	{"a*_1", "object.id"},
	{"é_1", "object.id"},
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
		{strings.Repeat("a", 65) + "/100_1", "uid"},
		{"a:b/100_1", "uid"},
		{"*/*", "uid"},
		{"ann/100_1/", "object.type"},
		{"ann//100_1", "object.id"},
		{"ann/**", "object"},
	} {
		_, err := history.ParseKey(bad.text)
		wantField(t, fmt.Sprintf("%q", bad.text), err, bad.field)
	}
}

// wantField checks that err is an [history.ErrInvalid] that names the field.
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

// FuzzParseObject: what is accepted is legal and is written as it was read.
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

// FuzzParseKey does the same for keys.
func FuzzParseKey(f *testing.F) {
	f.Add("ann/*")
	f.Add("ann@example.org/ep_7:de_4294967295")
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
		if k.String() != s || history.ValidateUID(k.UID) != nil || !k.IsUser() && k.Object.Validate() != nil {
			t.Fatalf("%q: got %+v, written %q", s, k, k)
		}
	})
}
