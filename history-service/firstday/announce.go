package firstday

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

const (
	// maxQueue bounds the batches of first sightings that wait to be announced. Those that
	// find it full are left to the jobs.
	maxQueue = 1024
	// announceWithin bounds one announcement. Together with the wait for the one before
	// it must be shorter than what the jobs wait, or both would announce.
	announceWithin = 10 * time.Second
)

// enqueue never blocks.
func (t *Tracker) enqueue(firsts []history.First) {
	if len(firsts) == 0 {
		return
	}
	t.metrics.firsts.Add(float64(len(firsts)))
	select {
	case t.queue <- firsts:
	default:
	}
}

// Run announces first sightings until ctx is done, and starts anew after a panic.
func (t *Tracker) Run(ctx context.Context) error {
	return run.Restarting(t.cfg.Logger, "first of day", t.metrics.leftToJobs.Inc, t.run)(ctx)
}

func (t *Tracker) run(ctx context.Context) error {
	for {
		select {
		case firsts := <-t.queue:
			t.announce(ctx, t.withMore(firsts))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withMore adds the batches that wait behind, so that one announcement serves all.
func (t *Tracker) withMore(firsts []history.First) []history.First {
	for {
		select {
		case more := <-t.queue:
			firsts = append(firsts, more...)
		default:
			return firsts
		}
	}
}

func (t *Tracker) announce(ctx context.Context, firsts []history.First) {
	ctx, cancel := context.WithTimeout(ctx, announceWithin)
	defer cancel()
	err := t.cfg.Announcer.Announce(ctx, firsts)
	if err == nil {
		err = t.cfg.Days.Announced(ctx, firsts)
	}
	if err != nil {
		t.metrics.leftToJobs.Add(float64(len(firsts)))
		t.cfg.Logger.Debug("first sightings are left to the jobs", "users", len(firsts), "error", err)
		return
	}
	t.metrics.announced.Add(float64(len(firsts)))
}

type metrics struct {
	lookups, failedLookups        prometheus.Counter
	firsts, announced, leftToJobs prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_first_of_day_" + name + "_total", Help: help})
	}
	m := &metrics{
		lookups:       counter("lookups", "Users looked up to tell whether they are seen for the first time on a day."),
		failedLookups: counter("failed_lookups", "Of those, the ones that the cache did not answer."),
		firsts:        counter("users", "Users seen for the first time on a day."),
		announced:     counter("announced", "Of those, the ones announced right away."),
		leftToJobs:    counter("left_to_jobs", "Of those, the ones that could not be announced right away."),
	}
	if reg != nil {
		reg.MustRegister(m.lookups, m.failedLookups, m.firsts, m.announced, m.leftToJobs)
	}
	return m
}
