package read

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	// maxCounts limits the objects per request, maxCountDays the days.
	maxCounts, maxCountDays = 100, 366
	// totalsFresh is how long totals are served again, maxTotals how many of them.
	totalsFresh, maxTotals = time.Second, 10_000
)

// Counts returns the totals of objects. They are at most a second old. A failed read is an error, never 0.
func (r *Reader) Counts(ctx context.Context, req *historyv1.CountsRequest) (*historyv1.CountsResponse, error) {
	objects, err := r.countedOf(req)
	if err != nil {
		return nil, err
	}
	days, err := r.countDays(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	all, err := r.totals.read(ctx, objects)
	if err != nil {
		return nil, fmt.Errorf("counts: %w", err)
	}
	resp := &historyv1.CountsResponse{Items: make([]*historyv1.ObjectCounts, len(req.GetObjects()))}
	for i, o := range req.GetObjects() {
		one := &historyv1.ObjectCounts{Object: o}
		if t, ok := all[report.Object(o)]; ok {
			one.Counted, one.Total, one.Days, one.ThroughMs = true, countsSum(t.All), days.of(t), t.Through
		}
		resp.Items[i] = one
	}
	return resp, nil
}

// countedOf validates the objects of a request and returns those of counted types.
func (r *Reader) countedOf(req *historyv1.CountsRequest) (counted []history.Object, err error) {
	if n := len(req.GetObjects()); n == 0 || n > maxCounts {
		return nil, history.Invalid("objects", fmt.Sprintf("%d of them; want 1 to %d", n, maxCounts))
	}
	for i, in := range req.GetObjects() {
		o := report.Object(in)
		if err := o.Validate(); err != nil {
			return nil, fmt.Errorf("objects[%d]: %w", i, err)
		}
		if r.cfg.Counters != nil && r.cfg.Counted.Has(o.Type) {
			counted = append(counted, o)
		}
	}
	return counted, nil
}

// dayRange is a range of UTC days, both inclusive. The zero value is empty.
type dayRange struct{ since, until history.Day }

func (r *Reader) countDays(req *historyv1.CountsRequest) (days dayRange, err error) {
	if req.GetSinceDay() == 0 {
		if req.GetUntilDay() != 0 {
			return days, history.Invalid("until", "want it with since")
		}
		return days, nil
	}
	since, ok := history.NumberedDay(req.GetSinceDay())
	if !ok || since <= 0 {
		return days, history.Invalid("since", wantDay)
	}
	until := history.DayOf(r.cfg.Now().UTC())
	if req.GetUntilDay() != 0 {
		if until, ok = history.NumberedDay(req.GetUntilDay()); !ok {
			return days, history.Invalid("until", wantDay)
		}
	}
	switch {
	case since > until:
		return days, history.Invalid("since", "want a day up to until, or up to today")
	case until-since >= maxCountDays:
		return days, history.Invalid("since", fmt.Sprintf("want at most %d days", maxCountDays))
	}
	return dayRange{since, until}, nil
}

const wantDay = "want a day such as 2026-11-21"

// of returns the totals of these days.
func (d dayRange) of(t count.Totals) (days []*historyv1.CountsDay) {
	for _, e := range t.Days {
		if d.since > 0 && e.Day >= d.since && e.Day <= d.until {
			days = append(days, &historyv1.CountsDay{Day: e.Day.Number(), Sum: countsSum(e.Sum)})
		}
	}
	return days
}

func countsSum(s count.Sum) *historyv1.CountsSum {
	return &historyv1.CountsSum{Plays: s.Plays, Viewers: s.Viewers, WatchedMs: s.Watched}
}

// totals caches totals of objects for a second. Concurrent reads of an object share one.
type totals struct {
	counters count.Counters
	now      func() time.Time
	deadline time.Duration

	mu    sync.Mutex
	began time.Time                      // of the oldest read in reads
	reads map[history.Object]*totalsRead // of the last second; failed ones are removed
}

// totalsRead is one read of some objects. The fields after done are set before it is closed.
type totalsRead struct {
	objects []history.Object
	done    chan struct{}
	totals  map[history.Object]count.Totals
	err     error
}

// read returns the totals of objects. Callers must not modify them.
func (c *totals) read(ctx context.Context, objects []history.Object) (map[history.Object]count.Totals, error) {
	all := make(map[history.Object]count.Totals, len(objects))
	for i, r := range c.begin(ctx, objects) {
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err != nil {
			return nil, r.err
		}
		all[objects[i]] = r.totals[objects[i]]
	}
	return all, nil
}

// begin returns the read of each object. It starts one for those that were not read in the last second.
func (c *totals) begin(ctx context.Context, objects []history.Object) []*totalsRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if age := now.Sub(c.began); age < 0 || age >= totalsFresh || len(c.reads) >= maxTotals {
		c.began, c.reads = now, make(map[history.Object]*totalsRead)
	}
	next := &totalsRead{done: make(chan struct{})}
	reads := make([]*totalsRead, len(objects))
	for i, o := range objects {
		if c.reads[o] == nil {
			c.reads[o], next.objects = next, append(next.objects, o)
		}
		reads[i] = c.reads[o]
	}
	if len(next.objects) > 0 {
		go c.make(context.WithoutCancel(ctx), next) // its first caller may leave before others
	}
	return reads
}

// make runs a read. A panic becomes an error for all who wait.
func (c *totals) make(ctx context.Context, r *totalsRead) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	defer cancel()
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.err = &run.PanicError{Value: p, Stack: debug.Stack()}
		}
		if r.err != nil {
			c.forget(r)
		}
	}()
	all, err := c.counters.Totals(ctx, r.objects)
	if err == nil && len(all) != len(r.objects) {
		err = fmt.Errorf("%d totals for %d objects", len(all), len(r.objects))
	}
	if r.err = err; err != nil {
		return
	}
	r.totals = make(map[history.Object]count.Totals, len(all))
	for i, o := range r.objects {
		r.totals[o] = all[i]
	}
}

// forget removes a failed read, so that the next caller tries again.
func (c *totals) forget(r *totalsRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range r.objects {
		if c.reads[o] == r {
			delete(c.reads, o)
		}
	}
}
