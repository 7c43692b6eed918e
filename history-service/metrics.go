package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history/kafka"
)

// published are the counters of what the queue has taken.
func published(q *kafka.Queue) []prometheus.Collector {
	messages := prometheus.CounterOpts{
		Name: "playhead_kafka_published_messages_total", Help: "Messages that Kafka has acknowledged.",
	}
	bytes := prometheus.CounterOpts{
		Name: "playhead_kafka_published_bytes_total", Help: "Their payload, before compression.",
	}
	return []prometheus.Collector{
		prometheus.NewCounterFunc(messages, func() float64 { n, _ := q.Stats(); return float64(n) }),
		prometheus.NewCounterFunc(bytes, func() float64 { _, n := q.Stats(); return float64(n) }),
	}
}
