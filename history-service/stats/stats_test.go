package stats_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stats"
)

const (
	minute = int64(60_000)
	hour   = 60 * minute
)

// viewed is a viewing as the oracle sees it. The record is made of the same reports.
type viewed struct {
	object           history.Object
	session, device  string
	from, to, played int64
	finished         bool
}

func (v viewed) events() []history.Event {
	e := history.Event{
		Key: history.Key{UID: "ann", Object: v.object}, Kind: history.KindStart, At: v.from, Duration: 10 * hour,
		Session: v.session, Device: v.device, StartedAt: v.from,
	}
	last := e
	last.Kind, last.At, last.Watched, last.Position, last.Speed = history.KindStop, v.to, v.played, hour, 400
	if v.finished {
		last.Kind, last.Position = history.KindFinish, 10*hour
	}
	return []history.Event{e, last}
}

func itemsOf(viewings []viewed) (items []history.Item) {
	records := make(map[history.Object]*history.Record)
	for _, v := range viewings {
		for _, e := range v.events() {
			e.Clamp()
			records[v.object] = history.Merge(records[v.object], e.Record())
		}
	}
	for o, r := range records {
		items = append(items, history.Item{Object: o, Record: r})
	}
	slices.SortFunc(items, history.NewestFirst)
	return items
}

func resultOf(t interface{ Fatal(...any) }, cfg stats.Config, items []history.Item, now int64) stats.Result {
	s := stats.New(cfg)
	for _, it := range items {
		if err := s.Add(it); err != nil {
			t.Fatal(err)
		}
	}
	return s.Result(now)
}

func zoneOf(t interface{ Fatal(...any) }, name string) *time.Location {
	loc, err := history.ParseZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// places are zones and times near their changes of clocks. They change by an hour in the night or at midnight, back
// over midnight, by half an hour, and over a whole day.
var places = []struct{ zone, around string }{
	{"UTC", "2026-03-01T00:00:00Z"},
	{"Europe/Berlin", "2026-03-29T01:00:00Z"},
	{"Europe/Berlin", "2026-10-25T01:00:00Z"},
	{"America/New_York", "2026-11-01T06:00:00Z"},
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z"},
	{"America/Sao_Paulo", "2018-02-18T02:00:00Z"},
	{"America/St_Johns", "2006-10-29T02:31:00Z"},
	{"Australia/Lord_Howe", "2026-04-04T15:00:00Z"},
	{"Pacific/Apia", "2011-12-30T10:00:00Z"},
	{"Asia/Beirut", "2022-03-26T22:00:00Z"},
	{"+05:45", "2026-01-01T00:00:00Z"},
}

// TestOracle compares with sums over single minutes. All viewings begin and end on full minutes. So each minute of a
// device has one sum of rates, one day and one share per viewing.
func TestOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		place := rapid.SampledFrom(places).Draw(t, "place")
		around, err := time.Parse(time.RFC3339, place.around)
		if err != nil {
			t.Fatal(err)
		}
		at := func(name string) int64 {
			return around.UnixMilli() + rapid.Int64Range(-3*24*60, 3*24*60).Draw(t, name)*minute
		}
		var viewings []viewed
		for i := range rapid.IntRange(0, 12).Draw(t, "viewings") {
			v := viewed{
				object:  history.Object{ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"), Type: rapid.Uint32Range(1, 2).Draw(t, "type")},
				session: fmt.Sprint("s", i), device: rapid.SampledFrom([]string{"", "tv", "phone"}).Draw(t, "device"), from: at("from"),
			}
			v.to = v.from + rapid.Int64Range(1, 2000).Draw(t, "minutes")*minute
			v.played = rapid.Int64Range(0, 2*(v.to-v.from)).Draw(t, "played")
			v.finished = rapid.Bool().Draw(t, "finished") && v.to-v.from > 10*minute
			viewings = append(viewings, v)
		}
		cfg := stats.Config{Zone: zoneOf(t, place.zone), By: rapid.SampledFrom([]stats.By{stats.Day, stats.Type, stats.Object}).Draw(t, "by")}
		if rapid.Bool().Draw(t, "bounded") {
			a, b := at("since"), at("until")
			cfg.Since, cfg.Until = min(a, b), max(a, b)+minute-1
		}
		now := at("now")
		got, want := resultOf(t, cfg, itemsOf(viewings), now), oracle(cfg, viewings, now)
		compare(t, got, want)
		hours := hoursOf(cfg.Zone, around)
		for _, b := range got.Buckets {
			if cfg.By == stats.Day && b.Watched > 3*hours[b.Day]+1 {
				t.Fatalf("%v: %d ms on three devices, the day has %d", b, b.Watched, hours[b.Day])
			}
		}
	})
}

// hoursOf counts the milliseconds of each day around a time.
func hoursOf(zone *time.Location, around time.Time) map[history.Day]int64 {
	days := make(map[history.Day]int64)
	for at := around.Add(-7 * 24 * time.Hour); at.Before(around.Add(7 * 24 * time.Hour)); at = at.Add(time.Minute) {
		days[history.DayOf(at.In(zone))] += minute
	}
	return days
}

