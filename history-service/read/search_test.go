package read

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestContains compares contains with a search in the folded text.
func TestContains(t *testing.T) {
	letters := rapid.StringOfN(rapid.SampledFrom([]rune("aAbB zZ@`[{1!ſKkéÉßıu\u0308")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		text := letters.Draw(t, "text")
		word := folded(letters.Filter(func(s string) bool { return folded(s) != "" }).Draw(t, "word"))
		if got, want := contains(text, word), strings.Contains(folded(text), word); got != want {
			t.Fatalf("%q in %q: got %v", word, text, got)
		}
	})
}

// TestFolded: spellings that differ in case, width or accents fold alike.
func TestFolded(t *testing.T) {
	for _, same := range [][]string{
		{"Über", "ÜBER", "u\u0308ber", "U\u0308BER", "uber"},
		{"ΟΔΥΣ", "οδυσ", "οδυς"},
		{"Straße", "STRAẞE", "STRASSE", "strasse"},
		{"ＡＢＣ", "abc"},
		{"ｶﾞ", "ガ"},
		{"İstanbul", "istanbul", "i\u0307stanbul"},
		{"ЁЛКИ", "ёлки", "Е\u0308лки", "елки"},
		{"Amélie", "amelie"},
		{"Łódź", "LODZ"},
		{"Smørrebrød", "smorrebrod"},
		{"Encyclopædia", "encyclopaedia"},
		{"Việt Nam", "viet nam"},
		{"Ὀδυσσεύς", "οδυσσευσ"},
		{"한국", "한국"},
	} {
		for _, text := range same {
			if got, want := folded(text), folded(same[0]); got != want {
				t.Errorf("%q is folded to %q, and %q to %q", text, got, same[0], want)
			}
		}
	}
}

// TestFoldedApart: marks that form a different letter are kept.
func TestFoldedApart(t *testing.T) {
	for _, two := range [][2]string{{"ガ", "カ"}, {"กา", "กิ"}, {"कि", "क"}, {"שׁ", "ש"}} {
		if folded(two[0]) == folded(two[1]) {
			t.Errorf("%q and %q are both folded to %q", two[0], two[1], folded(two[0]))
		}
	}
}

// TestHashes compares hashes with a map, also while the table grows.
func TestHashes(t *testing.T) {
	hash := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64Range(1<<20, 1<<20+9000), rapid.Uint64())
	rapid.Check(t, func(t *rapid.T) {
		var got hashes
		want := make(map[uint64]bool)
		for _, h := range rapid.SliceOfN(hash, 1, 6000).Draw(t, "hashes") {
			h = max(h, 1)
			if got.add(h) == want[h] || got.add(h) {
				t.Fatalf("%d is new although it was added, or the other way round", h)
			}
			want[h] = true
		}
		if got.n != len(want) {
			t.Errorf("got %d hashes, want %d", got.n, len(want))
		}
	})
}
