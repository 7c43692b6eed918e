package pebble_test

import (
	"bytes"
	"cmp"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

const legal = `[A-Za-z0-9._~@-]`

func anyKey() *rapid.Generator[history.Key] {
	return rapid.Custom(func(t *rapid.T) history.Key {
		return history.Key{
			UID:    rapid.StringMatching(legal+`{1,64}`).Draw(t, "uid"),
			Object: history.Object{ID: rapid.StringMatching(`[A-Za-z0-9_~@:-][A-Za-z0-9._~@:-]{0,127}`).Draw(t, "id"), Type: rapid.Uint32Min(1).Draw(t, "type")},
		}
	})
}

func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey().Draw(t, "key")
		if got, err := pebble.ParseKey(pebble.AppendKey(nil, 'c', k)); err != nil || got != k {
			t.Errorf("key %s: got %s, %v", k, got, err)
		}
		for _, k := range []history.Key{k, history.UserKey(k.UID)} {
			want := history.Mark(rapid.Int64Min(0).Draw(t, "mark"))
			if got, mark, err := pebble.ParseDirty(pebble.AppendDirty(nil, pebble.AppendKey(nil, 'c', k), want)); err != nil || got != k || mark != want {
				t.Errorf("dirty %s at %d: got %s, %d, %v", k, want, got, mark, err)
			}
		}
	})
}

// TestKeyOrder keeps a user's keys together: the user's state, then the objects in the order of their text.
// Marks sort by time.
func TestKeyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey().Draw(t, "a"), anyKey().Draw(t, "b")
		if rapid.Bool().Draw(t, "same user") {
			b.UID = a.UID
		}
		got := bytes.Compare(pebble.AppendKey(nil, 'c', a), pebble.AppendKey(nil, 'c', b))
		want := cmp.Or(
			cmp.Compare(history.BucketOf(a.UID), history.BucketOf(b.UID)),
			cmp.Compare(a.UID, b.UID), cmp.Compare(a.Object.String(), b.Object.String()),
		)
		if got != want {
			t.Errorf("order of %s and %s: got %d, want %d", a, b, got, want)
		}
		user := pebble.AppendKey(nil, 'c', history.UserKey(a.UID))
		if !bytes.HasPrefix(pebble.AppendKey(nil, 'c', a), user) {
			t.Errorf("%s does not stand behind its user", a)
		}
		early, late := history.Mark(rapid.Int64Range(0, 1<<60).Draw(t, "mark")), history.Mark(1<<61)
		if bytes.Compare(pebble.AppendDirty(nil, pebble.AppendKey(nil, 'c', a), early), pebble.AppendDirty(nil, pebble.AppendKey(nil, 'c', b), late)) >= 0 {
			t.Errorf("mark %d of %s does not stand before mark %d of %s", early, a, late, b)
		}
	})
}
