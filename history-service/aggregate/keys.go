package aggregate

import "github.com/playhead/playhead/history"

// Keys returns the held keys whose records are known, in no order. It copies them: an
// aggregator that holds a million takes about a hundred megabytes for it.
func (a *Aggregator) Keys() []history.Key {
	var keys []history.Key
	for i := range a.shard {
		s := &a.shard[i]
		s.mu.Lock()
		for k, e := range s.held {
			if e.record != nil {
				keys = append(keys, k)
			}
		}
		s.mu.Unlock()
	}
	return keys
}
