// Package lru has a bounded map of what was used lately.
package lru

// Map remembers what was put lately, in two halves: when the young one is full it becomes the old one, and the old one is
// forgotten. Its owner locks it.
type Map[K comparable, V any] struct {
	full       int         // the weight of a half
	weight     func(V) int // nil where each value weighs 1
	used       int         // the weight of the young one, where values have weights
	young, old map[K]V
}

// New returns a map whose halves have room for so many values, or for so much weight.
func New[K comparable, V any](full int, weight func(V) int) *Map[K, V] {
	return &Map[K, V]{full: full, weight: weight, young: make(map[K]V)}
}

// Get returns the value of a key. That does not keep it for longer; [Map.Put] does.
func (m *Map[K, V]) Get(k K) (V, bool) {
	if v, ok := m.young[k]; ok {
		return v, true
	}
	v, ok := m.old[k]
	return v, ok
}

// Put remembers a value, in place of an earlier one of the key.
func (m *Map[K, V]) Put(k K, v V) {
	if !m.fits(k, v) {
		m.young, m.old, m.used = m.old, m.young, 0
		clear(m.young)
		if m.young == nil {
			m.young = make(map[K]V, len(m.old))
		}
	}
	m.young[k] = v
	if m.weight != nil {
		m.used += m.weight(v)
	}
}

// fits reports whether a value has room in the young half, and takes what it replaces out of the weight.
func (m *Map[K, V]) fits(k K, v V) bool {
	if m.weight == nil && len(m.young) < m.full || len(m.young) == 0 {
		return true
	}
	was, again := m.young[k]
	if m.weight == nil {
		return again
	}
	if again {
		m.used -= m.weight(was)
		delete(m.young, k)
	}
	return m.used+m.weight(v) <= m.full
}

// Forget forgets a key.
func (m *Map[K, V]) Forget(k K) {
	if v, ok := m.young[k]; ok && m.weight != nil {
		m.used -= m.weight(v)
	}
	delete(m.young, k)
	delete(m.old, k)
}
