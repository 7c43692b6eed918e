package recovery_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/recovery"
)

// TestContentsOfOneVersion: the latest of two contents of one version is unknown, since the ring does not
// keep their order.
func TestContentsOfOneVersion(t *testing.T) {
	k, other := history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 1}}, history.Key{UID: "bob", Object: history.Object{ID: "1", Type: 1}}
	first := history.Content{Key: k, Revision: 1}
	contents := recovery.Recent(3, history.Content{Key: other, Revision: 7}, first, history.Content{Key: other, Revision: 8}, history.Content{Key: k, Revision: 2})
	for _, c := range contents {
		if c == first {
			t.Error("a cache that came back with the first content would count as whole")
		}
	}
}
