package ws_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestAnswersTellTheTime checks now_ms in every answer, including those to empty messages, which players send
// to ask for it.
func TestAnswersTellTheTime(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.service.now = 1772396100250
		conn := w.dial(t, "u1", inJSON)
		for text, want := range map[string]string{
			message("1", beat): `{"seq":1,"results":[{"status":"stored"}],"now_ms":1772396100250}`,
			message("2"):       `{"seq":2,"results":[],"now_ms":1772396100250}`,
		} {
			if got := say(t, conn, text); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		conn = w.dial(t, "u1", inProto)
		for _, beats := range [][]*historyv1.Heartbeat{nil, {{ObjectId: "100"}}} {
			if got := exchange(t, conn, &historyv1.StreamRequest{Sequence: 1, Heartbeats: beats}); got.Result.GetNowMs() != 1772396100250 {
				t.Errorf("got %v", got)
			}
		}
	})
}

// TestMessagesThatStandStill sends messages with wrong clocks and varying delays. The clock correction stays
// constant until the clock is set.
func TestMessagesThatStandStill(t *testing.T) {
	for _, behind := range []time.Duration{-3 * time.Second, 60 * time.Second, 118 * time.Second, 5 * time.Hour} {
		for _, protocol := range []string{inJSON, inProto} {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				conn := w.dial(t, "u1", protocol)
				clock := -behind
				for _, s := range []struct{ set, late, want time.Duration }{
					{0, 20 * time.Millisecond, behind + 20*time.Millisecond},
					{0, 9 * time.Second, behind + 20*time.Millisecond},
					{0, 25 * time.Second, behind + 20*time.Millisecond},
					{0, 0, behind},
					{0, 30 * time.Millisecond, behind},
					{-time.Hour, 50 * time.Millisecond, behind + time.Hour + 50*time.Millisecond},
					{2 * time.Hour, 50 * time.Millisecond, behind - time.Hour + 50*time.Millisecond},
				} {
					clock += s.set
					sent := time.Now().Add(clock)
					time.Sleep(s.late) // bubble time
					if protocol == inJSON {
						say(t, conn, fmt.Sprintf(`{"seq":1,"sent_at":%q,"heartbeats":[%s,%s]}`, sent.Format(time.RFC3339Nano), beat, beat))
					} else {
						exchange(t, conn, &historyv1.StreamRequest{Sequence: 1, SentAtMs: sent.UnixMilli(), Heartbeats: []*historyv1.Heartbeat{{ObjectId: "1"}, {ObjectId: "1"}}})
					}
					for _, h := range w.service.asked[len(w.service.asked)-1].Heartbeats {
						if got := time.Since(time.UnixMilli(h.SentAtMs)); got != s.want {
							t.Errorf("%v behind, %v late: taken for %v behind, want %v", behind, s.late, got, s.want)
						}
					}
				}
			})
		}
	}
}

// TestClocksThatAreSet sets a fast clock right while the player reports. The player waits for each answer, so
// no delay exceeds the time since the previous one. Corrected events must stay in order.
func TestClocksThatAreSet(t *testing.T) {
	for _, ahead := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 10 * time.Second, 90 * time.Second} {
		for _, every := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 15 * time.Second} {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				conn := w.dial(t, "u1", inProto)
				var last time.Time // the last corrected event
				for n := range 30 {
					clock := ahead
					if n >= 10 {
						clock = 0
					}
					time.Sleep(every) // bubble time
					made := time.Now().Add(clock)
					time.Sleep(20*time.Millisecond + time.Duration(n%3)*time.Millisecond) // bubble time
					exchange(t, conn, &historyv1.StreamRequest{Sequence: 1, SentAtMs: made.UnixMilli(), Heartbeats: []*historyv1.Heartbeat{{ObjectId: "1"}}})
					sent := w.service.asked[len(w.service.asked)-1].Heartbeats[0].SentAtMs
					event := made.Add(time.Since(time.UnixMilli(sent)))
					if !event.After(last) {
						t.Errorf("%v ahead, every %v: report %d is of %v, the one before of %v", ahead, every, n, event, last)
					}
					last = event
				}
			})
		}
	}
}

// TestMessagesThatWaitTogether delays several messages of a player that does not wait for answers. None may be
// mistaken for a clock step.
func TestMessagesThatWaitTogether(t *testing.T) {
	const behind, still = -3 * time.Second, 10 * time.Second
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inProto)
		say := func(sent time.Time) {
			exchange(t, conn, &historyv1.StreamRequest{Sequence: 1, SentAtMs: sent.Add(-behind).UnixMilli(), Heartbeats: []*historyv1.Heartbeat{{ObjectId: "1"}}})
			h := w.service.asked[len(w.service.asked)-1].Heartbeats[0]
			if got := time.Since(time.UnixMilli(h.SentAtMs)); got != behind {
				t.Errorf("sent %v ago: taken for %v behind, want %v", time.Since(sent), got, behind)
			}
		}
		for range 3 {
			time.Sleep(time.Second) // bubble time
			say(time.Now())
		}
		time.Sleep(still) // bubble time
		for left := still; left > 0; left -= still / 5 {
			say(time.Now().Add(-left))
		}
	})
}
