package segment

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/internal/lru"
)

// Cache holds recently read metadata and chunks in two generations. The value of a name never changes.
type Cache struct {
	mu      sync.Mutex
	all     *lru.Map[string, cached]
	metrics *Metrics
}

type cached struct {
	value any
	size  int
}

// CacheBytes is the default size of a generation.
const CacheBytes = 16 << 20

// NewCache returns an empty cache with half bytes per generation.
func NewCache(m *Metrics, half int) *Cache {
	return &Cache{all: lru.New[string](half, func(c cached) int { return c.size }), metrics: m}
}

// Cached returns the cached value of a name, or calls read, which also returns the value's size in bytes. It
// counts [ErrCorrupt].
func Cached[T any](c *Cache, name string, read func() (T, int, error)) (T, error) {
	if known, ok := c.get(name); ok {
		c.metrics.Hits.Inc()
		return known.(T), nil
	}
	c.metrics.Misses.Inc()
	return Fresh(c, name, read)
}

// Fresh calls read and replaces the cached value.
func Fresh[T any](c *Cache, name string, read func() (T, int, error)) (T, error) {
	v, size, err := read()
	if errors.Is(err, ErrCorrupt) {
		c.metrics.Damaged.Inc()
	}
	if err == nil {
		c.metrics.Read.Add(float64(size))
		c.put(name, cached{v, size})
	}
	return v, err
}

// Has reports whether a name is cached.
func (c *Cache) Has(name string) bool {
	_, ok := c.get(name)
	return ok
}

// Keep caches bytes under a name until [Cache.Take].
func (c *Cache) Keep(name string, b []byte) { c.put(name, cached{b, len(b)}) }

// Take returns and removes the bytes kept under a name, nil if absent.
func (c *Cache) Take(name string) (b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, known := c.all.Get(name); known {
		b = p.value.([]byte)
	}
	c.all.Forget(name)
	return b
}

func (c *Cache) get(name string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.all.Get(name)
	if ok {
		c.all.Put(name, p)
	}
	return p.value, ok
}

func (c *Cache) put(name string, p cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Put(name, p)
}

// Metrics are metrics of segments, without user names.
type Metrics struct {
	Hits, Misses, Damaged, Compacted, Written, Read prometheus.Counter
	Summarized, SummaryBytes                        prometheus.Counter
	Live                                            prometheus.Histogram
}

// NewMetrics returns metrics, registered unless reg is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_" + name, Help: help})
	}
	return &Metrics{
		Hits:      counter("segments_cache_hits_total", "Chunks and lists of segments that were in memory."),
		Misses:    counter("segments_cache_misses_total", "Chunks and lists of segments that were read."),
		Damaged:   counter("segments_damaged_total", "Reads of chunks and lists of segments that are missing or damaged."),
		Compacted: counter("segments_compacted_records_total", "Records that have left the live form for segments."),
		Written:   counter("segments_written_bytes_total", "Bytes of chunks and lists that were written."),
		Read:      counter("segments_read_bytes_total", "Bytes of chunks and lists that were read, as they are in memory."),

		Summarized:   counter("summaries_counted_records_total", "Records that were counted in summaries, for the first time or after a change."),
		SummaryBytes: counter("summaries_written_bytes_total", "Bytes of chunks and lists of summaries that were written."),
		Live: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "playhead_segments_live_records", Help: "Live records of a user whose row was scanned.",
			Buckets: prometheus.ExponentialBuckets(16, 4, 8), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
		}),
	}
}

// Notes are users with pending maintenance of segments, and their due times in Unix milliseconds. They may be
// lost. The zero value is empty.
type Notes struct {
	mu   sync.Mutex
	uids map[string]int64
}

const maxNotes = 10_000 // users; a note without room will recur

// Add notes a user. The earlier of two due times counts.
func (n *Notes) Add(uid string, due int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.uids == nil {
		n.uids = make(map[string]int64)
	}
	if was, ok := n.uids[uid]; ok || len(n.uids) < maxNotes {
		if !ok || due < was {
			n.uids[uid] = due
		}
	}
}

// RegisterNotes registers gauges of waiting users, unless reg is nil. now returns Unix milliseconds.
func RegisterNotes(reg prometheus.Registerer, now func() int64, all ...*Notes) {
	auto := promauto.With(reg)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "playhead_segments_waiting_users", Help: "Users who wait to be compacted."}, func() float64 {
		waiting := 0
		for _, n := range all {
			users, _ := n.waiting()
			waiting += users
		}
		return float64(waiting)
	})
	auto.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_segments_oldest_note_age_seconds", Help: "Longest wait of a user for compaction.",
	}, func() float64 {
		at := now()
		oldest := at
		for _, n := range all {
			if users, due := n.waiting(); users > 0 {
				oldest = min(oldest, due)
			}
		}
		return float64(at-oldest) / 1000
	})
}

// waiting returns the number of users and the earliest due time.
func (n *Notes) waiting() (users int, due int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, due = n.first()
	return len(n.uids), due
}

func (n *Notes) first() (uid string, due int64) {
	for u, at := range n.uids {
		if uid == "" || at < due || at == due && u < uid {
			uid, due = u, at
		}
	}
	return uid, due
}

// Take removes and returns the user due the longest.
func (n *Notes) Take(now int64) (uid string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, due := n.first()
	if uid == "" || due > now {
		return "", false
	}
	delete(n.uids, uid)
	return uid, true
}