// oracle adds up minute by minute.
func oracle(cfg stats.Config, viewings []viewed, now int64) (r stats.Result) {
	until := cmp.Or(cfg.Until, math.MaxInt64-1)
	type bucket struct {
		stats.Bucket
		watched float64
	}
	buckets := make(map[stats.Bucket]*bucket)
	of := func(v viewed, at int64) *bucket {
		var name stats.Bucket
		switch cfg.By {
		case stats.Day:
			name.Day = history.DayOf(time.UnixMilli(at).In(cfg.Zone))
		case stats.Type:
			name.Object.Type = v.object.Type
		case stats.Object:
			name.Object = v.object
		}
		if buckets[name] == nil {
			buckets[name] = &bucket{Bucket: name}
		}
		return buckets[name]
	}
	rates := make(map[string]map[int64]float64) // device, minute
	rate := func(v viewed) float64 { return float64(min(v.played, v.to-v.from)) / float64(v.to-v.from) }
	for _, v := range viewings {
		if rates[v.device] == nil {
			rates[v.device] = make(map[int64]float64)
		}
		for at := v.from; at < v.to; at += minute {
			rates[v.device][at] += rate(v)
		}
	}
	for _, v := range viewings {
		if v.to >= cfg.Since && v.to <= until {
			of(v, v.to).Viewings++
			if v.finished {
				of(v, v.to).Plays++
			}
		}
		for at := v.from; at < v.to; at += minute {
			if at >= cfg.Since && at <= until {
				of(v, at).watched += rate(v) / max(1, rates[v.device][at]) * float64(minute)
			}
		}
	}
	active := make(map[history.Day]bool)
	for _, b := range buckets {
		b.Watched = int64(math.Round(b.watched))
		if b.Sum == (stats.Sum{}) {
			continue
		}
		r.Buckets = append(r.Buckets, b.Bucket)
		r.Total.Watched += b.Watched
		r.Total.Plays += b.Plays
		r.Total.Viewings += b.Viewings
		active[b.Day] = true
	}
	if cfg.By != stats.Day {
		return r
	}
	for day := range active {
		n := 0
		for active[day] {
			day, n = day-1, n+1
		}
		r.Longest = max(r.Longest, n)
	}
	today := history.DayOf(time.UnixMilli(min(now, until)).In(cfg.Zone))
	for day := range active { // days of the future count as the last day
		today = max(today, day)
	}
	if !active[today] {
		today--
	}
	for ; active[today]; today-- {
		r.Current++
	}
	return r
}

