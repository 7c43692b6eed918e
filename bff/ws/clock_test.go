package ws_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestAnswersTellTheTime: also those to messages of nothing, which is how a player asks.
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

// TestMessagesThatStandStill has players that say only when they sent a message, by clocks
// that are wrong. What the service takes a clock to be off is the same for each message, however
// long one was on its way; until the clock is set.
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
					time.Sleep(s.late) // of the bubble
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
