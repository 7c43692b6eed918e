package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

func TestNewNeedsItsParts(t *testing.T) {
	for _, cfg := range []client.Config{{}, {URL: "http://edge"}} {
		if c, err := client.New(cfg); err == nil {
			t.Errorf("%+v: got %v, want an error", cfg, c)
		}
	}
}

// TestDevices: clients without a device name count as different devices.
func TestDevices(t *testing.T) {
	var names []string
	for _, cfg := range []client.Config{{}, {}, {Device: "tv"}} {
		bubble(t, cfg, func(w *world) {
			stop := w.run()
			w.report("1", "2")
			named := beat("3")
			named.Device = "phone"
			_ = w.client.Report(named) // never fails
			w.flush(time.Second)
			if w.stored[1].Device != w.stored[0].Device || w.stored[2].Device != "phone" {
				w.Errorf("stored %v", w.stored)
			}
			names = append(names, w.stored[0].Device)
			_ = stop()
		})
	}
	if names[0] == "" || names[0] == names[1] || names[2] != "tv" {
		t.Errorf("got names %q", names)
	}
}

func TestADeviceNameThatTheEdgeRefuses(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 129), "\xff"} {
		_, err := client.New(client.Config{URL: "http://edge", Token: func(context.Context) (string, error) { return "", nil }, Device: name})
		if err == nil {
			t.Errorf("%q: got no error", name)
		}
	}
}

func TestAnAddressThatIsNone(t *testing.T) {
	for _, address := range []string{"127.0.0.1:8080", "edge.example.com", "ftp://edge", "http://", ""} {
		_, err := client.New(client.Config{URL: address, Token: func(context.Context) (string, error) { return "", nil }})
		if err == nil {
			t.Errorf("%q: got no error", address)
		}
	}
}

func TestReports(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.report("1", "2")
		stop := w.run()
		w.flush(time.Second)
		w.report("3")
		w.flush(time.Second)
		if want := []string{"1 STORED", "2 STORED", "3 STORED"}; !slices.Equal(w.answered, want) {
			w.Errorf("answered %v, want %v", w.answered, want)
		}
		if h := w.stored[2]; h.Uid != "u1" || h.SentAtMs != 0 || h.EventTimeMs != time.Now().UnixMilli() || len(w.connections()) != 1 {
			w.Errorf("stored %v over %d connections", h, len(w.connections()))
		}
		if err := stop(); err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

// TestACutConnection: a message is stored and its answer lost. The client resends it, then sends newer reports.
func TestACutConnection(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		cuts := 2
		w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
			if cuts--; cuts >= 0 {
				w.door.Cut()
				w.report(fmt.Sprint("later", cuts))
				return make([]messagev1.Status, len(beats)), nil
			}
			return all(beats, messagev1.Status_STATUS_UNCHANGED), nil
		}
		stop := w.run()
		w.report("1")
		w.flush(time.Minute)
		if want := []string{"1 UNCHANGED", "later1 UNCHANGED", "later0 UNCHANGED"}; !slices.Equal(w.answered, want) {
			w.Errorf("answered %v, want %v", w.answered, want)
		}
		if len(w.stored) != 2+3 || len(w.connections()) != 3 {
			w.Errorf("%d heartbeats were sent over %d connections", len(w.stored), len(w.connections()))
		}
		_ = stop()
	})
}

// TestACutWhileIdle: an idle player reconnects at once.
func TestACutWhileIdle(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		w.door.Cut()
		time.Sleep(time.Second)
		if len(w.connections()) != 2 {
			w.Errorf("%d connections", len(w.connections()))
		}
		time.Sleep(5 * time.Minute) // with pings
		if len(w.connections()) != 2 {
			w.Errorf("%d connections after a silence", len(w.connections()))
		}
		_ = stop()
	})
}

func TestTheEdgeRestarts(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		w.stop() // asks to reconnect within 5 s
		w.report("1")
		w.open()
		w.flush(6 * time.Second)
		if len(w.connections()) != 2 {
			w.Errorf("%d connections", len(w.connections()))
		}
		_ = stop()
	})
}

