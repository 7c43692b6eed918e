package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/client"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestNewNeedsItsParts(t *testing.T) {
	for _, cfg := range []client.Config{{}, {URL: "http://edge"}} {
		if c, err := client.New(cfg); err == nil {
			t.Errorf("%+v: got %v, want an error", cfg, c)
		}
	}
}

// Clients that do not say which device they are on pass for different ones.
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
		if h := w.stored[2]; h.Uid != "u1" || h.SentAtMs != time.Now().UnixMilli() || len(w.connections()) != 1 {
			w.Errorf("stored %v over %d connections", h, len(w.connections()))
		}
		if err := stop(); err != nil {
			w.Errorf("run: %v", err)
		}
	})
}

// The connection breaks when the service has stored a message and nobody has heard of
// it: it is sent again, and what was reported meanwhile follows.
func TestACutConnection(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		cuts := 2
		w.fate = func(beats []*historyv1.Heartbeat) ([]historyv1.Status, error) {
			if cuts--; cuts >= 0 {
				w.door.Cut()
				w.report(fmt.Sprint("later", cuts))
				return make([]historyv1.Status, len(beats)), nil
			}
			return all(beats, historyv1.Status_STATUS_UNCHANGED), nil
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

// An idle player whose connection breaks connects again before it has something to say.
func TestACutWhileIdle(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		synctest.Wait()
		w.door.Cut()
		time.Sleep(time.Second) // of the bubble
		if len(w.connections()) != 2 {
			w.Errorf("%d connections", len(w.connections()))
		}
		time.Sleep(5 * time.Minute) // of the bubble, with pings
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
		w.stop() // asks to come back within 5 s
		w.report("1")
		w.open()
		w.flush(6 * time.Second)
		if len(w.connections()) != 2 {
			w.Errorf("%d connections", len(w.connections()))
		}
		_ = stop()
	})
}

// The waits double up to a bound, and a random part of each is waited.
func TestAnEdgeThatIsAway(t *testing.T) {
	for _, status := range []int{500, 502, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) { testAnEdgeThatIsAway(t, status) })
	}
}

func testAnEdgeThatIsAway(t *testing.T, status int) {
	t.Helper()
	bubble(t, client.Config{}, func(w *world) {
		w.refuse(status)
		stop := w.run()
		w.report("1")
		time.Sleep(time.Hour)                              // of the bubble
		if n := len(w.connections()); n < 150 || n > 400 { // 240 of 15 s on average, and some before
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
		time.Sleep(70 * time.Second) // of the bubble
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
			time.Sleep(20 * time.Second) // of the bubble
			w.report("1")
			w.flush(time.Second)
		}
		if n := len(w.connections()); n != 2 && n != 3 { // the edge leaves an old token 30 s
			w.Errorf("%d connections in three minutes", len(w.connections()))
		}
		_ = stop()
	})
}

func TestWaitsAsTold(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		refusals := 2
		w.fate = func(beats []*historyv1.Heartbeat) ([]historyv1.Status, error) {
			if refusals--; refusals >= 0 {
				return nil, status.Error(codes.Unavailable, "away")
			}
			return all(beats, historyv1.Status_STATUS_STORED), nil
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
		w.fate = func(beats []*historyv1.Heartbeat) ([]historyv1.Status, error) {
			if len(beats) == 3 {
				return []historyv1.Status{historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNAVAILABLE, historyv1.Status_STATUS_STALE}, nil
			}
			return []historyv1.Status{historyv1.Status_STATUS_STORED}, nil
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

// What is unavailable does not hold up the others, and is asked for less and less often.
func TestWhatIsUnavailableForLong(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		var sent [][]string
		w.fate = func(beats []*historyv1.Heartbeat) (statuses []historyv1.Status, err error) {
			var ids []string
			for _, h := range beats {
				status := historyv1.Status_STATUS_STORED
				if h.ObjectId == "0" && time.Since(time.UnixMilli(h.EventTimeMs)) < 5*time.Minute {
					status = historyv1.Status_STATUS_UNAVAILABLE
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
		w.fate = func(beats []*historyv1.Heartbeat) ([]historyv1.Status, error) {
			defer func() { again = false }()
			return all(beats, map[bool]historyv1.Status{true: historyv1.Status_STATUS_UNAVAILABLE, false: historyv1.Status_STATUS_STORED}[again]), nil
		}
		w.report("150")
		w.flush(time.Second) // it begins anew
		_ = stop()
	})
}

// One that the edge never takes does not hold up the others.
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
			w.refuse(status)
			if err := w.client.Run(w.Context()); !errors.Is(err, client.ErrRefused) {
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

// A full queue gives up what tells least: progress that a later report covers, and after
// that the oldest.
// Only a progress is superfluous beside a later report of its viewing.
func TestTheQueueKeepsWhatIsNoProgress(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.shelf = &shelf{}
		for n := range int64(202) {
			h := filmed("here", n)
			if n == 0 {
				h.Kind = historyv1.Kind_KIND_PAUSE
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
			h.Kind, h.Session, h.PositionMs = historyv1.Kind_KIND_PROGRESS, session, position
			if err := w.client.Report(h); err != nil {
				w.Fatal(err)
			}
		}
		progress("first", 9000) // further than what follows
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
		if len(w.answers) != 1+300+199+1 { // those that were dropped, too
			w.Errorf("told of %d", len(w.answers))
		}
		if len(w.stored) != 200 || w.client.Dropped() != 2 || w.stored[199].ObjectId != "last" || w.stored[0].ObjectId != "0" {
			w.Errorf("stored %d, from %v to %v, dropped %d", len(w.stored), w.stored[0], w.stored[199], w.client.Dropped())
		}
		_ = stop()
	})
}
