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

func objects(list ...string) string { return `{"objects":[` + strings.Join(list, ",") + `]}` }

func TestDecodeObjects(t *testing.T) {
	got, err := codec.DecodeObjects([]byte(objects(`{"id":"a","type":1}`, `{"type":2,"id":"a"}`)), 2)
	if err != nil || len(got) != 2 || got[0].Id != "a" || got[0].Type != 1 || got[1].Id != "a" || got[1].Type != 2 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDecodeObjectsRefuses(t *testing.T) {
	tests := []struct {
		name, body string
		is         error
		want       string
	}{
		{"nothing", "", scan.ErrSyntax, "want a value"},
		{"an array", "[]", history.ErrInvalid, "body: want an object"},
		{"no objects", "{}", history.ErrInvalid, "body.objects: want at least one"},
		{"none", objects(), history.ErrInvalid, "body.objects: want at least one"},
		{"null", `{"objects":null}`, history.ErrInvalid, "body.objects: want an array"},
		{"unknown field", `{"objects":[{"id":"a","type":1}],"uid":"u2"}`, history.ErrInvalid, "body.uid: unknown field"},
		{"unknown field in one", objects(`{"id":"a","type":1,"uid":"u2"}`), history.ErrInvalid, "body.objects[0].uid: unknown field"},
		{"a string", objects(`{"id":"a","type":1}`, `"a_1"`), history.ErrInvalid, "body.objects[1]: want an object"},
		{"type 0", objects(`{"id":"a","type":0}`), history.ErrInvalid, "body.objects[0].type: want a number"},
		{"id a number", objects(`{"id":1,"type":1}`), history.ErrInvalid, "body.objects[0].id: want a string"},
		{"too many", objects(slices.Repeat([]string{`{"id":"a","type":1}`}, 3)...), codec.ErrTooLarge, "want at most 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := codec.DecodeObjects([]byte(tt.body), 2)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %v with %q", tt.body, err, tt.is, tt.want)
			}
		})
	}
}

func FuzzDecodeObjects(f *testing.F) {
	f.Add([]byte(objects(`{"id":"a","type":1}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := codec.DecodeObjects(data, 5); err == nil && (len(got) == 0 || len(got) > 5) {
			t.Errorf("%q: %d objects", data, len(got))
		}
	})
}