// TestAnEdgeThatIsAway: a client is back within two seconds.
func TestAnEdgeThatIsAway(t *testing.T) {
	for _, status := range []int{502, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				w.refuse(status)
				stop := w.run()
				w.report("1")
				time.Sleep(5 * time.Minute)
				w.refuse(0)
				w.flush(2 * time.Second)
				_ = stop()
			})
		})
	}
}

// TestReconnect does not wait as long as the edge asked.
func TestReconnect(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.refuse(503)
		stop := w.run()
		time.Sleep(time.Minute)
		w.refuse(0)
		before := len(w.connections())
		w.client.Reconnect()
		synctest.Wait()
		if got := len(w.connections()); got != before+1 {
			w.Errorf("got %d attempts, want %d", got, before+1)
		}
		_ = stop()
	})
}

// TestAnEdgeThatFails: the backoff doubles up to its limit, with jitter.
func TestAnEdgeThatFails(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.refuse(500)
		stop := w.run()
		w.report("1")
		time.Sleep(time.Hour)
		if n := len(w.connections()); n < 150 || n > 400 { // 240 of 15 s on average, and a few before
			w.Errorf("%d attempts in an hour", n)
		}
		dials := w.connections()
		var gaps []time.Duration
		for i, at := range dials[1:] {
			gaps = append(gaps, at.Sub(dials[i]))
		}
		if slices.Max(gaps) > 30*time.Second || slices.Max(gaps[:4]) > 4*time.Second || len(slices.Compact(gaps)) < 100 {
			w.Errorf("attempts after %v", gaps)
		}
		w.refuse(0)
		w.flush(30 * time.Second)
		_ = stop()
	})
}

func TestComesBackWhenTold(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.refuse(503)
		stop := w.run()
		time.Sleep(70 * time.Second)
		if n := len(w.connections()); n < 9 || n > 11 {
			w.Errorf("%d attempts in 70 s", n)
		}
		_ = stop()
	})
}

func TestTokensExpire(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.life = time.Minute
		stop := w.run()
		for range 9 {
			time.Sleep(20 * time.Second)
			w.report("1")
			w.flush(time.Second)
		}
		if n := len(w.connections()); n != 2 && n != 3 { // the edge accepts an expired token for 30 s
			w.Errorf("%d connections in three minutes", len(w.connections()))
		}
		_ = stop()
	})
}

func TestWaitsAsTold(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		refusals := 2
		w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
			if refusals--; refusals >= 0 {
				return nil, status.Error(codes.Unavailable, "away")
			}
			return all(beats, messagev1.Status_STATUS_STORED), nil
		}
		began, stop := time.Now(), w.run()
		w.report("1")
		w.flush(time.Minute)
		if took := time.Since(began); took < 2*time.Second || took > 7*time.Second || len(w.connections()) != 1 {
			w.Errorf("stored after %v, over %d connections", took, len(w.connections()))
		}
		_ = stop()
	})
}

func TestWhatIsUnavailableGoesAgain(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
			if len(beats) == 3 {
				return []messagev1.Status{messagev1.Status_STATUS_STORED, messagev1.Status_STATUS_UNAVAILABLE, messagev1.Status_STATUS_STALE}, nil
			}
			return []messagev1.Status{messagev1.Status_STATUS_STORED}, nil
		}
		w.report("1", "2", "3")
		stop := w.run()
		w.flush(10 * time.Second)
		if want := []string{"1 STORED", "3 STALE", "2 STORED"}; !slices.Equal(w.answered, want) {
			w.Errorf("answered %v, want %v", w.answered, want)
		}
		_ = stop()
	})
}

