package scan_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/scan"
)

// FuzzSkip compares with encoding/json: only JSON is accepted, and JSON is refused only as documented.
func FuzzSkip(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e+3,0,true,false,null,"x\u00e9\n"],"b":{}}`, `"\ud83d\ude00"`, `[1,]`, `{"a":1,"a":2}`,
		"\"\xff\"", `01`, `[[[[]]]]`, ``, `"\u12"`, "{\"a\"\t:\r\n-0.0E-0}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := scan.New(bytes.Clone(data))
		in.Skip()
		err := in.End()
		switch valid := json.Valid(data); {
		case err == nil && !valid:
			t.Errorf("%q: got nil for what is no JSON", data)
		case err != nil && valid && !stricter(err):
			t.Errorf("%q: got %v for what is JSON", data, err)
		}
	})
}

func stricter(err error) bool {
	for _, reason := range []string{"invalid UTF-8", "repeated name", "nested too deep"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

func FuzzText(f *testing.F) {
	f.Add(`"a\"b\\\/\b\f\n\r\t\u20ac\ud83d\ude00é"`)
	f.Fuzz(func(t *testing.T, data string) {
		text, ok := scan.New([]byte(data)).Text()
		var want string
		if !ok || json.Unmarshal([]byte(data), &want) != nil {
			return // refused, or followed by something
		}
		if string(text) != want {
			t.Errorf("%q: got %q, want %q", data, text, want)
		}
	})
}
