package ws_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestTheRateOfAUser checks that a user over the limit gets a retry delay, and that other users are unaffected.
func TestTheRateOfAUser(t *testing.T) {
	bubble(t, ws.Config{Limit: limit.New(2, 5)}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inJSON) // takes one of the five
		for n := range 4 {
			if got := say(t, conn, message(strconv.Itoa(n+1), beat)); !strings.Contains(got, "stored") {
				t.Fatalf("message %d: %s", n, got)
			}
		}
		got := say(t, conn, message("9", beat))
		var reply codec.Reply
		if err := json.Unmarshal([]byte(got), &reply); err != nil || reply.Seq != 9 || reply.Error.Code != "rate_limited" || reply.Error.RetryAfterMS != 501 {
			t.Fatalf("got %s", got)
		}
		if got := say(t, w.dial(t, "u2", inJSON), message("1", beat)); !strings.Contains(got, "stored") {
			t.Errorf("another user: %s", got)
		}
		if _, got, err := w.knock(t, []string{inJSON}, "Authorization: Bearer "+mint(t, "u1", time.Hour)); err == nil || got.status != http.StatusTooManyRequests {
			t.Errorf("another connection: %v, %v; want 429", got, err)
		}
		time.Sleep(time.Duration(reply.Error.RetryAfterMS) * time.Millisecond) // bubble time
		if got := say(t, conn, message("9", beat)); !strings.Contains(got, "stored") {
			t.Errorf("after the wait: %s", got)
		}
	})
}

func TestALargeMessageCostsMore(t *testing.T) {
	bubble(t, ws.Config{Limit: limit.New(1, 5)}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inJSON)
		many := make([]string, 600)
		for i := range many {
			many[i] = beat
		}
		if got := say(t, conn, message("1", many...)); !strings.Contains(got, "stored") {
			t.Fatalf("it is lent what it lacks: %.100s", got)
		}
		for seconds := range 4 { // four were left, six taken, one is needed
			if got, want := say(t, conn, message("2", beat)), fmt.Sprintf("retry_after_ms\":%d001", 3-seconds); !strings.Contains(got, want) {
				if seconds == 3 && strings.Contains(got, "stored") {
					break
				}
				t.Errorf("after %d s: %s, want %s", seconds, got, want)
			}
			time.Sleep(time.Second) // bubble time
		}
	})
}

func TestWhoNeverWaitsIsCutOff(t *testing.T) {
	bubble(t, ws.Config{Limit: limit.New(1, 5)}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inJSON)
		go func() { // ends with the connection
			for n := 1; conn.Write(t.Context(), websocket.MessageText, []byte(message(strconv.Itoa(n), beat))) == nil; n++ {
			}
		}()
		got := closed(t, conn)
		if got.Code != websocket.StatusPolicyViolation || !strings.Contains(got.Reason, "too many messages; retry_after_ms=") {
			t.Errorf("got %v", got)
		}
		_ = conn.CloseNow()
		synctest.Wait()
		if _, got, err := w.knock(t, []string{inJSON}, "Authorization: Bearer "+mint(t, "u1", time.Hour)); err == nil || got.status != http.StatusTooManyRequests {
			t.Errorf("coming back at once: %v, %v; want 429", got, err)
		}
		time.Sleep(10 * time.Second) // bubble time; the limit recovers
		w.dial(t, "u1", inJSON)
	})
}

func TestTheTokenExpires(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		began := time.Now()
		conn, _, err := w.knock(t, []string{inJSON}, "Authorization: Bearer "+mint(t, "u1", time.Minute-token.Leeway))
		if err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the connection
			for n := 1; conn.Write(t.Context(), websocket.MessageText, []byte(message(strconv.Itoa(n), beat))) == nil; n++ {
				time.Sleep(10 * time.Second) // bubble time
			}
		}()
		if got := closed(t, conn); got.Code != 4401 || since(began) != time.Minute {
			t.Errorf("got %v after %v", got, since(began))
		}
		time.Sleep(10 * time.Second) // bubble time, for the writer to notice
	})
}

