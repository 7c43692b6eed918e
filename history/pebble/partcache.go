package pebble

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history/part"
)

// partCache has the metadata and the chunks that were read lately, in two generations. Neither ever
// changes under its name.
type partCache struct {
	mu             sync.Mutex
	active, former map[string]cachedPart
	size           int // of the active ones, in bytes
	metrics        *partMetrics
}

type cachedPart struct {
	value any
	size  int
}

const partCacheBytes = 16 << 20 // of a generation

func newPartCache(m *partMetrics) *partCache {
	return &partCache{active: map[string]cachedPart{}, metrics: m}
}

// cached returns what is known under a name, or else reads it, which tells how many bytes it takes.
func cached[T any](c *partCache, name string, read func() (T, int, error)) (v T, err error) {
	if known, ok := c.get(name); ok {
		c.metrics.hits.Inc()
		return known.(T), nil
	}
	c.metrics.misses.Inc()
	v, size, err := read()
	if errors.Is(err, part.ErrCorrupt) {
		c.metrics.damaged.Inc()
	}
	if err != nil {
		return v, unavailable(err)
	}
	c.put(name, cachedPart{v, size})
	return v, nil
}

func (c *partCache) get(name string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.active[name]; ok {
		return p.value, true
	}
	p, ok := c.former[name]
	if ok {
		c.add(name, p)
	}
	return p.value, ok
}

func (c *partCache) put(name string, p cachedPart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(name, p)
}

func (c *partCache) add(name string, p cachedPart) {
	if c.size+p.size > partCacheBytes {
		c.active, c.former, c.size = map[string]cachedPart{}, c.active, 0
	}
	if _, ok := c.active[name]; !ok {
		c.size += p.size
	}
	c.active[name] = p
}

// partMetrics are of parts. The names of users are nowhere in them.
type partMetrics struct {
	hits, misses, damaged, rolled, written prometheus.Counter
}

func newPartMetrics(reg prometheus.Registerer, n *notes) *partMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_parts_" + name, Help: help})
	}
	m := &partMetrics{
		hits:    counter("cache_hits_total", "Chunks and lists of parts that were in memory."),
		misses:  counter("cache_misses_total", "Chunks and lists of parts that were read."),
		damaged: counter("damaged_total", "Reads of chunks and lists of parts that are missing or damaged."),
		rolled:  counter("rolled_records_total", "Records that have left the live form for parts."),
		written: counter("written_bytes_total", "Bytes of chunks and lists that were written."),
	}
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "playhead_parts_waiting_users", Help: "Users who wait to be rolled."},
		func() float64 { return float64(n.len()) })
	if reg != nil {
		reg.MustRegister(m.hits, m.misses, m.damaged, m.rolled, m.written, waiting)
	}
	return m
}
