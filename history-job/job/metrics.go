package job

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
)

type metrics struct {
	messages, puts, clears, swept prometheus.Counter
	missing, refused, poison      prometheus.Counter
	failures, sweptAlone, leftOut prometheus.Counter
	notWrittenBack                prometheus.Counter
	completed                     *prometheus.CounterVec // by object type
	restored, repairs, announced  prometheus.Counter
	retries                       *prometheus.CounterVec
	summarized                    prometheus.Counter
	summaryDelay                  prometheus.Gauge
	buckets, waitForStore         prometheus.Gauge
	backlog                       backlog
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_job_" + name, Help: help})
	}
	m := &metrics{
		messages:       counter("messages_total", "Messages of the queue that were dealt with."),
		puts:           counter("puts_total", "Records put into the archive."),
		clears:         counter("clears_total", "Users whose clear marks or pauses were archived."),
		swept:          counter("swept_keys_total", "Keys archived because their marks were overdue."),
		missing:        counter("missing_records_total", "Announced records that the cache did not have."),
		refused:        counter("refused_records_total", "Records and clear marks that the archive refused for good."),
		poison:         counter("undecodable_messages_total", "Messages that could not be decoded."),
		failures:       counter("failures_total", "Errors and panics after which the job began anew."),
		sweptAlone:     counter("lone_sweeps_total", "Sweeps of all buckets because the queue gave this job none."),
		leftOut:        counter("unanswered_records_total", "Records and users left to a later sweep because a store did not answer for them, or the dead letters did not take them."),
		restored:       counter("restored_records_total", "Records and clear marks that the cache had lost and the queue or the archive still had."),
		repairs:        counter("cache_repairs_total", "Restarts of the cache after which it was compared with the archive."),
		announced:      counter("announced_firsts_total", "Users seen for the first time on a day, announced where no service had."),
		notWrittenBack: counter("not_given_back_records_total", "Completed records that the cache did not take back."),
		summarized:     counter("summarized_users_total", "Users whose summaries were brought up to date."),
		summaryDelay: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_summaries_delay_seconds", Help: "How late the job is in its search for old records. Beyond six days records expire without a summary.",
		}),
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_retries_total", Help: "Exchanges with a store tried again, by operation.",
		}, []string{"operation"}),
		completed: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_completed_records_total", Help: "Partial records folded with the archive's, a get each, by object type.",
		}, []string{"type"}),
		buckets: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_owned_buckets", Help: "Buckets that this job owns.",
		}),
		waitForStore: auto.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_pending_restores", Help: "Contents of the queue that a store does not answer for. Nothing behind them is committed.",
		}),
	}
	m.backlog = newBacklog(auto)
	for _, op := range []string{"backlog", "load", "get", "put", "user", "mark_clean", "trim", "sweep", "restore", "reread", "dead_letter", "announce", "notes", "compact", "summaries"} {
		m.retries.WithLabelValues(op)
	}
	return m
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
