package bloom

const firstKeys = 1 << 18 // capacity of the first filter

// Growing is a filter for any number of keys. Each of its filters is four times as large as the one before, so there
// are few. The zero value is empty.
type Growing struct {
	filters []Filter
	room    int // free keys in the last filter
	n       int
}

// Len returns the number of keys added, without those that Has took for known.
func (g *Growing) Len() int { return g.n }

// Has reports whether a key with this hash may have been added.
func (g *Growing) Has(hash uint64) bool {
	for _, f := range g.filters {
		if f.Has(hash) {
			return true
		}
	}
	return false
}

// Add adds a key by its 64-bit hash.
func (g *Growing) Add(hash uint64) {
	if g.Has(hash) {
		return
	}
	if g.room == 0 {
		g.room = firstKeys << (2 * len(g.filters))
		g.filters = append(g.filters, New(g.room))
	}
	g.filters[len(g.filters)-1].Add(hash)
	g.room--
	g.n++
}
