// Package stats adds up what one user watched: per day of a time zone, per type or per object.
//
// The reader feeds it the records and summaries of a walk through the whole history, so it has no store of its own.
// What is deleted, cleared, paused or incognito is in no record and in no number. It keeps up to 60 bytes per viewing
// in the range, and refuses a range that needs more than [maxMemory].
//
// A record says of a viewing when it began, when it last reported and how much it played, but not when it was paused.
// So the time watched is spread evenly over the viewing. [Stats.sweep] gives each instant of a device the sum of its
// viewings' rates, and at most 1. Thus no day has more than its hours per device, and overlapping viewings share them.
//
// Exact are plays, viewings, and the time of a viewing within one day and range. The division of a viewing between days
// is an estimate. So are overlaps with a viewing whose device is unknown. Those before the newest 17 of an object count
// as one more device.
//
// What has no known times is undated. In a range without a beginning, that is what was before the newest 128 viewings
// of an object. In any range, it is the summaries of expired records that cover several of its days.
package stats

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
)

// By says what the buckets are.
type By uint8

// Kinds of buckets.
const (
	Day By = iota
	Type
	Object
)

// Config selects what to add up.
type Config struct {
	By By
	// Since and Until are inclusive, in Unix milliseconds; 0 means unbounded.
	Since, Until int64
	Zone         *time.Location
	// Limit is the number of objects in the result; 0 means all.
	Limit int
}

// Sum is what a bucket adds up to.
type Sum struct {
	Watched  int64 // milliseconds, see [history.ActiveViewing]
	Plays    int64
	Viewings int64
}

// Bucket is the sum of a day, a type or an object.
type Bucket struct {
	Day    history.Day
	Object history.Object // only the type has no id
	Sum
}

// Result is the sums of a history.
type Result struct {
	// Buckets are those with anything in them: days and types ascending, objects most watched first.
	Buckets []Bucket
	Total   Sum
	// Undated is the part of Total that is in no bucket.
	Undated Sum
	// Longest and Current are days in a row with a viewing; Current ends on the last day or the one before.
	Longest, Current int
}

// maxMemory limits the memory of a [Stats], in bytes, and spanSize and bucketSize estimate what a viewing and a bucket
// need.
const (
	maxMemory  = 24 << 20
	spanSize   = 60
	bucketSize = 96
)

// Stats adds up records. It is not safe for concurrent use.
type Stats struct {
	cfg     Config
	days    calendar
	types   map[uint32]int32 // index in sums
	sums    []sum            // of types or objects
	byDay   map[history.Day]*sum
	lastDay *sum // the last one used: records are added in order
	undated Sum
	spans   []span
	devices map[string]int32
	memory  int

	activity history.Activity
}

type sum struct {
	Bucket
	watched float64 // milliseconds
}

// span is the played part of a viewing, at rate milliseconds each.
type span struct {
	from, to, rate float64
	device, bucket int32
}

// New returns an empty sum.
func New(cfg Config) *Stats {
	if cfg.Until == 0 {
		cfg.Until = math.MaxInt64 - 1
	}
	return &Stats{
		cfg: cfg, days: calendar{zone: cfg.Zone}, types: make(map[uint32]int32),
		byDay: make(map[history.Day]*sum), devices: make(map[string]int32),
	}
}

// Add adds the visible record of an object that was not added before. It fails with [history.ErrInvalid] if the range
// has too many viewings.
func (s *Stats) Add(it history.Item) error {
	it.Record.Activity(&s.activity)
	b := bucketOf{object: it.Object, index: -1}
	for _, at := range s.activity.Plays {
		if s.has(at) {
			s.bucket(&b, at).Plays++
		}
	}
	for i := range s.activity.Viewings {
		v := &s.activity.Viewings[i]
		if s.has(v.End) {
			s.bucket(&b, v.End).Viewings++
		}
		s.addSpan(&b, v)
	}
	if r := it.Record; s.cfg.Since == 0 {
		s.addUndated(&b, within(r.WatchedBefore, s.has(r.WatchedBeforeAt)), within(int64(r.PlaysBefore), s.has(r.PlaysBeforeAt))) //nolint:gosec // far fewer
	}
	return s.fits()
}

