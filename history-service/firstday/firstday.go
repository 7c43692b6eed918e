// Package firstday detects a user's first activity on a day of the user's own calendar, tells the player, and
// announces it to other systems. Heartbeats do not depend on it: if the store is unavailable, the player asks again
// with its next heartbeat.
//
// [Tracker.Begin] looks up the users of asking reports, concurrently with the batch's write. The store records each
// first sighting as pending in the same step. [Lookup.Answers] returns the answers and passes first sightings to
// [Tracker.Run], which announces them. The jobs announce any that are still pending later.
package firstday

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/internal/lru"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Days records the days of users' activity and the first sightings yet to announce. It is as durable as the cache.
// Its methods are safe for concurrent use.
type Days interface {
	// See records sightings and reports for each, in order, whether it is the first of that user and day: true for
	// exactly one call. The same atomic step makes the first sighting pending.
	See(ctx context.Context, sightings []history.Sighting) []history.Seen
	// Announced removes first sightings from the pending ones.
	Announced(ctx context.Context, firsts []history.First) error
}

// Announcer publishes first sightings.
type Announcer interface {
	// Announce returns nil once all are published. After an error some may be; a repeat is harmless.
	Announce(ctx context.Context, firsts []history.First) error
}

// Config configures a [Tracker].
type Config struct {
	// Days stores the days on which each user was seen; Announcer announces first sightings. Both are required for
	// first-of-day detection.
	Days      Days
	Announcer Announcer
	// Now is the clock (default time.Now).
	Now      func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Tracker answers first-of-day checks. It is safe for concurrent use.
type Tracker struct {
	cfg     Config
	metrics *metrics
	zones   zones
	recent  recentSightings
	queue   chan []history.First // first sightings to announce
}

// New validates the configuration. Without Days, the tracker is off.
func New(cfg Config) (*Tracker, error) {
	if (cfg.Days == nil) != (cfg.Announcer == nil) {
		return nil, errors.New("firstday: days and announcer are of no use without each other")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	t := &Tracker{cfg: cfg, metrics: newMetrics(cfg.Registry), queue: make(chan []history.First, maxQueue)}
	t.recent.all = lru.New[history.Sighting, struct{}](halfSightings, nil)
	return t, nil
}

// question is a heartbeat with a first-of-day check.
type question struct {
	index    uint32
	sighting history.Sighting
}

// Lookup is a running lookup with its questions.
type Lookup struct {
	tracker   *Tracker
	questions []question
	sightings []history.Sighting // not in recent
	seen      []history.Seen     // one per sighting; set before done is closed
	done      chan struct{}
}

// Begin starts to answer the reports' checks, concurrently with the batch's write. Only users with at least one
// report that is not refused count as seen. It returns nil if no report asks.
func (t *Tracker) Begin(ctx context.Context, reports []report.Report) *Lookup {
	if t.cfg.Days == nil {
		return nil
	}
	questions := t.questions(reports)
	if len(questions) == 0 {
		return nil
	}
	l := &Lookup{tracker: t, questions: present(questions, reports), done: make(chan struct{})}
	l.sightings = t.recent.unknown(l.questions)
	if len(l.sightings) == 0 {
		close(l.done)
		return l
	}
	t.metrics.lookups.Add(float64(len(l.sightings)))
	go l.run(ctx) // ends with the context and closes done
	return l
}

// questions returns the heartbeats with a check. A check whose player already knows today is skipped.
func (t *Tracker) questions(reports []report.Report) (all []question) {
	var now time.Time
	for i := range reports {
		day := reports[i].Day
		if day == nil {
			continue
		}
		if now.IsZero() {
			now = t.cfg.Now()
		}
		today := history.DayOf(now.In(t.zones.of(day.GetZone())))
		if day.GetKnown() != today.Number() {
			all = append(all, question{uint32(i), history.Sighting{UID: reports[i].Key.UID, Day: today}}) //nolint:gosec // a batch is small
		}
	}
	return all
}

// present keeps the questions of users with a counted heartbeat in the batch.
func present(questions []question, reports []report.Report) []question {
	return slices.DeleteFunc(questions, func(q question) bool {
		return !reports[q.index].Counts() && !slices.ContainsFunc(reports, func(r report.Report) bool {
			return r.Counts() && r.Key.UID == q.sighting.UID
		})
	})
}

func (l *Lookup) run(ctx context.Context) {
	defer close(l.done)
	defer func() {
		if v := recover(); v != nil { // a panic in this goroutine would end the process
			l.tracker.cfg.Logger.Error("first-of-day lookup panicked", "panic", v, "stack", string(debug.Stack()))
			l.fail(fmt.Errorf("panic: %v", v))
		}
	}()
	l.seen = l.tracker.cfg.Days.See(ctx, l.sightings)
}

func (l *Lookup) fail(err error) {
	l.seen = make([]history.Seen, len(l.sightings))
	for i := range l.seen {
		l.seen[i].Err = err
	}
}

// Answers waits for the lookup and queues the first sightings to be announced. Per user and day, only one heartbeat
// is answered as first. A nil lookup has no answers.
func (l *Lookup) Answers() []*historyv1.DaySeen {
	if l == nil {
		return nil
	}
	<-l.done
	first, failed := l.results()
	answers := make([]*historyv1.DaySeen, 0, len(l.questions))
	for _, q := range l.questions {
		if !failed[q.sighting] {
			answers = append(answers, &historyv1.DaySeen{Index: q.index, Date: q.sighting.Day.Number(), First: first[q.sighting]})
			delete(first, q.sighting)
		}
	}
	return answers
}

// results returns the first and the failed sightings, and queues the first ones to be announced.
func (l *Lookup) results() (first, failed map[history.Sighting]bool) {
	first, failed = map[history.Sighting]bool{}, map[history.Sighting]bool{}
	var firsts []history.First
	for i, s := range l.seen {
		if s.Err != nil {
			failed[l.sightings[i]] = true
			continue
		}
		if s.First {
			first[l.sightings[i]] = true
			firsts = append(firsts, history.First{Sighting: l.sightings[i], At: s.At})
		}
		l.tracker.recent.add(l.sightings[i])
	}
	l.tracker.metrics.failedLookups.Add(float64(len(failed)))
	l.tracker.enqueue(firsts)
	return first, failed
}

// recentSightings caches the latest sightings. A missing one costs a lookup.
type recentSightings struct {
	mu  sync.Mutex
	all *lru.Map[history.Sighting, struct{}]
}

// halfSightings is the size of each half of the cache, at about 60 bytes per sighting.
const halfSightings = 1 << 16

func (r *recentSightings) add(s history.Sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Put(s, struct{}{})
}

// unknown returns the sightings to look up, without duplicates.
func (r *recentSightings) unknown(questions []question) (unknown []history.Sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := make(map[history.Sighting]bool, len(questions))
	for _, q := range questions {
		if _, known := r.all.Get(q.sighting); !known && !asked[q.sighting] {
			asked[q.sighting] = true
			unknown = append(unknown, q.sighting)
		}
	}
	return unknown
}

// zones caches time zones by name, because loading one reads the disk.
type zones struct {
	mu    sync.RWMutex
	known map[string]*time.Location
}

const (
	maxZones = 1024 // about 600 exist
	maxZone  = 64   // bytes per name
)

// of returns a zone of the IANA database or a fixed offset such as +02:00. Any other name means UTC, so a wrong
// zone never refuses a heartbeat.
func (z *zones) of(name string) *time.Location {
	if name == "" || len(name) > maxZone {
		return time.UTC
	}
	z.mu.RLock()
	loc := z.known[name]
	z.mu.RUnlock()
	if loc == nil {
		loc = zone(name)
		z.remember(name, loc)
	}
	return loc
}

func (z *zones) remember(name string, loc *time.Location) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.known == nil || len(z.known) >= maxZones {
		z.known = make(map[string]*time.Location)
	}
	z.known[name] = loc
}

func zone(name string) *time.Location {
	loc, err := history.ParseZone(name)
	if err != nil {
		return time.UTC
	}
	return loc
}

// maxQueue limits the waiting batches of first sightings. Further ones are left to the jobs.
const maxQueue = 1024

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

type metrics struct {
	lookups, failedLookups        prometheus.Counter
	firsts, announced, leftToJobs prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "playhead_first_of_day_" + name + "_total", Help: help})
	}
	return &metrics{
		lookups:       counter("lookups", "Users looked up to tell whether they are seen for the first time on a day."),
		failedLookups: counter("failed_lookups", "Look-ups of whether a user is seen for the first time on a day that the cache did not answer."),
		firsts:        counter("users", "Users seen for the first time on a day."),
		announced:     counter("announced", "Users seen for the first time on a day who were announced right away."),
		leftToJobs:    counter("left_to_jobs", "Users seen for the first time on a day who could not be announced right away."),
	}
}

// announceWithin limits one announcement. Two of them must take less time than the jobs' wait, or both would
// announce.
const announceWithin = 10 * time.Second

// Run announces first sightings until ctx is done, and restarts after a panic.
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

// withMore adds the waiting batches, to share one announcement.
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
		t.cfg.Logger.Debug("first sightings left to the jobs", "users", len(firsts), "error", err)
		return
	}
	t.metrics.announced.Add(float64(len(firsts)))
}
