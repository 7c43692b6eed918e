package history_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestRebase: a rebased record is legal now, has the same content, and accepts a later report.
func TestRebase(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := folded(wide()).Draw(t, "record")
		if r == nil || r.Deleted() {
			t.Skip()
		}
		now := r.Version.Time() - rapid.Int64Range(-2, 50).Draw(t, "ahead")
		got := r.Rebase(now)
		if got.Version.Time() != min(now, r.Version.Time()) || r.Version.Time() <= now && got != r {
			t.Fatalf("as of %d: got time %d of %d", now, got.Version.Time(), r.Version.Time())
		}
		if was, is := r.Validate(r.Version.Time()), got.Validate(now); was == nil && is != nil {
			t.Fatalf("as of %d: %v: %+v", now, is, got)
		}
		if got.Plays() != r.Plays() || got.Furthest() != r.Furthest() || got.Duration != r.Duration || got.State != r.State || len(got.Meta.Map()) != len(r.Meta.Map()) {
			t.Fatalf("as of %d: got %+v of %+v", now, got, r)
		}
		next := history.Merge(got, (&history.Rules{}).Record(&history.Event{Kind: history.KindProgress, At: now + 3, Position: 1}))
		if next.Version.Time() != max(now+3, got.Version.Time()) {
			t.Fatalf("a later report does not count: %+v", next)
		}
	})
}
