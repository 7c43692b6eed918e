package redis

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
)

// portion is how many keys one script or MGET takes. More gain nothing, and other
// clients wait meanwhile.
const portion = 32

// split divides indices 0 to n-1 into portions that one command may take: in a
// cluster those of one bucket, on one server any. Within a portion the indices for
// which first holds come first; first may be nil.
func (c *Cache) split(buckets []history.Bucket, first func(i int) bool) [][]int {
	order := make([]int, len(buckets))
	for i := range order {
		order[i] = i
	}
	slot := func(int) history.Bucket { return 0 }
	if c.config.Cluster {
		slot = func(i int) history.Bucket { return buckets[i] }
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(slot(i), slot(j)) })
	}
	var parts [][]int
	for len(order) > 0 {
		n := 1
		for n < len(order) && n < portion && slot(order[n]) == slot(order[0]) {
			n++
		}
		parts = append(parts, order[:n])
		order = order[n:]
	}
	if first != nil {
		for _, part := range parts {
			forward(part, first)
		}
	}
	return parts
}

// forward moves indices to the front, in any order.
func forward(part []int, first func(i int) bool) {
	n := 0
	for i, v := range part {
		if first(v) {
			part[n], part[i] = v, part[n]
			n++
		}
	}
}
