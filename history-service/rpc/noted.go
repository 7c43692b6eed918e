package rpc

import (
	"slices"
	"sync"

	"github.com/playhead/playhead/history"
)

// noted remembers which users were noted lately, in two generations: when the young one
// is full it becomes the old one, and the old one is forgotten. What it has forgotten
// costs a look-up.
type noted struct {
	mu         sync.Mutex
	young, old map[history.Sighting]struct{}
}

// notedUsers is the size of a generation, of some 60 bytes each.
const notedUsers = 1 << 16

func (n *noted) add(s history.Sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young == nil || len(n.young) >= notedUsers {
		n.young, n.old = make(map[history.Sighting]struct{}), n.young
	}
	n.young[s] = struct{}{}
}

// unknown returns what is to be looked up to answer the questions, each once.
func (n *noted) unknown(questions []question) (unknown []history.Sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range questions {
		if _, young := n.young[q.sighting]; young {
			continue
		}
		if _, old := n.old[q.sighting]; !old {
			unknown = append(unknown, q.sighting)
		}
	}
	return once(unknown)
}

func once(all []history.Sighting) []history.Sighting {
	if len(all) < 2 {
		return all
	}
	seen := make(map[history.Sighting]bool, len(all))
	return slices.DeleteFunc(all, func(s history.Sighting) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}
