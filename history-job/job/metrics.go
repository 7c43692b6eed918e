package job

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	messages, puts, clears, swept prometheus.Counter
	missing, refused, poison      prometheus.Counter
	failures, alone, leftOut      prometheus.Counter
	notGivenBack                  prometheus.Counter
	completed                     *prometheus.CounterVec // by object type
	restored, repairs, announced  prometheus.Counter
	retries                       *prometheus.CounterVec
	buckets                       prometheus.Gauge
	backlog                       backlog
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		messages:     counter("messages_total", "Messages of the queue that were dealt with."),
		puts:         counter("puts_total", "Records put into the archive."),
		clears:       counter("clears_total", "Users whose clear marks or pauses were archived."),
		swept:        counter("swept_keys_total", "Keys archived because their marks were overdue."),
		missing:      counter("missing_records_total", "Announced records that the cache did not have."),
		refused:      counter("refused_records_total", "Records and clear marks that the archive refused for good."),
		poison:       counter("undecodable_messages_total", "Messages that could not be decoded."),
		failures:     counter("failures_total", "Errors and panics after which the job began anew."),
		alone:        counter("lone_sweeps_total", "Sweeps of all buckets because the queue gave this job none."),
		leftOut:      counter("unanswered_records_total", "Records left to a later sweep because the cache answered for others and not for them."),
		restored:     counter("restored_records_total", "Records and clear marks that the cache had lost and the queue or the archive still had."),
		repairs:      counter("cache_repairs_total", "Restarts of the cache after which it was compared with the archive."),
		announced:    counter("announced_firsts_total", "Users seen for the first time on a day, announced where no service had."),
		notGivenBack: counter("not_given_back_records_total", "Completed records that the cache did not take back."),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_retries_total", Help: "Exchanges with a store tried again, by operation.",
		}, []string{"operation"}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "playhead_job_completed_records_total", Help: "Partial records folded with the archive's, a get each, by object type.",
		}, []string{"type"}),
		buckets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "playhead_job_owned_buckets", Help: "Buckets that this job owns.",
		}),
	}
	m.backlog = newBacklog()
	for _, op := range []string{"backlog", "load", "get", "put", "user", "settle", "trim", "sweep", "restore", "reread", "dead_letter", "announce"} {
		m.retries.WithLabelValues(op)
	}
	if reg != nil {
		reg.MustRegister(m.messages, m.puts, m.clears, m.swept, m.missing, m.refused, m.poison,
			m.failures, m.alone, m.leftOut, m.completed, m.notGivenBack, m.restored, m.repairs, m.announced, m.retries, m.buckets, m.backlog.marks, m.backlog.age)
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_job_" + name, Help: help})
}
