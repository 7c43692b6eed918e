// Package lru has a bounded map of recently put values.
package lru

// Map holds two generations. When the young one is full, it replaces the old one, whose values are dropped. The
// caller must hold a lock.
type Map[K comparable, V any] struct {
	full       int         // capacity of one generation
	weight     func(V) int // nil: each value weighs 1
	used       int         // weight of young; 0 if weight is nil
	young, old map[K]V
}

// New returns an empty map. Each generation holds full values, or values of full weight in total.
func New[K comparable, V any](full int, weight func(V) int) *Map[K, V] {
	return &Map[K, V]{full: full, weight: weight, young: make(map[K]V)}
}

// Get returns the value of a key. It does not extend the value's stay; [Map.Put] does.
func (m *Map[K, V]) Get(k K) (V, bool) {
	if v, ok := m.young[k]; ok {
		return v, true
	}
	v, ok := m.old[k]
	return v, ok
}

// Put adds or replaces a value.
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

// fits reports whether v fits into young. It first subtracts the weight of the value that v replaces.
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

// Forget removes a key.
func (m *Map[K, V]) Forget(k K) {
	if v, ok := m.young[k]; ok && m.weight != nil {
		m.used -= m.weight(v)
	}
	delete(m.young, k)
	delete(m.old, k)
}