// compare allows a millisecond per bucket for rounding, so the order of objects may differ.
func compare(t *rapid.T, got, want stats.Result) {
	if len(got.Buckets) != len(want.Buckets) || got.Longest != want.Longest || got.Current != want.Current {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	near := func(a, b stats.Sum, by int64) bool {
		return a.Plays == b.Plays && a.Viewings == b.Viewings && max(a.Watched-b.Watched, b.Watched-a.Watched) <= by
	}
	if !near(got.Total, want.Total, int64(len(got.Buckets))) || got.Undated != want.Undated {
		t.Fatalf("total: got %+v, want %+v", got, want)
	}
	for _, b := range got.Buckets {
		i := slices.IndexFunc(want.Buckets, func(o stats.Bucket) bool { return o.Day == b.Day && o.Object == b.Object })
		if i < 0 || !near(b.Sum, want.Buckets[i].Sum, 1) {
			t.Fatalf("%+v: got %+v\nwant %+v", b, got, want)
		}
	}
}

func at(t *testing.T, text string) int64 {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixMilli()
}

// TestDaysOfAnotherLength: a viewing without a pause fills each day with its own hours.
func TestDaysOfAnotherLength(t *testing.T) {
	for _, test := range []struct {
		zone, from string
		hours      int64
		want       []float64 // hours
	}{
		{"Europe/Berlin", "2026-03-28T00:00:00+01:00", 70, []float64{24, 23, 23}},
		{"Europe/Berlin", "2026-10-24T00:00:00+02:00", 72, []float64{24, 25, 23}},
		{"Australia/Lord_Howe", "2026-04-05T00:00:00+11:00", 30, []float64{24.5, 5.5}},
		{"America/Sao_Paulo", "2018-11-03T00:00:00-03:00", 48, []float64{24, 23, 1}},
		{"Pacific/Apia", "2011-12-29T00:00:00-10:00", 30, []float64{24, 6}}, // the 30th never was
		{"America/St_Johns", "2006-10-28T00:00:00-02:30", 26, []float64{24 + 59.0/60, 1 + 1.0/60}},
		{"UTC", "2026-03-28T00:00:00Z", 49, []float64{24, 24, 1}},
	} {
		v := viewed{object: history.Object{ID: "a", Type: 1}, session: "s", device: "tv", from: at(t, test.from)}
		v.to, v.played = v.from+test.hours*hour, test.hours*hour
		r := resultOf(t, stats.Config{Zone: zoneOf(t, test.zone)}, itemsOf([]viewed{v}), v.to)
		var got []float64
		for _, b := range r.Buckets {
			got = append(got, float64(b.Watched)/float64(hour))
		}
		if !slices.EqualFunc(got, test.want, func(a, b float64) bool { return math.Abs(a-b) < 1e-6 }) {
			t.Errorf("%s from %s: got hours %v, want %v", test.zone, test.from, got, test.want)
		}
	}
}

// TestOverlaps: viewings on one device share its time, viewings on several do not.
func TestOverlaps(t *testing.T) {
	from := at(t, "2026-03-01T10:00:00Z")
	viewing := func(id, device string) viewed {
		return viewed{object: history.Object{ID: id, Type: 1}, session: "s" + id, device: device, from: from, to: from + hour, played: hour}
	}
	for _, test := range []struct {
		viewings []viewed
		want     int64
	}{
		{[]viewed{viewing("a", "tv"), viewing("b", "tv")}, hour},
		{[]viewed{viewing("a", "tv"), viewing("b", "phone")}, 2 * hour},
	} {
		for _, by := range []stats.By{stats.Day, stats.Type, stats.Object} {
			r := resultOf(t, stats.Config{Zone: time.UTC, By: by}, itemsOf(test.viewings), from)
			if r.Total.Watched != test.want {
				t.Errorf("%v by %d: got %d, want %d", test.viewings, by, r.Total.Watched, test.want)
			}
		}
	}
}

// TestUndated: sums without times count on a day only if they are all of that day.
func TestUndated(t *testing.T) {
	day := at(t, "2026-03-01T00:00:00Z")
	object := history.Object{ID: "a", Type: 3}
	oneDay := history.Summary{Object: object, First: day + hour, Last: day + 2*hour, Version: history.VersionOf(day+2*hour, 0), Plays: 1, Watched: 3 * hour}
	days := oneDay
	days.Last = day + 30*hour
	many := history.Item{Object: object, Record: &history.Record{
		Version: history.VersionOf(day+hour, 0), State: history.StateStopped, Session: "s", PlaysBefore: 7, PlaysBeforeAt: day, WatchedBefore: 9, WatchedBeforeAt: day,
	}}
	for _, test := range []struct {
		name           string
		since          int64
		summary        *history.Summary
		total, undated stats.Sum
	}{
		{"summary of a day", 1, &oneDay, stats.Sum{Watched: hour, Plays: 1}, stats.Sum{}},
		{"summary of two", 1, &days, stats.Sum{Watched: 3 * hour, Plays: 1}, stats.Sum{Watched: 3 * hour, Plays: 1}},
		{"divided by the range", day + 2*hour, &oneDay, stats.Sum{}, stats.Sum{}},
		{"many viewings", 0, nil, stats.Sum{Watched: 9, Plays: 7, Viewings: 1}, stats.Sum{Watched: 9, Plays: 7}},
		{"many viewings, bounded", 1, nil, stats.Sum{Viewings: 1}, stats.Sum{}},
	} {
		for _, by := range []stats.By{stats.Day, stats.Type, stats.Object} {
			s, err := stats.New(stats.Config{Zone: time.UTC, By: by, Since: test.since}), error(nil)
			if test.summary != nil {
				err = s.AddSummary(*test.summary)
			} else {
				err = s.Add(many)
			}
			r := s.Result(day)
			undated := test.undated
			if by != stats.Day {
				undated = stats.Sum{}
			}
			if err != nil || r.Total != test.total || r.Undated != undated {
				t.Errorf("%s by %d: got %+v, %v; want %+v, undated %+v", test.name, by, r, err, test.total, undated)
			}
		}
	}
}

// TestMarks: a mark counts as a play, and makes no viewing and no streak.
func TestMarks(t *testing.T) {
	e := history.Event{Key: history.Key{UID: "ann", Object: history.Object{ID: "a", Type: 1}}, Kind: history.KindWatched, At: at(t, "2026-03-01T10:00:00Z")}
	r := resultOf(t, stats.Config{Zone: time.UTC}, []history.Item{{Object: e.Key.Object, Record: e.Record()}}, e.At)
	if r.Total != (stats.Sum{Plays: 1}) || r.Longest != 0 || r.Current != 0 {
		t.Errorf("got %+v", r)
	}
}

// TestTooMany: a range with too many viewings is refused, a shorter one is not.
func TestTooMany(t *testing.T) {
	day := at(t, "2026-03-01T00:00:00Z")
	r := &history.Record{Version: history.VersionOf(day+25*hour, 0), State: history.StateStopped, Session: "s"}
	for i := range int64(history.MaxWatches) {
		r.Watches = append(r.Watches, history.WatchedTime{At: day + i*minute + 1, Viewing: uint64(i), Watched: 1, Began: day + i*minute})
	}
	add := func(since int64) (err error) {
		s := stats.New(stats.Config{Zone: time.UTC, Since: since})
		for range 10_000 {
			err = cmp.Or(err, s.Add(history.Item{Object: history.Object{ID: "a", Type: 1}, Record: r}))
		}
		return err
	}
	if err := add(0); !errors.Is(err, history.ErrInvalid) {
		t.Errorf("got %v, want it refused", err)
	}
	if err := add(day + 24*hour); err != nil {
		t.Error(err)
	}
}
