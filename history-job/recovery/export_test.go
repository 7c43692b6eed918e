package recovery

import "github.com/playhead/playhead/history"

// Recent returns what a ring of max contents of one version keeps.
func Recent(limit int, contents ...history.Content) (kept []history.Content) {
	r := recent{max: limit}
	for _, c := range contents {
		r.add(c.Key, &history.Record{Version: 400, Revision: c.Revision})
	}
	for _, c := range r.contents() {
		kept = append(kept, history.Content{Key: c.key, Revision: c.revision})
	}
	return kept
}
