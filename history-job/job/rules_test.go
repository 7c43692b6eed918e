package job

import (
	"testing"

	"github.com/playhead/playhead/history"
)

// TestContentsOfOneVersion: the latest of two contents of one version is unknown, since the ring does not
// keep their order.
func TestContentsOfOneVersion(t *testing.T) {
	k, other := history.Key{UID: "ann", Object: history.Object{ID: "1", Type: 1}}, history.Key{UID: "bob", Object: history.Object{ID: "1", Type: 1}}
	r := &lastArchived{max: 3}
	add := func(k history.Key, revision uint64) {
		r.add(&batch{keys: []history.Key{k}, entries: []history.Entry{{Record: &history.Record{Version: 400, Revision: revision}}}})
	}
	add(other, 7)
	add(k, 1)
	add(other, 8)
	add(k, 2) // replaces the first
	for _, a := range r.contents() {
		if a.key == k && a.revision == 1 {
			t.Error("a cache that came back with the first content would count as whole")
		}
	}
}
