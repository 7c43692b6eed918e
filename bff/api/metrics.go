package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/codec"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	beats    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_requests_total", Help: "Requests answered, by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "playhead_api_request_seconds", Help: "Time to answer a request, by route.",
			Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}, []string{"route"}),
		beats: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_api_heartbeats_total", Help: "Heartbeats answered, by what became of them.",
		}, []string{"status"}),
	}
	for _, status := range codec.Statuses() {
		m.beats.WithLabelValues(status)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.beats)
	}
	return m
}

// route makes the metrics of a route start at zero.
func (m *metrics) route(route string) {
	m.requests.WithLabelValues(route, "200")
	m.seconds.WithLabelValues(route)
}

// request counts an answer. The route is a pattern, never a path.
func (m *metrics) request(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

func (m *metrics) heartbeats(results []codec.Result) {
	n := make(map[string]int)
	for i := range results {
		n[results[i].Status]++
	}
	for status, count := range n {
		m.beats.WithLabelValues(status).Add(float64(count))
	}
}
