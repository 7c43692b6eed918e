package codec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
)

func TestDecodeDeletion(t *testing.T) {
	for body, want := range map[string]codec.Deletion{
		`{"type":3}`:                                                             {Type: 3},
		`{"since":"1970-01-01T00:00:01Z"}`:                                       {SinceMs: 1000},
		`{"until":"1970-01-01T01:00:02+01:00","type":1}`:                         {Type: 1, UntilMs: 2000},
		`{"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:02Z"}`:        {SinceMs: 2000, UntilMs: 2000},
		` { "until" : "1970-01-01T00:00:03Z" , "since":"1970-01-01T00:00:02Z"} `: {SinceMs: 2000, UntilMs: 3000},
	} {
		got, err := codec.DecodeDeletion([]byte(body), 2)
		if err != nil || got.Type != want.Type || got.SinceMs != want.SinceMs || got.UntilMs != want.UntilMs || len(got.Objects) != 0 {
			t.Errorf("%s: got %+v, %v", body, got, err)
		}
	}
	got, err := codec.DecodeDeletion([]byte(objects(`{"id":"a","type":1}`, `{"type":2,"id":"a"}`)), 2)
	if err != nil || len(got.Objects) != 2 || got.Objects[1].Type != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDecodeDeletionRefuses(t *testing.T) {
	const one = `{"id":"a","type":1}`
	tests := []struct {
		name, body string
		is         error
		want       string
	}{
		{"nothing", "", scan.ErrSyntax, "want a value"},
		{"cut off", `{"type":1`, scan.ErrSyntax, "want"},
		{"an array", "[]", history.ErrInvalid, "body: want an object"},
		{"no field", "{}", history.ErrInvalid, "body: want objects, or a range"},
		{"no objects", objects(), history.ErrInvalid, "body.objects: want at least one"},
		{"null objects", `{"objects":null}`, history.ErrInvalid, "body.objects: want an array"},
		{"unknown field", `{"type":1,"uid":"u2"}`, history.ErrInvalid, "body.uid: unknown field"},
		{"null since", `{"since":null,"type":1}`, history.ErrInvalid, "body.since: want RFC 3339"},
		{"null until", `{"until":null}`, history.ErrInvalid, "body.until: want RFC 3339"},
		{"null type", `{"type":null}`, history.ErrInvalid, "body.type: want a number"},
		{"type 0", `{"type":0}`, history.ErrInvalid, "body.type: want a number"},
		{"no offset", `{"since":"2026-03-01T20:15:00"}`, history.ErrInvalid, "body.since: want RFC 3339"},
		{"a number", `{"until":1772396100000}`, history.ErrInvalid, "body.until: want RFC 3339"},
		{"before it began", `{"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:01Z"}`, history.ErrInvalid, "body.since: want a time before until"},
		{"both", `{"type":1,"objects":[` + one + `]}`, history.ErrInvalid, "body: want objects or a range, not both"},
		{"too many", objects(slices.Repeat([]string{one}, 3)...), codec.ErrTooLarge, "want at most 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := codec.DecodeDeletion([]byte(tt.body), 2)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %v with %q", tt.body, err, tt.is, tt.want)
			}
		})
	}
}

// Whatever is read names objects, or at least one bound that the body has.
func FuzzDecodeDeletion(f *testing.F) {
	f.Add([]byte(objects(`{"id":"a","type":1}`)))
	f.Add([]byte(`{"type":1,"since":"1970-01-01T00:00:02Z","until":"1970-01-01T00:00:03Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := codec.DecodeDeletion(data, 5)
		if err == nil && (len(got.Objects) > 0) == (got.Type != 0 || got.SinceMs != 0 || got.UntilMs != 0) {
			t.Errorf("%q: %+v", data, got)
		}
	})
}
