package scan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/playhead/playhead/bff/scan"
)

func TestSkip(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	tests := []struct{ name, text, want string }{
		{"values", ` {"a":[1,-2.5e+3,0,true,false,null,"x\u00e9\n"],"b":{}} `, ""},
		{"surrogates", `"\ud83d\ude00"`, ""},
		{"deep", deep(32), ""},
		{"nothing", "", "want a value"},
		{"space", " \n", "want a value"},
		{"two values", "1 2", "want nothing more"},
		{"byte order mark", "\ufeff1", "want a value"},
		{"zero byte", "\x00", "want a value"},
		{"half an object", `{"a":1`, "want , or }"},
		{"half an array", `[1`, "want , or ]"},
		{"comma at the end", `[1,]`, "want a value"},
		{"comma at the end of an object", `{"a":1,}`, "want a name"},
		{"comma alone", `[,]`, "want a value"},
		{"no colon", `{"a" 1}`, "want :"},
		{"no value", `{"a":}`, "want a value"},
		{"name without quotes", `{a:1}`, "want a name"},
		{"wrong bracket", `[1}`, "want , or ]"},
		{"repeated name", `{"a":1,"b":2,"a":3}`, "repeated name"},
		{"repeated name, escaped", `{"a":1,"\u0061":3}`, "repeated name"},
		{"too deep", deep(33), "nested too deep"},
		{"string without end", `"a`, "want the end of a string"},
		{"string without end, escaped", `"\n`, "want the end of a string"},
		{"line in a string", "\"a\nb\"", "control character"},
		{"line in an escaped string", "\"\\ta\nb\"", "control character"},
		{"unknown escape", `"\x41"`, "invalid escape"},
		{"short escape", `"\u12"`, "invalid escape"},
		{"sign in an escape", `"\u+123"`, "invalid escape"},
		{"escape at the end", `"\`, "want the end of a string"},
		{"surrogate and a broken escape", `"\ud83d\u12"`, "invalid escape"},
		{"invalid UTF-8", "\"\xff\"", "invalid UTF-8"},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", "invalid UTF-8"},
		{"zero in front", "01", "malformed number"},
		{"minus alone", "-", "malformed number"},
		{"plus", "+1", "want a value"},
		{"point at the end", "1.", "malformed number"},
		{"exponent without digits", "1e", "malformed number"},
		{"not a number", "NaN", "want a value"},
		{"half a word", "tru", "want a value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := scan.New([]byte(tt.text))
			in.Skip()
			err := in.End()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("%q: %v, want nil", tt.text, err)
			case tt.want != "" && (!errors.Is(err, scan.ErrSyntax) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%q: %v, want %v with %q", tt.text, err, scan.ErrSyntax, tt.want)
			}
		})
	}
}

// TestHalfAPair checks that a string with a lone surrogate is refused and reading continues.
func TestHalfAPair(t *testing.T) {
	for _, text := range []string{`"\ud83d"`, `"\ude00"`, `"\ud83d\ud83d"`, `"a\ude00\ud83d"`, `"\ud83d\u0061"`, `"\ud83dx"`} {
		in := scan.New([]byte("[" + text + `,"whole \ud83d\ude00",{` + text + `:1}]`))
		var read []string
		for i := range in.Array() {
			if i == 2 {
				for name := range in.Object() {
					if utf8.Valid(name) {
						t.Errorf("the name %s is %q", text, name)
					}
					in.Skip()
				}
				continue
			}
			if got, ok := in.Text(); ok {
				read = append(read, string(got))
			}
		}
		if err := in.End(); err != nil || !slices.Equal(read, []string{"whole 😀"}) {
			t.Errorf("%s: read %q, %v", text, read, err)
		}
	}
}

func TestInt(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"-0", 0, true},
		{"9223372036854775807", 1<<63 - 1, true},
		{"-9223372036854775808", -1 << 63, true},
		{"9223372036854775808", 0, false},
		{"1000.0", 1000, true},
		{"-1.5e1", -15, true},
		{"1E3", 1000, true},
		{"9007199254740992.0", 1 << 53, true},
		{"9007199254740994.0", 0, false},
		{"1000.5", 0, false},
		{"1e-1", 0, false},
		{"1e99", 0, false},
		{"1e999", 0, false},
		{`"1"`, 0, false},
		{"null", 0, false},
		{"[1]", 0, false},
	} {
		in := scan.New([]byte(tt.text))
		got, ok := in.Int()
		if ok != tt.ok || ok && got != tt.want || in.End() != nil {
			t.Errorf("%s: got %d, %v, %v, want %d, %v", tt.text, got, ok, in.End(), tt.want, tt.ok)
		}
	}
}

func TestFloat(t *testing.T) {
	for _, tt := range []struct {
		text string
		want float64
		ok   bool
	}{
		{"0", 0, true}, {"-1.5e-1", -0.15, true}, {"1E2", 100, true}, {"1e999", 0, false}, {`"1"`, 0, false}, {"[1]", 0, false},
	} {
		in := scan.New([]byte(tt.text))
		got, ok := in.Float()
		if ok != tt.ok || ok && got != tt.want || in.End() != nil {
			t.Errorf("%s: got %g, %v, %v, want %g, %v", tt.text, got, ok, in.End(), tt.want, tt.ok)
		}
	}
}

func TestWrongKindsAreSkipped(t *testing.T) {
	in := scan.New([]byte(`[{"a":[1]},"t",2]`))
	var read []string
	for i := range in.Array() {
		if _, ok := in.Bool(); ok {
			t.Errorf("element %d is a bool", i)
		}
		read = append(read, string(in.Kind()))
	}
	if err := in.End(); err != nil || len(read) != 3 {
		t.Errorf("got %d elements, %v, want 3, nil", len(read), err)
	}
}

func TestFields(t *testing.T) {
	in := scan.New([]byte(`{"n":null,"b":true,"\u0074":"a\"b\\\/\b\f\n\r\t\u20ac"}`))
	var names []string
	for name := range in.Object() {
		names = append(names, string(name))
		switch string(name) {
		case "n":
			if !in.Null() {
				t.Error("n is not null")
			}
		case "b":
			if b, ok := in.Bool(); in.Null() || !b || !ok {
				t.Error("b is not true")
			}
		default:
			if text, ok := in.Text(); !ok || string(text) != "a\"b\\/\b\f\n\r\t€" {
				t.Errorf("text is %q, %v", text, ok)
			}
		}
	}
	if want := []string{"n", "b", "t"}; in.End() != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, in.End(), want)
	}
}

func TestTheFirstErrorSticks(t *testing.T) {
	in := scan.New([]byte(`{"a":1,"b":2}`))
	stop := errors.New("stop")
	n := 0
	for range in.Object() {
		n++
		in.Fail(stop)
		in.Fail(errors.New("later"))
		if _, ok := in.Int(); ok {
			t.Error("a value after an error")
		}
	}
	if err := in.End(); !errors.Is(err, stop) || n != 1 {
		t.Errorf("got %v after %d names, want %v after 1", err, n, stop)
	}
}

func TestManyNames(t *testing.T) {
	for _, n := range []int{2, 15, 16, 17, 18, 400} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `"\u006e%d":%d,`, i, i)
		}
		for i, repeated := range []string{"n0", fmt.Sprint("n", n-1), "other"} {
			in := scan.New([]byte("{" + text.String() + `"` + repeated + `":0}`))
			in.Skip()
			if err := in.End(); (err != nil) != (i < 2) {
				t.Errorf("%s behind %d names: %v", repeated, n, err)
			}
		}
	}
}
