package uplink_test

import (
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/uplink"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// timekeeper is an instance in a bubble that returns its time and records when the edge received a
// heartbeat. Requests and responses take time.
type timekeeper struct {
	mu        sync.Mutex
	there     time.Duration // request latency
	back      time.Duration
	ahead     time.Duration // of the edge's clock
	received  int64
	forwarded time.Duration // the edge's forwarding time of the last one
}

func (k *timekeeper) serve(req *historyv1.ApplyStreamRequest, send func(*historyv1.ApplyStreamResponse)) {
	k.mu.Lock()
	there, back, ahead := k.there, k.back, k.ahead
	k.mu.Unlock()
	time.Sleep(there) // virtual time
	now := time.Now().Add(ahead).UnixMilli()
	k.mu.Lock()
	k.received = req.Batch.Heartbeats[0].ReceivedAtMs
	k.forwarded = time.Duration(now-k.received) * time.Millisecond
	k.mu.Unlock()
	time.Sleep(back) // virtual time
	resp := whole(req)
	resp.Result.NowMs = now
	send(resp)
}

func (k *timekeeper) ways(there, back time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.there, k.back = there, back
}

// last returns the last heartbeat's receipt time at the edge and its forwarding time.
func (k *timekeeper) last() (receivedMS int64, forwarded time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.received, k.forwarded
}

// TestWhenItWasReceived: the edge sends a heartbeat's receipt time in the instance's time, however slow the
// request.
func TestWhenItWasReceived(t *testing.T) {
	const linger = 2 * time.Millisecond
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		bubble(t, uplink.Config{}, func(t *testing.T, i *instance, c *uplink.Client) {
			k := &timekeeper{ahead: ahead}
			i.serving(k.serve)
			for n, step := range []struct {
				there, back, pause time.Duration
				sentAt             int64
				known              bool
				behind             time.Duration // lag of the edge's estimate of the instance's time
			}{
				{0, 700 * time.Millisecond, 0, 5, false, 0}, // no answer yet
				{0, 300 * time.Millisecond, 0, 5, false, 0}, // the first answer was too slow to be evidence
				{1600 * time.Millisecond, 5 * time.Millisecond, 0, 5, true, 300 * time.Millisecond},
				{1600 * time.Millisecond, 800 * time.Millisecond, 0, 5, true, 5 * time.Millisecond},
				{0, 800 * time.Millisecond, 0, 5, true, 5 * time.Millisecond},
				{0, 0, 0, 0, false, 0},                                     // trusted times
				{0, 0, 2 * time.Minute, 5, false, 0},                       // clocks drift
				{1600 * time.Millisecond, 0, 0, 5, true, 0},                // known again
				{1600 * time.Millisecond, 0, 59 * time.Second, 5, true, 0}, // for a minute
			} {
				k.ways(step.there, step.back)
				time.Sleep(step.pause) // virtual time
				req := beats("u1", 1)
				req.Heartbeats[0].SentAtMs, req.Heartbeats[0].ReceivedAtMs = step.sentAt, 7 // never set by players
				if _, err := c.Apply(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				want := step.there + step.behind + linger
				received, forwarded := k.last()
				if known := received != 0; known != step.known || known && forwarded.Round(2*time.Millisecond) != want.Round(2*time.Millisecond) {
					t.Errorf("%v ahead, %d: received at %d, %v before it arrived; want %v, %v", ahead, n, received, forwarded, step.known, want)
				}
			}
		})
	}
}

// TestTheTimeOfReceiptOfOneThatIsSentAgain: a retry reports the first receipt time.
func TestTheTimeOfReceiptOfOneThatIsSentAgain(t *testing.T) {
	bubbles(t, 2, uplink.Config{}, func(t *testing.T, all []*instance, c *uplink.Client) {
		keepers := []*timekeeper{{}, {}}
		for n, i := range all {
			i.serving(keepers[n].serve)
		}
		send := func() {
			req := beats("u1", 1)
			req.Heartbeats[0].SentAtMs = 5
			if _, err := c.Apply(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		send()
		send() // the first answer synchronizes the clock
		owner, other := all[0], keepers[1]
		if at, _ := keepers[0].last(); at == 0 {
			owner, other = all[1], keepers[0]
		}
		owner.stop()
		defer owner.resume()
		send()
		received, _ := other.last()
		if ago := time.Since(time.UnixMilli(received)); ago.Round(100*time.Millisecond) != time.Second {
			t.Errorf("received %v ago, want 1s", ago)
		}
	})
}