// TestWhatIsUnavailableForLong: an unavailable heartbeat does not delay others; its retries slow down.
func TestWhatIsUnavailableForLong(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		var sent [][]string
		w.fate = func(beats []*messagev1.Heartbeat) (statuses []messagev1.Status, err error) {
			var ids []string
			for _, h := range beats {
				status := messagev1.Status_STATUS_STORED
				if h.ObjectId == "0" && time.Since(time.UnixMilli(h.EventTimeMs)) < 5*time.Minute {
					status = messagev1.Status_STATUS_UNAVAILABLE
				}
				statuses, ids = append(statuses, status), append(ids, h.ObjectId)
			}
			sent = append(sent, ids)
			return statuses, nil
		}
		for i := range 150 {
			w.report(fmt.Sprint(i))
		}
		stop := w.run()
		w.flush(10 * time.Minute)
		if n := len(sent); n < 15 || n > 40 || sent[1][0] != "100" || sent[1][50] != "0" || len(sent[2]) != 1 {
			w.Errorf("%d messages, the first ones %v", n, sent[:3])
		}
		if len(w.answered) != 150 || w.answered[149] != "0 STORED" {
			w.Errorf("answered %v", w.answered)
		}
		again := true
		w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
			defer func() { again = false }()
			return all(beats, map[bool]messagev1.Status{true: messagev1.Status_STATUS_UNAVAILABLE, false: messagev1.Status_STATUS_STORED}[again]), nil
		}
		w.report("150")
		w.flush(time.Second) // the backoff restarts
		_ = stop()
	})
}

// TestOneThatSpoilsAMessage: a permanently refused heartbeat does not block others.
func TestOneThatSpoilsAMessage(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		strange := beat("2")
		strange.ProtoReflect().SetUnknown([]byte{0xf8, 0x0f, 1}) // field 255
		w.report("1")
		if err := w.client.Report(strange); err != nil {
			w.Fatal(err)
		}
		w.report("3")
		stop := w.run()
		w.flush(10 * time.Second)
		w.report("4", "5")
		w.flush(10 * time.Second)
		if want := []string{"1 STORED", "2 INVALID", "3 STORED", "4 STORED", "5 STORED"}; !slices.Equal(w.answered, want) {
			w.Errorf("answered %v, want %v", w.answered, want)
		}
		if guilty := w.answers[1].Refusal; guilty.GetField() == "" || guilty.GetReason() == "" {
			w.Errorf("refused %v, want where and why", guilty)
		}
		_ = stop()
	})
}

func TestAnEdgeThatFallsSilent(t *testing.T) {
	bubble(t, client.Config{Patience: 3 * time.Second}, func(w *world) {
		w.delay = 30 * time.Second
		began, stop := time.Now(), w.run()
		w.report("1")
		w.flush(time.Minute)
		if took := time.Since(began); took > 34*time.Second || len(w.connections()) < 2 {
			w.Errorf("answered after %v, over %d connections", took, len(w.connections()))
		}
		_ = stop()
	})
}

func TestRefusedForGood(t *testing.T) {
	for _, status := range []int{400, 403, 404, 426} {
		bubble(t, client.Config{}, func(w *world) {
			w.behind(func(rw http.ResponseWriter, _ *http.Request) {
				rw.WriteHeader(status)
				_, _ = rw.Write([]byte(`{"detail":"no such resource"}`)) // an error surfaces in the client
			}, nil)
			if err := w.client.Run(w.Context()); !errors.Is(err, client.ErrRefused) {
				w.Errorf("%d: %v", status, err)
			}
		})
	}
}

// TestRefusedByAProxy: reports refused by a proxy without a live edge get through later.
func TestRefusedByAProxy(t *testing.T) {
	for _, status := range []int{400, 403, 404, 426} {
		bubble(t, client.Config{}, func(w *world) {
			w.behind(func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "default backend", status) }, nil)
			stop := w.run()
			w.report("1")
			time.Sleep(time.Minute)
			w.behind(nil, nil)
			w.flush(time.Minute)
			if err := stop(); err != nil {
				w.Errorf("%d: %v", status, err)
			}
		})
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		for _, id := range []string{"\xff", strings.Repeat("a", 5000)} {
			if err := w.client.Report(beat(id)); err == nil {
				w.Errorf("%.10q was taken", id)
			}
		}
		w.report("1")
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := w.client.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || w.client.Waiting() != 1 {
			w.Errorf("flush without a connection: %v, %d wait", err, w.client.Waiting())
		}
	})
}

