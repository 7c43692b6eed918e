package pebble

// recent remembers what was used lately, in two generations: when the young one is
// full it becomes the old one, and the old one is forgotten. Its owner locks it.
type recent[K comparable, V any] struct {
	size       int // of a generation
	young, old map[K]V
}

func newRecent[K comparable, V any](size int) *recent[K, V] {
	return &recent[K, V]{size: size, young: map[K]V{}}
}

func (r *recent[K, V]) get(k K) (V, bool) {
	if v, ok := r.young[k]; ok {
		return v, true
	}
	v, ok := r.old[k]
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if len(r.young) >= r.size {
		r.young, r.old = r.old, r.young
		clear(r.young)
		if r.young == nil {
			r.young = make(map[K]V, r.size)
		}
	}
	r.young[k] = v
}

func (r *recent[K, V]) forget(k K) {
	delete(r.young, k)
	delete(r.old, k)
}