// TestTheWallClockIsSetAhead checks that a wall clock step neither idles connections nor expires tokens. Bubble
// time has no monotonic clock, so this test runs in real time. Only connections that are not idle get pings.
func TestTheWallClockIsSetAhead(t *testing.T) {
	w := newWorld(t, ws.Config{Ping: time.Second, Idle: 30 * time.Minute})
	if !w.handler.SetWallClock(time.Hour) {
		t.Error("the handler knows the wall clock alone")
	}
	pinged := make(chan struct{}, 1000)
	header := http.Header{"Authorization": {"Bearer " + mint(t, "u1", 30*time.Minute)}}
	conn, _, err := w.open(t, &websocket.DialOptions{
		Subprotocols: []string{inJSON}, HTTPHeader: header,
		OnPingReceived: func(context.Context, []byte) bool { pinged <- struct{}{}; return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	say(t, conn, message("1", beat))
	if !w.handler.Monotonic() {
		t.Error("the token expires by the wall clock")
	}
	ended := conn.CloseRead(t.Context())
	for range 2 {
		select {
		case <-pinged:
		case <-ended.Done():
			t.Fatal("the connection has ended")
		}
	}
}

func TestWhoIsThereMayBeSilentForAWhile(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		began, conn := time.Now(), w.dial(t, "u1", inJSON)
		if got := closed(t, conn); got.Code != websocket.StatusNormalClosure || since(began) != 30*time.Minute {
			t.Errorf("got %v after %v", got, since(began))
		}
	})
}

func TestWhoIsNotThereAnyMore(t *testing.T) {
	for name, tt := range map[string]struct {
		reads bool
		after time.Duration // until the connection ends
	}{
		"takes nothing":   {false, 35 * time.Second},
		"answers no ping": {true, 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				conn := w.deaf(t, "u1")
				if tt.reads {
					conn.CloseRead(t.Context())
				}
				time.Sleep(tt.after - time.Millisecond) // bubble time
				if n := w.count(t, "playhead_ws_connections"); n != 1 {
					t.Errorf("%v connections before %v, want 1", n, tt.after)
				}
				time.Sleep(2 * time.Millisecond) // bubble time
				if n, m := w.count(t, "playhead_ws_connections"), w.count(t, "playhead_ws_closed_connections_total", "1006"); n != 0 || m != 1 {
					t.Errorf("%v connections after it, %v counted", n, m)
				}
			})
		})
	}
}

// TestGoingAway checks that pending messages are answered before the close.
func TestGoingAway(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		letGo := make(chan struct{})
		w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
			<-letGo
			return &historyv1.ApplyResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED}}, nil
		}
		busy, idle := w.dial(t, "u1", inJSON), w.dial(t, "u2", inJSON)
		write(t, busy, websocket.MessageText, message("1", beat))
		synctest.Wait()
		w.stop()
		got := closed(t, idle)
		reason, hint, _ := strings.Cut(got.Reason, "; retry_after_ms=")
		if ms, err := strconv.Atoi(hint); got.Code != websocket.StatusGoingAway || reason == "" || err != nil || ms < 0 || ms >= 5000 {
			t.Errorf("an idle one: %v", got)
		}
		if _, got, err := w.knock(t, []string{inJSON}, "Authorization: Bearer "+mint(t, "u3", time.Hour)); err == nil || got.status != http.StatusServiceUnavailable {
			t.Errorf("a new one: %v, %v; want 503", got, err)
		}
		close(letGo)
		if got := read(t, busy); !strings.Contains(got, "stored") {
			t.Errorf("got %s", got)
		}
		if got := closed(t, busy); got.Code != websocket.StatusGoingAway {
			t.Errorf("a busy one: %v", got)
		}
		<-w.stopped
	})
}

func TestWhoDoesNotGoIsCutOff(t *testing.T) {
	bubble(t, ws.Config{Drain: 3 * time.Second}, func(t *testing.T, w *world) {
		w.dial(t, "u1", inJSON) // never reads
		began := time.Now()
		w.stop()
		<-w.stopped
		if took := since(began); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestASlowReader(t *testing.T) {
	for name, reads := range map[string]bool{"reads in the end": true, "never reads": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				w.service.answer = func(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
					resp := &historyv1.ApplyResponse{}
					for range req.Heartbeats {
						resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
						resp.Records = append(resp.Records, &historyv1.Item{Object: &historyv1.Object{Id: "100"}, Session: strings.Repeat("s", 1000)})
					}
					return resp, nil
				}
				conn := w.dial(t, "u1", inJSON)
				write(t, conn, websocket.MessageText, message("1", beat, beat, beat, beat, beat, beat))
				time.Sleep(6 * time.Second) // bubble time
				if n := w.count(t, "playhead_ws_connections"); n != 1 {
					t.Errorf("%v connections, want 1: it has some more time to hear why", n)
				}
				if reads {
					if got := closed(t, conn); got.Code != websocket.StatusTryAgainLater || got.Reason != "slow reader" {
						t.Errorf("got %v", got)
					}
				}
				time.Sleep(10 * time.Second) // bubble time
				if n, m := w.count(t, "playhead_ws_connections"), w.count(t, "playhead_ws_closed_connections_total", "1013"); n != 0 || m != 1 {
					t.Errorf("%v connections, %v counted as slow", n, m)
				}
			})
		})
	}
}

// TestTheTokenExpiresWithinAMessage checks that an unfinished message does not keep an expired connection open.
func TestTheTokenExpiresWithinAMessage(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		conn, err := w.door.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		began := time.Now()
		first := append([]byte(handshake(mint(t, "u1", 20*time.Second-token.Leeway))), 0x01, 0x80|1, 0, 0, 0, 0, '{') // an unfinished text message
		for _, err := conn.Write(first); err == nil; _, err = conn.Write([]byte{0x00, 0x80 | 1, 0, 0, 0, 0, ' '}) {
			time.Sleep(time.Second) // bubble time
			if w.count(t, "playhead_ws_connections") == 0 {
				break
			}
		}
		if took := since(began); took > 26*time.Second { // includes the closing handshake
			t.Errorf("it was open for %v", took)
		}
		synctest.Wait()
		if n := w.count(t, "playhead_ws_closed_connections_total", "4401"); n != 1 {
			t.Errorf("counted %v as expired", n)
		}
	})
}