// AddSummary adds the summary of an expired record. It counts only if all of it is in the range, and on a day only if
// all of it is on that day. The number of its viewings is unknown.
func (s *Stats) AddSummary(o history.Summary) error {
	o = o.Total()
	if !s.has(o.First) || !s.has(o.Last) {
		return nil
	}
	b, plays := bucketOf{object: o.Object, index: -1}, int64(o.Plays) //nolint:gosec // far fewer
	day, _ := s.days.at(o.First)
	if last, _ := s.days.at(o.Last); day != last {
		s.addUndated(&b, o.Watched, plays)
		return s.fits()
	}
	s.bucket(&b, o.First).Plays += plays
	s.addSpan(&b, &history.ActiveViewing{Began: o.First, Until: o.Last, Watched: min(o.Watched, o.Last-o.First)})
	return s.fits()
}

// addUndated adds what has no day. Types and objects need none.
func (s *Stats) addUndated(b *bucketOf, watched, plays int64) {
	switch {
	case watched == 0 && plays == 0:
	case s.cfg.By == Day:
		s.undated.Watched += watched
		s.undated.Plays += plays
	default:
		sum := s.bucket(b, 0)
		sum.watched += float64(watched)
		sum.Plays += plays
	}
}

// fits fails if the sums need too much memory.
func (s *Stats) fits() error {
	if s.memory > maxMemory {
		return history.Invalid("since", "want a shorter time: this one has too many viewings")
	}
	return nil
}

func within(n int64, counts bool) int64 {
	if counts {
		return n
	}
	return 0
}

func (s *Stats) has(at int64) bool { return at >= s.cfg.Since && at <= s.cfg.Until }

// bucketOf is an object and the index of its sum, -1 if unknown.
type bucketOf struct {
	object history.Object
	index  int32
}

// bucket returns the sum of an object at a time.
func (s *Stats) bucket(b *bucketOf, at int64) *sum {
	if s.cfg.By == Day {
		day, _ := s.days.at(at)
		return s.day(day)
	}
	if b.index < 0 {
		b.index = s.newBucket(b.object)
	}
	return &s.sums[b.index]
}

// newBucket returns the index of the sum of an object that was not added before.
func (s *Stats) newBucket(o history.Object) int32 {
	n := int32(len(s.sums)) //nolint:gosec // bounded by maxMemory
	if s.cfg.By == Type {
		if known, ok := s.types[o.Type]; ok {
			return known
		}
		s.types[o.Type], o.ID = n, ""
	}
	o.ID = strings.Clone(o.ID)
	s.sums = append(s.sums, sum{Bucket: Bucket{Object: o}})
	s.memory += bucketSize + len(o.ID)
	return n
}

func (s *Stats) day(d history.Day) *sum {
	if b := s.lastDay; b != nil && b.Day == d {
		return b
	}
	b := s.byDay[d]
	if b == nil {
		b = &sum{Bucket: Bucket{Day: d}}
		s.byDay[d] = b
		s.memory += bucketSize
	}
	s.lastDay = b
	return b
}

// addSpan adds the part of a viewing's watched time that is in the range.
func (s *Stats) addSpan(b *bucketOf, v *history.ActiveViewing) {
	from, to := max(v.Began, s.cfg.Since), min(v.Until, s.cfg.Until+1)
	if from >= to {
		return
	}
	if s.cfg.By != Day {
		s.bucket(b, from)
	}
	n, known := s.devices[v.Device]
	if !known {
		n = int32(len(s.devices)) //nolint:gosec // bounded by maxMemory
		s.devices[strings.Clone(v.Device)] = n
		s.memory += bucketSize + len(v.Device)
	}
	s.spans = append(s.spans, span{from: float64(from), to: float64(to), rate: float64(v.Watched) / float64(v.Until-v.Began), device: n, bucket: b.index})
	s.memory += spanSize
}

// Result returns the sums. now ends the current streak if the range does not end before. Nothing can be added
// afterwards.
func (s *Stats) Result(now int64) Result {
	slices.SortFunc(s.spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.from, b.from)) })
	for from := 0; from < len(s.spans); {
		to := from
		for to < len(s.spans) && s.spans[to].device == s.spans[from].device {
			to++
		}
		s.sweep(s.spans[from:to])
		from = to
	}
	r := Result{Undated: s.undated, Total: s.undated}
	all := s.all()
	for i := range all {
		b := &all[i]
		b.Watched = int64(math.Round(b.watched))
		if b.Sum == (Sum{}) {
			continue
		}
		r.Buckets = s.with(r.Buckets, b.Bucket)
		r.Total.Watched += b.Watched
		r.Total.Plays += b.Plays
		r.Total.Viewings += b.Viewings
	}
	slices.SortFunc(r.Buckets, s.order)
	if s.cfg.By == Day {
		today, _ := s.days.at(min(now, s.cfg.Until))
		r.Longest, r.Current = streaks(r.Buckets, today)
	}
	return r
}