// TestTheQueueKeepsWhatIsNoProgress: a full queue drops superseded progress first, then the oldest report. A
// later report supersedes only progress.
func TestTheQueueKeepsWhatIsNoProgress(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.films = &filmService{}
		for n := range int64(202) {
			h := filmed("here", n)
			if n == 0 {
				h.Kind = messagev1.Kind_KIND_PAUSE
			}
			_ = w.client.Report(h) // never fails
		}
		w.finds([]string{"1 STALE", "2 STALE"}, 0)
	})
}

func TestTheQueueIsBounded(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		progress := func(session string, position int64) {
			h := beat("film")
			h.Kind, h.Session, h.PositionMs = messagev1.Kind_KIND_PROGRESS, session, position
			if err := w.client.Report(h); err != nil {
				w.Fatal(err)
			}
		}
		progress("first", 9000) // further than later ones
		for n := range int64(300) {
			progress("first", n)
		}
		if w.client.Waiting() != 200 || w.client.Dropped() != 0 {
			w.Errorf("%d wait, %d dropped", w.client.Waiting(), w.client.Dropped())
		}
		for n := range 199 {
			w.report(fmt.Sprint(n))
		}
		w.report("last")
		stop := w.run()
		w.flush(time.Minute)
		if len(w.answers) != 1+300+199+1 { // including dropped ones
			w.Errorf("told of %d", len(w.answers))
		}
		if len(w.stored) != 200 || w.client.Dropped() != 2 || w.stored[199].ObjectId != "last" || w.stored[0].ObjectId != "0" {
			w.Errorf("stored %d, from %v to %v, dropped %d", len(w.stored), w.stored[0], w.stored[199], w.client.Dropped())
		}
		_ = stop()
	})
}

// TestWakeful: if the steady time stops in sleep, a displayed time that runs ahead counts as sleep, any other
// difference as a set clock.
func TestWakeful(t *testing.T) {
	shown, steady := time.Unix(1_000_000, 0), time.Duration(0)
	clock := client.Wakeful(func() (time.Time, time.Duration) { return shown, steady })
	for _, tt := range []struct {
		what                 string
		shown, steady, wants time.Duration
	}{
		{"awake", time.Second, time.Second, time.Second},
		{"asleep", time.Hour, time.Second, time.Hour},
		{"set back", -time.Hour, time.Second, time.Second},
		{"set from 1970", 50 * 365 * 24 * time.Hour, time.Second, time.Second},
	} {
		_, before := clock()
		shown, steady = shown.Add(tt.shown), steady+tt.steady
		if _, after := clock(); after-before != tt.wants {
			t.Errorf("%s: %v elapsed, want %v", tt.what, after-before, tt.wants)
		}
	}
}

// every checks that all fields of a message are set except the named ones.
func every(t *testing.T, m proto.Message, without ...string) {
	t.Helper()
	fields := m.ProtoReflect().Descriptor().Fields()
	missing := make(map[string]bool)
	for _, name := range without {
		missing[name] = true
	}
	for i := range fields.Len() {
		f := fields.Get(i)
		if has := m.ProtoReflect().Has(f); has == missing[string(f.Name())] {
			t.Errorf("%s has %s: %v", m.ProtoReflect().Descriptor().Name(), f.Name(), has)
		}
	}
}

