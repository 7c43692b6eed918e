package archive

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

type metrics struct {
	puts, clears, plays, missing, notWrittenBack             prometheus.Counter
	messages, poison, swept, sweptAlone, announced, failures prometheus.Counter
	completed                                                *prometheus.CounterVec // by object type
	buckets                                                  prometheus.Gauge
	backlog                                                  backlog
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_job_" + name, Help: help})
	}
	return &metrics{
		puts:           counter("puts_total", "Records put into the archive."),
		clears:         counter("clears_total", "Users whose clear marks or pauses were archived."),
		plays:          counter("play_messages_total", "Messages sent to the stream of plays, repeats included."),
		missing:        counter("missing_records_total", "Announced records that the cache did not have."),
		notWrittenBack: counter("not_given_back_records_total", "Completed records that the cache did not take back."),
		completed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_completed_records_total", Help: "Partial records folded with the archive's, a get each, by object type.",
		}, []string{"type"}),
		messages:   counter("messages_total", "Messages of the queue that were dealt with."),
		poison:     counter("undecodable_messages_total", "Messages that could not be decoded."),
		swept:      counter("swept_keys_total", "Keys archived because their marks were overdue."),
		sweptAlone: counter("lone_sweeps_total", "Sweeps of all buckets because the queue gave this job none."),
		announced:  counter("announced_firsts_total", "Users seen for the first time on a day, announced where no service had."),
		failures:   counter("failures_total", "Errors and panics after which a worker restarted."),
		buckets: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_owned_buckets", Help: "Buckets that this job owns.",
		}),
		backlog: newBacklog(auto),
	}
}

// rangeSize is the number of buckets per gauge series. It tells a stuck partition from an outage without 1,024
// series.
const rangeSize = 64

// backlog has the gauges of the dirty marks in all buckets. Each job measures the same ones.
type backlog struct{ dirty, age *prometheus.GaugeVec }

// newBacklog registers the gauges. Each range of rangeSize buckets has a series, labeled by its first and last
// bucket.
func newBacklog(auto promauto.Factory) backlog {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "playhead_job_" + name, Help: help}, []string{"buckets"})
	}
	return backlog{
		dirty: gauge("dirty_marks", "Dirty marks in a range of buckets, also of records that a service still holds. Each job measures all buckets: take the maximum of the jobs."),
		age:   gauge("oldest_mark_age_seconds", "Age of the oldest dirty mark in a range of buckets, 0 without any. Each job measures all buckets."),
	}
}

// set takes the backlogs of all buckets, in order.
func (b backlog) set(all []history.Backlog) {
	for first := 0; first < len(all); first += rangeSize {
		last := min(first+rangeSize, len(all))
		var dirty int
		var oldest history.Mark
		for _, f := range all[first:last] {
			if dirty += f.Marks; f.Marks > 0 && (oldest == 0 || f.Oldest < oldest) {
				oldest = f.Oldest
			}
		}
		var age float64
		if dirty > 0 {
			age = max(0, time.Since(time.UnixMicro(int64(oldest))).Seconds())
		}
		label := fmt.Sprintf("%d-%d", first, last-1)
		b.dirty.WithLabelValues(label).Set(float64(dirty))
		b.age.WithLabelValues(label).Set(age)
	}
}
