package rpc_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/firstday"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// almanac counts the lookups of days and may fail; it receives the announcements.
type almanac struct {
	*pebble.Days
	looked, failing atomic.Int64
	deaf            atomic.Bool
	heard           chan history.First
}

func (a *almanac) See(ctx context.Context, s []history.Sighting) []history.Seen {
	a.looked.Add(int64(len(s)))
	if a.failing.Load() > 0 {
		return slices.Repeat([]history.Seen{{Err: errDown}}, len(s))
	}
	return a.Days.See(ctx, s)
}

func (a *almanac) Announce(_ context.Context, firsts []history.First) error {
	if a.deaf.Load() {
		a.heard <- history.First{}
		return errDown
	}
	for _, f := range firsts {
		a.heard <- f
	}
	return nil
}

// almanac returns the house's almanac and its service option.
func (h *house) almanac() (*almanac, func(*rpc.Config)) {
	a := &almanac{Days: h.db.Days(), heard: make(chan history.First, 100)}
	return a, func(c *rpc.Config) { c.Days, c.Announcer = a, a }
}

// pending returns the users with an unannounced sighting.
func (a *almanac) pending(t *testing.T, uids ...string) (pending []string) {
	t.Helper()
	for _, uid := range uids {
		firsts, err := a.PendingFirsts(t.Context(), []history.Bucket{history.BucketOf(uid)}, -time.Hour, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range firsts {
			pending = append(pending, f.UID)
		}
	}
	return pending
}

// asking adds a first-of-day check to a heartbeat.
func asking(hb *historyv1.Heartbeat, known uint32, zone string) *historyv1.Heartbeat {
	hb.Day = &historyv1.DayCheck{Known: known, Zone: zone}
	return hb
}

// answer is one answer of a batch.
type answer struct {
	index, date uint32
	first       bool
}

func wantDays(t *testing.T, s *rpc.Server, hbs []*historyv1.Heartbeat, want ...answer) {
	t.Helper()
	resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: hbs})
	if err != nil {
		t.Fatal(err)
	}
	var got []answer
	for _, d := range resp.GetDays() {
		got = append(got, answer{d.GetIndex(), d.GetDate(), d.GetFirst()})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v: got %+v, want %+v", hbs, got, want)
	}
}

func watching(uid string) *historyv1.Heartbeat {
	return beat(uid+"/1", historyv1.Kind_KIND_PROGRESS, 0, 1)
}

// day is the date of start in UTC.
const day = 20260921

func TestFirstOfDay(t *testing.T) {
	h := newHouse(t)
	a, with := h.almanac()
	s, other := h.service(t, with), h.service(t, with)
	one := func(hb *historyv1.Heartbeat) []*historyv1.Heartbeat { return []*historyv1.Heartbeat{hb} }
	wantDays(t, s, one(watching("ann")))
	wantDays(t, s, one(asking(watching("ann"), day, "")))
	if n := a.looked.Load(); n != 0 {
		t.Errorf("%d look-ups for who knows, want none", n)
	}
	wantDays(t, s, one(asking(watching("ann"), 0, "")), answer{0, day, true})
	if f := <-a.heard; f.UID != "ann" || f.Day.Number() != day || f.At != start {
		t.Errorf("announced: %+v", f)
	}
	wantDays(t, s, one(asking(watching("ann"), 0, "")), answer{0, day, false})
	wantDays(t, s, one(asking(watching("ann"), 29991231, "")), answer{0, day, false})      // a future day
	wantDays(t, s, one(asking(watching("ann"), 4_000_000_000, "")), answer{0, day, false}) // not a day
	if n := a.looked.Load(); n != 1 {
		t.Errorf("%d look-ups of one service, want 1", n)
	}
	wantDays(t, other, one(asking(watching("ann"), 0, "")), answer{0, day, false}) // through another service
	wantDays(t, other, []*historyv1.Heartbeat{
		watching("bob"), asking(watching("bob"), 0, ""), asking(watching("ann"), day, ""), asking(watching("cid"), day-1, ""), asking(watching("bob"), 0, ""),
	}, answer{1, day, true}, answer{3, day, true}, answer{4, day, false})
	h.clock.Store(start + 24*3600*1000)
	wantDays(t, s, one(asking(watching("ann"), day, "")), answer{0, day + 1, true}) // the day after
}

