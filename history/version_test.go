package history_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

// TestVersions: versions and their scores have one order, time before rank, and a
// version can be taken apart again.
func TestVersions(t *testing.T) {
	times := rapid.OneOf(rapid.Int64Range(1, 1<<43), rapid.Int64Range(epoch, epoch+2))
	ranks := rapid.IntRange(history.RankProgress, history.RankDelete)
	rapid.Check(t, func(t *rapid.T) {
		ms, ms2 := times.Draw(t, "ms"), times.Draw(t, "other ms")
		rank, rank2 := ranks.Draw(t, "rank"), ranks.Draw(t, "other rank")
		v, v2 := history.VersionOf(ms, rank), history.VersionOf(ms2, rank2)
		if earlier := ms < ms2 || ms == ms2 && rank < rank2; (v < v2) != earlier || (v.Score() < v2.Score()) != earlier {
			t.Fatalf("(%d, %d) before (%d, %d): versions say %v, scores %v, want %v", ms, rank, ms2, rank2, v < v2, v.Score() < v2.Score(), earlier)
		}
		if v.Time() != ms || v.Score() != float64(ms)+float64(rank)/4 || history.Version(v.Score()*4) != v {
			t.Fatalf("(%d, %d): got time %d, score %v", ms, rank, v.Time(), v.Score())
		}
		if v >= history.MaxVersion {
			t.Fatalf("(%d, %d): version %d is not before the last", ms, rank, v)
		}
	})
}
