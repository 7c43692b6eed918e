package read

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestContains: without a copy of the text it says the same.
func TestContains(t *testing.T) {
	letters := rapid.StringOfN(rapid.SampledFrom([]rune("aAbB zZ@`[{1!ſKkéÉß")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		text := letters.Draw(t, "text")
		word := strings.ToLower(letters.Filter(func(s string) bool { return s != "" }).Draw(t, "word"))
		if got, want := contains(text, word), strings.Contains(strings.ToLower(text), word); got != want {
			t.Fatalf("%q in %q: got %v", word, text, got)
		}
	})
}