// TestDayOfZones asks half an hour before and after midnight UTC.
func TestDayOfZones(t *testing.T) {
	h := newHouse(t)
	_, with := h.almanac()
	s := h.service(t, with)
	for _, tt := range []struct {
		zone          string
		before, after uint32
	}{
		{"", 20260921, 20260922},
		{"UTC", 20260921, 20260922},
		{"Europe/Berlin", 20260922, 20260922},
		{"America/New_York", 20260921, 20260921},
		{"Pacific/Kiritimati", 20260922, 20260922},
		{"+00:30", 20260922, 20260922},
		{"-00:31", 20260921, 20260921},
		{"+14:00", 20260922, 20260922},
		{"-12:00", 20260921, 20260921},
		{"+14:01", 20260921, 20260922},
		{"+02:60", 20260921, 20260922},
		{"+2", 20260921, 20260922},
		{"Mars/Olympus", 20260921, 20260922},
		{"Local", 20260921, 20260922},
		{"../../etc/localtime", 20260921, 20260922},
		{"/etc/localtime", 20260921, 20260922},
		{string(make([]byte, 100)), 20260921, 20260922},
	} {
		for at, want := range map[time.Time]uint32{
			time.Date(2026, 9, 21, 23, 30, 0, 0, time.UTC): tt.before, time.Date(2026, 9, 22, 0, 30, 0, 0, time.UTC): tt.after,
		} {
			h.clock.Store(at.UnixMilli())
			hb := asking(watching("ann"), 0, tt.zone)
			resp, err := s.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}})
			if err != nil || len(resp.GetDays()) != 1 || resp.Days[0].GetDate() != want {
				t.Errorf("zone %.30q at %v: got %v, %v; want %d", tt.zone, at, resp.GetDays(), err, want)
			}
		}
	}
}

// TestFirstOfDayOfTheAbsent: reports that may not be stored do not count as activity.
func TestFirstOfDayOfTheAbsent(t *testing.T) {
	h := newHouse(t)
	a, with := h.almanac()
	s := h.service(t, with)
	record(t, s, "ann", start)
	h.clock.Store(start + 1000)
	off := beat("ann/1", historyv1.Kind_KIND_PROGRESS, -500, 1)
	hidden := watching("bob")
	hidden.Incognito = true
	invalid := watching("cid")
	invalid.PositionMs = -1
	expired := beat("dan/1", historyv1.Kind_KIND_STOP, history.DefaultRetention, 1)
	for _, hb := range []*historyv1.Heartbeat{off, hidden, invalid, expired} {
		wantDays(t, s, []*historyv1.Heartbeat{asking(hb, 0, "")})
	}
	if n := a.looked.Load(); n != 0 {
		t.Errorf("%d look-ups, want none", n)
	}
	wantDays(t, s, []*historyv1.Heartbeat{asking(invalid, 0, ""), watching("cid")}, answer{0, day, true}) // one that counts
}

// TestFirstOfDayAtOnce: of many concurrent devices, through two services, one is first.
func TestFirstOfDayAtOnce(t *testing.T) {
	h := newHouse(t)
	a, with := h.almanac()
	services := []*rpc.Server{h.service(t, with), h.service(t, with)}
	var told atomic.Int64
	var devices sync.WaitGroup
	for n := range 16 {
		devices.Go(func() {
			hb := asking(watching("ann"), 0, "")
			resp, err := services[n%2].Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{hb}})
			if err != nil || len(resp.GetDays()) != 1 {
				t.Errorf("got %v, %v; want an answer", resp, err)
				return
			}
			if resp.Days[0].GetFirst() {
				told.Add(1)
			}
		})
	}
	devices.Wait()
	if n := told.Load(); n != 1 {
		t.Errorf("%d devices were told that it is the first time, want one", n)
	}
	if f := <-a.heard; f.UID != "ann" || len(a.heard) != 0 {
		t.Errorf("announced: %+v, and %d more", f, len(a.heard))
	}
}

// TestFirstOfDayInOutage: heartbeats are stored even if the lookup fails or panics.
func TestFirstOfDayInOutage(t *testing.T) {
	h := newHouse(t)
	a, with := h.almanac()
	s := h.service(t, with)
	a.failing.Store(1)
	hb := asking(watching("ann"), 0, "")
	wantDays(t, s, []*historyv1.Heartbeat{hb}) // during the outage
	a.failing.Store(0)
	wantDays(t, s, []*historyv1.Heartbeat{hb}, answer{0, day, true}) // after it
	broken := h.service(t, func(c *rpc.Config) { c.Days, c.Announcer = panics{a}, a })
	wantStatuses(t, "with a bug", apply(t, broken, asking(watching("bob"), 0, "")), stored)
}

type panics struct{ firstday.Days }

func (panics) See(context.Context, []history.Sighting) []history.Seen { panic("no calendar") }

// TestAnnouncedRightAway: announced sightings are not pending, failed ones are.
func TestAnnouncedRightAway(t *testing.T) {
	h := newHouse(t)
	a, with := h.almanac()
	s := h.service(t, with)
	a.deaf.Store(true)
	apply(t, s, asking(watching("ann"), 0, ""))
	<-a.heard
	a.deaf.Store(false)
	apply(t, s, asking(watching("bob"), 0, ""))
	<-a.heard
	apply(t, s, asking(watching("cid"), 0, "")) // the previous announcement is then complete
	<-a.heard
	if pending := a.pending(t, "ann", "bob"); !slices.Equal(pending, []string{"ann"}) {
		t.Errorf("pending: got %v, want ann alone", pending)
	}
}

func TestDaysNeedAnAnnouncer(t *testing.T) {
	h := newHouse(t)
	_, with := h.almanac()
	var cfg rpc.Config
	h.service(t, with, func(c *rpc.Config) { cfg = *c })
	cfg.Announcer = nil
	if _, err := rpc.New(cfg); err == nil || errors.Is(err, errDown) {
		t.Errorf("got %v, want a refusal", err)
	}
}
