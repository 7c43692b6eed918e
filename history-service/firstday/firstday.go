// Package firstday tells a player who is seen for the first time on a day of the user's own
// calendar, and announces each first sighting to the rest of the company. No heartbeat
// depends on it: where the store does not answer, neither does the package, and the player
// asks again with its next heartbeat.
//
// A sighting goes this way: [Tracker.Begin] finds the reports that ask and looks their
// users up beside the write of the batch; the store notes each first sighting as pending in the
// same step; [Lookup.Answers] answers, and hands the first ones to [Tracker.Run], which
// announces them in the background. The jobs announce whatever it cannot.
package firstday

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
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

// Config configures a [Tracker].
type Config struct {
	// Days remembers who was seen on which day, and Announcer tells of first sightings.
	// Without both no player is told whether it is the first of its user's day.
	Days      history.Days
	Announcer history.Announcer
	// Now is the clock (default time.Now).
	Now      func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// Tracker answers the reports that ask whether their user is seen for the first time today.
// Its methods may be called from many goroutines.
type Tracker struct {
	cfg     Config
	metrics *metrics
	zones   zones
	recent  recentSightings
	queue   chan []history.First // to be announced
}

// New checks the configuration. Without a store of days the tracker answers nothing.
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

// question is a heartbeat that asks.
type question struct {
	index    uint32
	sighting history.Sighting
}

// Lookup is a look-up under way, and the questions that it answers.
type Lookup struct {
	tracker   *Tracker
	questions []question
	sightings []history.Sighting // those that memory does not know
	seen      []history.Seen     // one for each; good when done is closed
	done      chan struct{}
}

// Begin begins to answer the reports that ask, beside the write of their batch. Their
// statuses are what has been decided so far: a user with one that was not refused is there.
// It returns nil when nobody asks.
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
	go l.run(ctx) // ends with the context, and closes done
	return l
}

// questions returns the questions of the heartbeats that have a check of the day. A check that
// names today as the day that its player knows already asks nothing.
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

// present leaves the questions of users with a heartbeat in the batch that counts, which
// mostly is the one that asks.
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
		if v := recover(); v != nil { // here it would end the process
			l.tracker.cfg.Logger.Error("look-up of a day panicked", "panic", v, "stack", string(debug.Stack()))
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

// Answers waits for the look-up, and has the first sightings announced. Of the heartbeats
// of one user and day, one is told that it is the first. A nil look-up has no answers.
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

// results returns which sightings are first ones and which got no answer, and has the first
// ones announced.
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

// recentSightings remembers the latest sightings. A forgotten one costs a look-up.
type recentSightings struct {
	mu  sync.Mutex
	all *lru.Map[history.Sighting, struct{}]
}

// halfSightings is how many sightings a half of the recent ones has, at some 60 bytes each.
const halfSightings = 1 << 16

func (r *recentSightings) add(s history.Sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all.Put(s, struct{}{})
}

// unknown returns the sightings to be looked up to answer the questions, each once.
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

// zones remembers a bounded number of time zones by name, since a name is looked up
// on disk.
type zones struct {
	mu    sync.RWMutex
	known map[string]*time.Location
}

const (
	maxZones = 1024 // there are some 600
	maxZone  = 64   // bytes of a name
)

// of returns a zone of the IANA database, or one of an offset such as +02:00. Any other
// name means UTC: no heartbeat is refused for the sake of the day.
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
	if seconds, ok := offset(name); ok {
		return time.FixedZone("", seconds)
	}
	if loc, err := time.LoadLocation(name); err == nil && loc != time.Local { // which is the server's own
		return loc
	}
	return time.UTC
}

// offset reads +02:00, up to 14 hours.
func offset(text string) (seconds int, ok bool) {
	if len(text) != len("+02:00") || text[0] != '+' && text[0] != '-' || text[3] != ':' {
		return 0, false
	}
	h, err := strconv.ParseUint(text[1:3], 10, 8)
	m, failed := strconv.ParseUint(text[4:], 10, 8)
	seconds = int(h*3600 + m*60) //nolint:gosec // two digits each
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, err == nil && failed == nil && m < 60 && max(seconds, -seconds) <= 14*3600
}

// maxQueue bounds the batches of first sightings that wait to be announced. Those that
// find it full are left to the jobs.
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

// announceWithin bounds one announcement. Together with the wait for the one before
// it must be shorter than what the jobs wait, or both would announce.
const announceWithin = 10 * time.Second

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
