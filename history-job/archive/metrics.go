package archive

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

type metrics struct {
	putMetrics
	loopMetrics
	backlog backlog
}

type putMetrics struct {
	puts, clears, missing, notWrittenBack prometheus.Counter
	completed                             *prometheus.CounterVec // by object type
}

type loopMetrics struct {
	messages, poison, swept, sweptAlone, announced, failures prometheus.Counter
	buckets                                                  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_job_" + name, Help: help})
	}
	return &metrics{
		putMetrics{
			puts:           counter("puts_total", "Records put into the archive."),
			clears:         counter("clears_total", "Users whose clear marks or pauses were archived."),
			missing:        counter("missing_records_total", "Announced records that the cache did not have."),
			notWrittenBack: counter("not_given_back_records_total", "Completed records that the cache did not take back."),
			completed: auto.NewCounterVec(prometheus.CounterOpts{
				Name: "playhead_job_completed_records_total", Help: "Partial records folded with the archive's, a get each, by object type.",
			}, []string{"type"}),
		},
		loopMetrics{
			messages:   counter("messages_total", "Messages of the queue that were dealt with."),
			poison:     counter("undecodable_messages_total", "Messages that could not be decoded."),
			swept:      counter("swept_keys_total", "Keys archived because their marks were overdue."),
			sweptAlone: counter("lone_sweeps_total", "Sweeps of all buckets because the queue gave this job none."),
			announced:  counter("announced_firsts_total", "Users seen for the first time on a day, announced where no service had."),
			failures:   counter("failures_total", "Errors and panics after which a worker restarted."),
			buckets: auto.NewGauge(prometheus.GaugeOpts{
				Name: "playhead_job_owned_buckets", Help: "Buckets that this job owns.",
			}),
		},
		newBacklog(auto),
	}
}

// rangeSize is the number of buckets per gauge series. It tells a stuck partition from an outage without 1,024
// series.
const rangeSize = 64

// backlog has the gauges of the dirty marks in this job's buckets. Several jobs may share a range: sum the counts
// and take the maximum age.
type backlog struct{ dirty, age *prometheus.GaugeVec }

// newBacklog registers the gauges. Each range of rangeSize buckets has a series, labeled by its first and last
// bucket.
func newBacklog(auto promauto.Factory) backlog {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "playhead_job_" + name, Help: help}, []string{"buckets"})
	}
	return backlog{
		dirty: gauge("dirty_marks", "Dirty marks in those buckets of a range that this job owns, also of records that a service still holds."),
		age:   gauge("oldest_mark_age_seconds", "Age of the oldest dirty mark in those buckets of a range that this job owns, 0 without any."),
	}
}

// reset drops the series of buckets that this job no longer owns.
func (b backlog) reset() { b.dirty.Reset(); b.age.Reset() }

func (b backlog) set(buckets []history.Bucket, found []history.Backlog) {
	type sum struct {
		dirty  int
		oldest history.Mark
	}
	var sums [history.Buckets / rangeSize]*sum
	for i, f := range found {
		s := sums[buckets[i]/rangeSize]
		if s == nil {
			s = &sum{}
			sums[buckets[i]/rangeSize] = s
		}
		s.dirty += f.Marks
		if f.Marks > 0 && (s.oldest == 0 || f.Oldest < s.oldest) {
			s.oldest = f.Oldest
		}
	}
	for r, s := range sums {
		if s == nil {
			continue
		}
		label := fmt.Sprintf("%d-%d", r*rangeSize, (r+1)*rangeSize-1)
		b.dirty.WithLabelValues(label).Set(float64(s.dirty))
		age := 0.0
		if s.dirty > 0 {
			age = max(0, time.Since(time.UnixMicro(int64(s.oldest))).Seconds())
		}
		b.age.WithLabelValues(label).Set(age)
	}
}
