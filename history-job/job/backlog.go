package job

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// rangeSize is how many buckets share a gauge: enough to tell a stuck partition or a
// skew from an outage, without a series for each of 1,024.
const rangeSize = 64

// backlog are the gauges of the dirty marks in the buckets that this job owns. A range
// may belong to several jobs: their counts add up, of their ages the highest counts.
type backlog struct{ marks, age *prometheus.GaugeVec }

func newBacklog() backlog {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "playhead_job_" + name, Help: help}, []string{"buckets"})
	}
	return backlog{
		marks: gauge("dirty_marks", "Dirty marks of the owned buckets of a range, the held included."),
		age:   gauge("oldest_mark_age_seconds", "Age of the oldest of them, 0 without any."),
	}
}

// measure tells how much is not archived yet. It runs beside the sweep, which waits
// while an engine is away: that is when somebody looks.
func (j *Job) measure(ctx context.Context, buckets []history.Bucket) error {
	defer j.metrics.backlog.reset()
	t := time.NewTicker(j.cfg.SweepEvery)
	defer t.Stop()
	for {
		err := j.try(ctx, func(ctx context.Context) error {
			found, err := j.cfg.Cache.Backlog(ctx, buckets)
			if err == nil {
				j.metrics.backlog.set(buckets, found)
			}
			return err
		})
		if err != nil && ctx.Err() == nil {
			j.metrics.retries.WithLabelValues("backlog").Inc()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset forgets what the next owner of the buckets tells.
func (b backlog) reset() { b.marks.Reset(); b.age.Reset() }

func (b backlog) set(buckets []history.Bucket, found []history.Backlog) {
	type sum struct {
		marks  int
		oldest history.Mark
	}
	var sums [history.Buckets / rangeSize]*sum
	for i, f := range found {
		s := sums[buckets[i]/rangeSize]
		if s == nil {
			s = &sum{}
			sums[buckets[i]/rangeSize] = s
		}
		s.marks += f.Marks
		if f.Marks > 0 && (s.oldest == 0 || f.Oldest < s.oldest) {
			s.oldest = f.Oldest
		}
	}
	for r, s := range sums {
		if s == nil {
			continue
		}
		label := fmt.Sprintf("%d-%d", r*rangeSize, (r+1)*rangeSize-1)
		b.marks.WithLabelValues(label).Set(float64(s.marks))
		age := 0.0
		if s.marks > 0 {
			age = max(0, time.Since(time.UnixMicro(int64(s.oldest))).Seconds())
		}
		b.age.WithLabelValues(label).Set(age)
	}
}
