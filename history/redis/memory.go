package redis

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// memory has the gauges of the servers' memory.
type memory struct{ used, limit *prometheus.GaugeVec }

func newMemory(reg prometheus.Registerer) memory {
	auto := promauto.With(reg)
	return memory{
		used: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "playhead_redis_memory_used_bytes", Help: "Memory that a Redis master uses, measured every 10 s.",
		}, []string{"node"}),
		limit: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "playhead_redis_memory_limit_bytes", Help: "Memory beyond which a Redis master refuses writes, its maxmemory, or else the memory of its machine.",
		}, []string{"node"}),
	}
}

// size is the memory of a server in bytes.
type size struct{ used, limit float64 }

func sizeOf(about map[string]string) (s size) {
	number := func(field string) float64 {
		n, _ := strconv.ParseFloat(about[field], 64)
		return n
	}
	if s = (size{number("used_memory"), number("maxmemory")}); s.limit == 0 {
		s.limit = number("total_system_memory")
	}
	return s
}

// set takes the sizes of all servers, or of those that answered.
func (m memory) set(sizes map[string]size, all bool) {
	if all {
		m.used.Reset()
		m.limit.Reset()
	}
	for node, s := range sizes {
		m.used.WithLabelValues(node).Set(s.used)
		m.limit.WithLabelValues(node).Set(s.limit)
	}
}