// TestEveryFieldIsPosted: a request conveys every field of a WebSocket message.
func TestEveryFieldIsPosted(t *testing.T) {
	hb := &messagev1.Heartbeat{
		Uid: "u1", ObjectId: "a", ObjectType: 2, Kind: messagev1.Kind_KIND_STOP, EventTimeMs: 1772396100000, PositionMs: 2, DurationMs: 3,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, RemovedMeta: []string{"c"}, Failed: true, SentAtMs: 1772396160000,
		StartedAtMs: 1772396000000, WatchedMs: 5, SpeedPercent: 150, IfMatch: 31, Incognito: true,
	}
	every(t, hb, "origin", "received_at_ms", "day") // set by the edge, or part of the message
	req := &messagev1.StreamRequest{SentAtMs: hb.SentAtMs, Heartbeats: []*messagev1.Heartbeat{hb}, ReturnRecords: true, Day: &messagev1.DayCheck{Known: 20260301}}
	body, err := client.Upload(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.DecodeBatch("u1", body)
	if err != nil || len(got.Heartbeats) != 1 || !proto.Equal(got.Heartbeats[0], hb) {
		t.Errorf("%s: got %v, %v, want %v", body, got.Heartbeats, err, hb)
	}
	if !got.Records || got.Day.GetKnown() != 20260301 || got.Day.GetZone() == "" {
		t.Errorf("%s: got %+v", body, got)
	}
}

// TestEveryFieldOfAnAnswerToAPost: a response in JSON has every field of a WebSocket response.
func TestEveryFieldOfAnAnswerToAPost(t *testing.T) {
	want := &messagev1.Item{
		Object: &messagev1.Object{Id: "100", Type: 2}, State: messagev1.State_STATE_PAUSED, EventTimeMs: 1772396100000,
		PositionMs: 61000, DurationMs: 90000, FurthestMs: 70000, Plays: 3, CompletedAtMs: 1772396000000,
		Session: "s", Device: "d", Meta: map[string]string{"a": "b"}, WatchedMs: 9, Early: true, Incomplete: true, Etag: 31, ResumeMs: 61000, Completed: true,
		PlayedMs: 1772396050000, DismissedMs: 1772396100001,
	}
	every(t, want, "next") // only in /v1/continue
	text, err := json.Marshal(codec.Reply{Results: []codec.Result{{Status: "stored", Record: codec.NewRecord(want)}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Reply(text)
	if err != nil || !proto.Equal(got.GetRecords()[0], want) {
		t.Errorf("got %v, %v\nwant %v", got.GetRecords(), err, want)
	}
}

// Watch tells a new connection to resync, like the service.
func (w *world) Watch(_ string, id uint64, tell func(*messagev1.Change)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tells == nil {
		w.tells = make(map[uint64]func(*messagev1.Change))
	}
	w.tells[id] = tell
	go func(after time.Duration) {
		time.Sleep(after)
		tell(&messagev1.Change{Resync: true})
	}(w.telling)
}

// Unwatch implements [ws.Changes].
func (w *world) Unwatch(_ string, id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tells, id)
}

// change tells all connections of a removed object.
func (w *world) change(id string) {
	w.tell(&messagev1.Change{Removed: []*messagev1.Object{{Id: id, Type: 1}}})
}

func (w *world) tell(c *messagev1.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, tell := range w.tells {
		tell(c)
	}
}

// TestChanges: changes arrive between answers, and each connection starts with a resync.
func TestChanges(t *testing.T) {
	var mu sync.Mutex
	var heard []string
	changed := func(c *messagev1.Change) {
		mu.Lock()
		defer mu.Unlock()
		if c.Resync {
			heard = append(heard, "resync")
		}
		for _, o := range c.Removed {
			heard = append(heard, o.Id)
		}
	}
	bubble(t, client.Config{Changed: changed}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		w.change("a")
		w.report("1", "2")
		w.change("b")
		w.flush(time.Second)
		synctest.Wait() // for the changes to arrive
		w.door.Cut()
		time.Sleep(time.Second)
		w.change("c")
		synctest.Wait()
		if err := stop(); err != nil {
			w.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"resync", "a", "b", "resync", "c"}; !slices.Equal(heard, want) || len(w.answered) != 2 {
			w.Errorf("heard %v, want %v; answered %v", heard, want, w.answered)
		}
	})
}

func TestNobodyToTell(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		if len(w.tells) != 0 {
			w.Errorf("asked for changes that nobody wants")
		}
		_ = stop()
	})
}
