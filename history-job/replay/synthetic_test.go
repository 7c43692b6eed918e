package replay_test

import (
	"testing"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/replay"
)

func TestSynthetic(t *testing.T) {
	const viewers, viewings = 20, 3
	for _, beats := range []int{2, 3, 14} {
		p := replay.Expand(replay.Synthetic(viewers, viewings, beats), 0)
		if got, want := p.Len(), viewers*viewings*beats; got != want {
			t.Errorf("%d heartbeats in viewings of %d, want %d", got, beats, want)
		}
		ofKey := map[history.Key]int{}
		open := map[string]history.Object{} // by user
		for i := range p.Len() {
			e := p.Event(i)
			ofKey[e.Key]++
			if o, running := open[e.Key.UID]; running && o != e.Key.Object {
				t.Fatalf("user %s watches %s beside %s", e.Key.UID, e.Key.Object, o)
			}
			open[e.Key.UID] = e.Key.Object
			if e.Kind == history.KindStop {
				delete(open, e.Key.UID)
			}
		}
		for k, n := range ofKey {
			if n != beats {
				t.Errorf("%d heartbeats of %s, want %d", n, k, beats)
			}
		}
		if len(ofKey) != viewers*viewings || len(open) != 0 {
			t.Errorf("%d viewings, %d not stopped, want %d and none", len(ofKey), len(open), viewers*viewings)
		}
	}
}