func (s *Stats) all() []sum {
	for _, b := range s.byDay {
		s.sums = append(s.sums, *b)
	}
	return s.sums
}

// with adds a bucket to the others. Of objects it keeps as many as the result has, in order.
func (s *Stats) with(others []Bucket, b Bucket) []Bucket {
	n := s.cfg.Limit
	if n == 0 || s.cfg.By != Object {
		return append(others, b)
	}
	if len(others) == n {
		if s.order(b, others[n-1]) > 0 {
			return others
		}
		others = others[:n-1]
	}
	i, _ := slices.BinarySearchFunc(others, b, s.order)
	return slices.Insert(others, i, b)
}

func (s *Stats) order(a, b Bucket) int {
	if s.cfg.By == Object {
		if most := cmp.Or(cmp.Compare(b.Watched, a.Watched), cmp.Compare(b.Plays, a.Plays), cmp.Compare(b.Viewings, a.Viewings)); most != 0 {
			return most
		}
	}
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Object.Type, b.Object.Type), cmp.Compare(a.Object.ID, b.Object.ID))
}

// sweep adds the time watched on one device; spans are sorted by their beginnings. At each instant the rates of the
// current spans count in full, or scaled to a sum of 1. given is the integral of that scale up to now. A span gets its
// rate times the growth of given between its beginning and its end.
func (s *Stats) sweep(spans []span) {
	ends := make([]int32, len(spans))
	for i := range ends {
		ends[i] = int32(i) //nolint:gosec // bounded by maxMemory
	}
	slices.SortFunc(ends, func(a, b int32) int { return cmp.Compare(spans[a].to, spans[b].to) })
	var now, rate, given float64
	for begun, ended := 0, 0; ended < len(spans); {
		p, begins := &spans[ends[ended]], false
		at := p.to
		if begun < len(spans) && spans[begun].from <= at {
			p, begins = &spans[begun], true
			at = p.from
		}
		if rate > 0 && at > now {
			s.watch(now, at, min(rate, 1))
			given += (at - now) / max(rate, 1)
		}
		now = at
		switch {
		case begins:
			rate += p.rate
			begun++
			p.from = given // from here on the beginning on the scale of given
		default:
			if s.cfg.By != Day {
				s.sums[p.bucket].watched += p.rate * (given - p.from)
			}
			if ended++; begun == ended {
				rate = 0 // without the errors of rounding
			} else {
				rate -= p.rate
			}
		}
	}
}

// watch divides an interval between the days.
func (s *Stats) watch(from, to, rate float64) {
	if s.cfg.By != Day {
		return
	}
	for at := int64(from); at < int64(to); {
		day, end := s.days.at(at)
		end = min(end, int64(to))
		s.day(day).watched += rate * float64(end-at)
		at = end
	}
}

// streaks returns the longest and the current run of days with a viewing.
func streaks(days []Bucket, today history.Day) (longest, current int) {
	run, last := 0, history.Day(math.MinInt32)
	for _, b := range days {
		if b.Viewings == 0 && b.Watched == 0 {
			continue // only marks
		}
		if b.Day != last+1 {
			run = 0
		}
		run, last = run+1, b.Day
		longest = max(longest, run)
	}
	if last >= today-1 { // also days of a clock that is ahead
		current = run
	}
	return longest, current
}

// calendar finds the days of times. It remembers the latest period of one offset to UTC. A day is the sum of such
// parts. It has 23 or 25 hours when clocks change, and is in two pieces when they go back at midnight.
type calendar struct {
	zone             *time.Location
	from, to, offset int64 // milliseconds
}

const dayMS = int64(24 * time.Hour / time.Millisecond)

// at returns the day of a time, and when that day or the offset to UTC ends.
func (c *calendar) at(at int64) (day history.Day, end int64) {
	if at < c.from || at >= c.to {
		c.period(at)
	}
	n := (at + c.offset) / dayMS // times are from 1970 on
	return history.Day(n), min(c.to, (n+1)*dayMS-c.offset)
}

func (c *calendar) period(at int64) {
	t := time.UnixMilli(at).In(c.zone)
	_, seconds := t.Zone()
	from, to := t.ZoneBounds()
	c.from, c.to, c.offset = math.MinInt64, math.MaxInt64, int64(seconds)*1000
	if !from.IsZero() {
		c.from = from.UnixMilli()
	}
	if !to.IsZero() {
		c.to = to.UnixMilli()
	}
}
