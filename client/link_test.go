package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/client"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// TestATokenThatBecomesValid: a refused token is reported once and retried with backoff.
func TestATokenThatBecomesValid(t *testing.T) {
	var told []error
	var text atomic.Value
	cfg := client.Config{
		Unauthorized: func(err error) { told = append(told, err) },
		Token:        func(context.Context) (string, error) { return text.Load().(string), nil },
	}
	bubble(t, cfg, func(w *world) {
		renew := func() {
			token, _ := w.token(w.Context()) // never fails
			text.Store(token)
		}
		renew()
		w.refuse(401)
		stop := w.run()
		w.report("1")
		time.Sleep(4 * time.Second)
		if n := len(w.connections()); n != 1 {
			w.Errorf("%d attempts in 4 s", n)
		}
		time.Sleep(3 * time.Minute)
		if n := len(w.connections()); n < 6 || n > 20 {
			w.Errorf("%d attempts in 3 minutes", n)
		}
		w.refuse(0)
		w.flush(40 * time.Second)
		if len(told) != 1 || !errors.Is(told[0], client.ErrUnauthorized) {
			w.Errorf("told %v", told)
		}
		w.refuse(401)
		w.door.Cut()
		time.Sleep(time.Second)
		w.life = 2 * time.Hour
		renew()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 2 {
			w.Errorf("told %v of two tokens", told)
		}
		_ = stop()
	})
}

// TestATokenThatNeverComes: a hanging call for a token is abandoned; no second call starts before it returns.
func TestATokenThatNeverComes(t *testing.T) {
	var calls atomic.Int32
	var late chan string
	cfg := client.Config{Token: func(context.Context) (string, error) {
		calls.Add(1)
		return <-late, nil
	}}
	bubble(t, cfg, func(w *world) {
		late = make(chan string)
		stop := w.run()
		w.report("1")
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 {
			w.Errorf("%d calls wait", n)
		}
		text, err := w.token(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		late <- text
		w.flush(time.Minute)
		if err := stop(); err != nil {
			w.Error(err)
		}
	})
}

// TestWaitsAsLongAsAsked: the edge's retry time takes precedence over MaxWait.
func TestWaitsAsLongAsAsked(t *testing.T) {
	for name, front := range map[string]http.HandlerFunc{
		"handshake": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "300")
			rw.WriteHeader(http.StatusServiceUnavailable)
		},
		"time": func(rw http.ResponseWriter, _ *http.Request) { // a proxy with a wrong clock
			rw.Header().Set("Date", "Sun, 22 Nov 2026 10:00:00 GMT")
			rw.Header().Set("Retry-After", "Sun, 22 Nov 2026 10:05:00 GMT")
			rw.WriteHeader(http.StatusServiceUnavailable)
		},
		"close": func(rw http.ResponseWriter, r *http.Request) {
			if conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}}); err == nil {
				_ = conn.Close(websocket.StatusGoingAway, "the edge is stopping; retry_after_ms=300000")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				w.behind(front, nil)
				stop := w.run()
				time.Sleep(299 * time.Second)
				if n := len(w.connections()); n != 1 {
					w.Errorf("%d connections before", n)
				}
				time.Sleep(2 * time.Second)
				if n := len(w.connections()); n != 2 {
					w.Errorf("%d connections after", n)
				}
				_ = stop()
			})
		})
	}
}

// TestARedirect: the token and reports stay with the edge for any redirect, and a redirect loop ends.
func TestARedirect(t *testing.T) {
	for name, tt := range map[string]struct {
		to      string
		status  int
		follows bool
	}{
		"elsewhere":         {to: "http://elsewhere", status: http.StatusTemporaryRedirect},
		"another port":      {to: "http://edge:81", status: http.StatusTemporaryRedirect, follows: true},
		"another port, get": {to: "http://edge:81", status: http.StatusFound, follows: true},
		"another subdomain": {to: "http://other.edge", status: http.StatusTemporaryRedirect},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				var mu sync.Mutex
				asked := make(map[string]int)
				w.behind(func(rw http.ResponseWriter, r *http.Request) {
					mu.Lock()
					asked[r.Host+" "+r.Method]++
					if r.Method == http.MethodGet && r.Header.Get("Upgrade") == "" {
						asked[r.Host+" POST made GET"]++
					}
					mu.Unlock()
					http.Redirect(rw, r, tt.to+r.URL.Path, tt.status)
				}, nil)
				stop := w.run()
				w.report("1")
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					w.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				there := strings.TrimPrefix(tt.to, "http://")
				if posts := asked[there+" POST"] > 0; posts != (tt.follows && tt.status == http.StatusTemporaryRedirect) || asked["edge:81 POST made GET"] > 0 {
					w.Errorf("asked %v", asked)
				}
				if n := asked[there+" GET"] + asked[there+" POST"]; (n > 0) != tt.follows || asked["edge GET"] < 2 || asked["edge POST"] < 2 {
					w.Errorf("asked %v", asked)
				}
			})
		})
	}
}

// TestWaitsForAnHourAtMost: the edge's retry time is limited to an hour.
func TestWaitsForAnHourAtMost(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.behind(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "4294967295")
			rw.WriteHeader(http.StatusServiceUnavailable)
		}, nil)
		stop := w.run()
		time.Sleep(59 * time.Minute)
		before := len(w.connections())
		time.Sleep(2 * time.Minute)
		if after := len(w.connections()); before != 1 || after != 2 {
			w.Errorf("%d connections, and %d in the second hour", before, after-before)
		}
		_ = stop()
	})
}

// served answers each message with answer; nil sends nothing.
func served(answer func(*messagev1.StreamRequest) *messagev1.StreamResponse) http.HandlerFunc {
	return limited(32<<10, answer)
}

// limited closes with 1009 on longer messages.
func limited(most int64, answer func(*messagev1.StreamRequest) *messagev1.StreamResponse) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}})
		if err != nil {
			return
		}
		defer conn.CloseNow() //nolint:errcheck // it has ended
		conn.SetReadLimit(most)
		for {
			_, text, err := conn.Read(context.Background())
			if errors.Is(err, websocket.ErrMessageTooBig) { // like at the edge, the status arrives once the rest is read
				_ = conn.Close(websocket.StatusMessageTooBig, "")
			}
			if err != nil {
				return
			}
			var req messagev1.StreamRequest
			if proto.Unmarshal(text, &req) != nil {
				return
			}
			resp := &messagev1.StreamResponse{Result: &messagev1.ApplyResponse{NowMs: time.Now().UnixMilli()}}
			if len(req.Heartbeats) > 0 { // else it asks for the time
				resp = answer(&req)
			}
			if resp != nil {
				resp.Sequence = req.Sequence
				text, _ := proto.Marshal(resp) // never fails
				_ = conn.Write(context.Background(), websocket.MessageBinary, text)
			}
		}
	}
}

func stored(req *messagev1.StreamRequest) *messagev1.StreamResponse {
	return &messagev1.StreamResponse{Result: &messagev1.ApplyResponse{Statuses: all(req.Heartbeats, messagev1.Status_STATUS_STORED)}}
}

func failed(code messagev1.StreamErrorCode, after time.Duration) *messagev1.StreamResponse {
	return &messagev1.StreamResponse{Error: &messagev1.StreamError{Code: code, RetryAfterMs: after.Milliseconds()}}
}

// TestWaitsAsAskedOnTheNextConnection: the edge's retry time outlasts the connection.
func TestWaitsAsAskedOnTheNextConnection(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		var times []time.Time
		w.behind(served(func(req *messagev1.StreamRequest) *messagev1.StreamResponse {
			if times = append(times, time.Now()); len(times) == 1 {
				return failed(messagev1.StreamErrorCode_STREAM_ERROR_CODE_UNAVAILABLE, 5*time.Minute)
			}
			return stored(req)
		}), nil)
		stop := w.run()
		w.report("1")
		time.Sleep(time.Second)
		w.door.Cut()
		time.Sleep(time.Minute)
		w.door.Cut()
		w.flush(10 * time.Minute)
		if gap := times[1].Sub(times[0]); len(times) != 2 || gap < 5*time.Minute || gap > 5*time.Minute+5*time.Second {
			w.Errorf("sent at %v", times)
		}
		_ = stop()
	})
}

// TestErrorsThatDoNotSayWhen: an error without a retry time causes backoff and smaller messages.
func TestErrorsThatDoNotSayWhen(t *testing.T) {
	for _, code := range []messagev1.StreamErrorCode{3, 4, 5, 6} {
		t.Run(code.String(), func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				var sizes []int
				w.behind(served(func(req *messagev1.StreamRequest) *messagev1.StreamResponse {
					if sizes = append(sizes, len(req.Heartbeats)); w.client.Dropped() == 0 && len(sizes) < 40 {
						return failed(code, 0)
					}
					return stored(req)
				}), nil)
				for i := range 64 {
					w.report(fmt.Sprint(i))
				}
				stop := w.run()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if n := len(sizes); n < 15 || n > 38 || sizes[0] != 64 || sizes[1] > 32 || sizes[6] != 1 {
					w.Errorf("%d messages in 5 minutes, of %v", n, sizes)
				}
				w.flush(time.Hour)
				_ = stop()
			})
		})
	}
}

// TestChangesEndTheBackOff: a connection that received changes counts as successful, however short.
func TestChangesEndTheBackOff(t *testing.T) {
	bubble(t, client.Config{Changed: func(*messagev1.Change) {}}, func(w *world) {
		w.behind(func(rw http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}})
			if err != nil {
				return
			}
			text, _ := proto.Marshal(&messagev1.StreamResponse{Push: &messagev1.Change{Removed: []*messagev1.Object{{Id: "a", Type: 1}}}}) // never fails
			_ = conn.Write(r.Context(), websocket.MessageBinary, text)
			time.Sleep(2 * time.Second)
			_ = conn.CloseNow()
		}, nil)
		stop := w.run()
		time.Sleep(time.Minute)
		if n := len(w.connections()); n < 24 {
			w.Errorf("%d connections in a minute", n)
		}
		w.behind(nil, nil)
		_ = stop()
	})
}

// deaf is a connection that can silently lose everything.
type deaf struct {
	net.Conn
	dead *atomic.Bool
}

func (d deaf) Read(p []byte) (n int, err error) {
	for n, err = d.Conn.Read(p); err == nil && d.dead.Load(); {
		n, err = d.Conn.Read(p)
	}
	return n, err
}

func (d deaf) Write(p []byte) (int, error) {
	if d.dead.Load() {
		return len(p), nil
	}
	return d.Conn.Write(p)
}

// TestADeadConnection: a listening client detects a dead connection within a minute.
func TestADeadConnection(t *testing.T) {
	bubble(t, client.Config{Changed: func(*messagev1.Change) {}, Patience: time.Minute}, func(w *world) {
		var dead atomic.Bool
		w.behind(nil, func(conn net.Conn) net.Conn { return deaf{conn, &dead} })
		stop := w.run()
		time.Sleep(20 * time.Minute)
		if n := len(w.connections()); n != 1 {
			w.Errorf("%d connections of one that lives", n)
		}
		w.behind(nil, nil)
		dead.Store(true)
		time.Sleep(time.Minute)
		if n := len(w.connections()); n != 2 {
			w.Errorf("%d connections a minute after the first one died", n)
		}
		_ = stop()
		w.door.Cut()
	})
}

// upload answers requests like the edge.
func (w *world) upload(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // a broken request is not answered
	batch, err := codec.DecodeBatch("u1", body)
	if err != nil {
		rw.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	resp, err := w.Apply(r.Context(), batch.Request())
	if err != nil {
		rw.Header().Set("Retry-After", "3")
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	results, err := batch.Results(resp)
	if err != nil {
		w.Error(err)
	}
	flag, first := batch.Today(resp)
	_ = json.NewEncoder(rw).Encode(map[string]any{"results": results, "first_flag": flag, "first_of_day": first, "now_ms": resp.NowMs})
}

// TestByRequests: the client sends requests while a proxy blocks WebSockets.
func TestByRequests(t *testing.T) {
	for _, tt := range []struct {
		name  string
		front http.HandlerFunc // for the WebSocket
	}{
		{"refused", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) }},
		{"not upgraded", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUpgradeRequired) }},
		{"swallowed", func(rw http.ResponseWriter, r *http.Request) {
			if conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}}); err == nil {
				_, _, _ = conn.Read(r.Context()) // the message
				_, _, _ = conn.Read(r.Context()) // until it ends
			}
		}},
		{"swallowed on the way there", func(rw http.ResponseWriter, r *http.Request) {
			if conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}}); err == nil {
				resync, _ := proto.Marshal(&messagev1.StreamResponse{Push: &messagev1.Change{Resync: true}})
				_ = conn.Write(r.Context(), websocket.MessageBinary, resync)
				_, _, _ = conn.Read(r.Context()) // the message
				_, _, _ = conn.Read(r.Context()) // until it ends
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				w.behind(func(rw http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						w.upload(rw, r)
						return
					}
					tt.front(rw, r)
				}, nil)
				fails := 1
				w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
					if fails--; fails == 0 && len(beats) > 0 {
						return nil, errors.New("away")
					}
					return all(beats, messagev1.Status_STATUS_STORED), nil
				}
				w.report("1")
				invalid := beat("2")
				invalid.Kind = messagev1.Kind_KIND_UNSPECIFIED
				if err := w.client.Report(invalid); err != nil {
					w.Fatal(err)
				}
				w.report("3")
				stop := w.run()
				w.flush(2 * time.Minute)
				if want := []string{"1 STORED", "2 INVALID", "3 STORED"}; !slices.Equal(w.answered, want) || w.answers[1].Refusal.GetField() == "" {
					w.Errorf("answered %v", w.answers)
				}
				w.behind(nil, nil)
				time.Sleep(5 * time.Minute)
				before := len(w.connections())
				w.report("4")
				w.flush(time.Second)
				if len(w.connections()) != before {
					w.Error("no WebSocket is there again")
				}
				_ = stop()
			})
		})
	}
}

// TestAnAnswerOfAnotherServer: a foreign server's JSON is no answer and does not end the backoff.
func TestAnAnswerOfAnotherServer(t *testing.T) {
	for _, text := range []string{"{}", `{"results":[]}`, "[]", "<html>", ""} {
		t.Run(text, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				var asked atomic.Int32
				w.behind(func(rw http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					_, _ = rw.Write([]byte(text)) // an error surfaces in the client
				}, nil)
				w.report("1")
				stop := w.run()
				time.Sleep(10 * time.Minute)
				if n := asked.Load(); n > 600 { // about 160 with backoff, 9,000 without
					w.Errorf("asked %d times in ten minutes", n)
				}
				w.behind(nil, nil)
				w.flush(time.Minute)
				_ = stop()
			})
		})
	}
}

// TestRefusedAgainAndAgain: repeatedly refused WebSockets, by a user limit or a proxy, lead to requests.
func TestRefusedAgainAndAgain(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		bubble(t, client.Config{}, func(w *world) {
			w.behind(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.upload(rw, r)
					return
				}
				rw.Header().Set("Retry-After", "2")
				rw.WriteHeader(status)
			}, nil)
			stop := w.run()
			for n := range 10 {
				w.report(fmt.Sprint(n))
				w.flush(time.Minute)
			}
			_ = stop()
		})
	}
}

// TestARequestThatIsRefused: a report that a proxy refuses stays queued, with ever rarer retries.
func TestARequestThatIsRefused(t *testing.T) {
	for _, status := range []int{400, 403, 413, 415, 422, 502} {
		bubble(t, client.Config{}, func(w *world) {
			asked := 0
			w.behind(func(rw http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					rw.WriteHeader(http.StatusForbidden)
					return
				}
				body, _ := io.ReadAll(r.Body) // a broken request is not answered
				r.Body = io.NopCloser(bytes.NewReader(body))
				if asked++; bytes.Contains(body, []byte(`"id":"1"`)) {
					http.Error(rw, "not through here", status)
					return
				}
				w.upload(rw, r)
			}, nil)
			w.report("1", "2")
			stop := w.run()
			time.Sleep(time.Hour)
			if !slices.Equal(w.answered, []string{"2 STORED"}) || w.client.Waiting() != 1 || asked > 600 {
				w.Errorf("%d: answered %v after %d requests", status, w.answered, asked)
			}
			_ = stop()
		})
	}
}

// TestBothWaysSayTheSame: both transports convey whole heartbeats, records and the day.
func TestBothWaysSayTheSame(t *testing.T) {
	var beats []*messagev1.Heartbeat
	for _, post := range []bool{false, true} {
		var days []string
		cfg := client.Config{Zone: "Europe/Berlin", Day: func(d *messagev1.DaySeen) { days = append(days, fmt.Sprint(d.Date, d.First)) }}
		bubble(t, cfg, func(w *world) {
			w.films = &filmService{today: 20000101}
			if post {
				w.post = w.upload
				w.refuse(http.StatusUpgradeRequired)
			}
			stop := w.run()
			h := filmed("here", 7)
			h.DurationMs, h.Device, h.StartedAtMs, h.WatchedMs, h.SpeedPercent = 9000, "tv", h.EventTimeMs-5, 4, 150
			h.IfMatch, h.Meta = 0xfedcba9876543210, map[string]string{"title": "a \xff"}
			record := &messagev1.Item{
				Object: &messagev1.Object{Id: "film", Type: 1}, State: messagev1.State_STATE_FINISHED, EventTimeMs: h.EventTimeMs - 1000,
				PositionMs: 1, DurationMs: 2, FurthestMs: 3, Plays: 4, CompletedAtMs: h.EventTimeMs - 2000, Session: "there", Device: "d",
				Meta: map[string]string{"k": "v"}, Etag: 1 << 63, WatchedMs: 5,
			}
			w.films.record = proto.CloneOf(record)
			if err := w.client.Report(h); err != nil {
				w.Fatal(err)
			}
			w.flush(time.Minute)
			if a := w.answers[0]; a.Status != messagev1.Status_STATUS_CONFLICT || !proto.Equal(a.Record, record) {
				w.Errorf("by post %v: told %v", post, a)
			}
			w.client.Seen(record)
			w.film("here", 8)
			w.flush(time.Minute)
			w.films.today++
			w.film("here", 9)
			w.flush(time.Minute)
			_ = stop()
			var got []*messagev1.Heartbeat
			for _, req := range w.films.reqs {
				got = append(got, req.Heartbeats...)
			}
			if want := []string{"20000101 true", "20000102 false"}; !slices.Equal(days, want) || got[2].Day.Zone != "Europe/Berlin" || got[2].Day.Known != 20000101 {
				w.Errorf("by post %v: days %v, asked with %v", post, days, got[2].Day)
			}
			beats = append(beats, got[0])
		})
	}
	for _, h := range beats {
		h.SentAtMs, h.Origin = 0, 0
	}
	if !proto.Equal(beats[0], beats[1]) || beats[0].Meta["title"] != "a \uFFFD" {
		t.Errorf("sent %v\nand %v", beats[0], beats[1])
	}
}

// counted counts sent bytes.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// TestLinks: an hour of offline reports crosses any link about once, in messages that fit it.
func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		rate, connections, messages int // upper bounds
	}{
		{1 << 10, 3, 60},
		{4 << 10, 1, 16},
		{1 << 20, 1, 5},
	} {
		t.Run(fmt.Sprint(tt.rate), func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				var sent atomic.Int64
				w.behind(nil, func(conn net.Conn) net.Conn { return slow(counted{conn, &sent}, tt.rate) })
				messages, size := 0, 0
				w.fate = func(beats []*messagev1.Heartbeat) ([]messagev1.Status, error) {
					messages++
					return all(beats, messagev1.Status_STATUS_STORED), nil
				}
				for i := range 300 {
					h := beat(fmt.Sprint(i))
					h.Meta = map[string]string{"title": strings.Repeat("x", 500)}
					size += proto.Size(h)
					if err := w.client.Report(h); err != nil {
						w.Fatal(err)
					}
				}
				stop := w.run()
				w.flush(time.Duration(2*size/tt.rate+1) * time.Second)
				if n := sent.Load(); n > int64(size)*5/4 || len(w.connections()) > tt.connections || messages > tt.messages {
					w.Errorf("%d bytes in %d messages over %d connections for %d bytes of heartbeats", n, messages, len(w.connections()), size)
				}
				_ = stop()
			})
		})
	}
}

// TestACloseOnWhatIsTooLarge: a message closed on as too large is the last one of its size.
func TestACloseOnWhatIsTooLarge(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.behind(limited(10_000, stored), nil)
		for i := range 300 {
			h := beat(fmt.Sprint(i))
			h.Meta = map[string]string{"title": strings.Repeat("x", 500)}
			_ = w.client.Report(h) // never fails
		}
		stop := w.run()
		w.flush(time.Minute)
		if n := len(w.connections()); n != 2 {
			w.Errorf("%d connections, want 2", n)
		}
		_ = stop()
	})
}

// TestWhatIsTooLarge: an intermediary with a lower limit gets no larger message again, until one report alone
// was too large.
func TestWhatIsTooLarge(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int
		large int // bytes of the first report
		told  messagev1.Status
		most  int // most refusals
	}{
		{"for messages", 10_000, 500, messagev1.Status_STATUS_STORED, 1},
		{"for a report", 2_000, 3000, messagev1.Status_STATUS_INVALID, 12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, client.Config{}, func(w *world) {
				refusals, largest, messages := 0, 0, 0
				limit := tt.limit
				w.behind(served(func(req *messagev1.StreamRequest) *messagev1.StreamResponse {
					messages++
					if proto.Size(req) > limit {
						if refusals++; len(req.Heartbeats) == 1 {
							limit = 1 << 20
						}
						return failed(messagev1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE, 0)
					}
					largest = max(largest, proto.Size(req))
					return stored(req)
				}), nil)
				for i := range 300 {
					h := beat(fmt.Sprint(i))
					h.Meta = map[string]string{"title": strings.Repeat("x", map[bool]int{true: tt.large, false: 500}[i == 0])}
					if err := w.client.Report(h); err != nil {
						w.Fatal(err)
					}
				}
				stop := w.run()
				w.flush(time.Minute)
				for _, a := range w.answers {
					if want := map[bool]messagev1.Status{true: tt.told, false: messagev1.Status_STATUS_STORED}[a.Heartbeat.ObjectId == "0"]; a.Status != want {
						w.Errorf("told %v of %s, want %v", a.Status, a.Heartbeat.ObjectId, want)
					}
				}
				if refusals > tt.most || messages > 40 || largest < min(limit/2, 24<<10) {
					w.Errorf("%d refusals of %d messages, up to %d bytes", refusals, messages, largest)
				}
				_ = stop()
			})
		})
	}
}

// TestNoRequestsWhereWebSocketsWork: a few mute WebSockets do not lead to requests if others work.
func TestNoRequestsWhereWebSocketsWork(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		var posts atomic.Int32
		var silent atomic.Bool
		w.behind(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				posts.Add(1)
				w.upload(rw, r)
				return
			}
			served(func(req *messagev1.StreamRequest) *messagev1.StreamResponse {
				if silent.Load() {
					return nil
				}
				return stored(req)
			})(rw, r)
		}, nil)
		stop := w.run()
		for i := range 8 {
			silent.Store(i%3 == 2)
			w.report(fmt.Sprint(i))
			time.Sleep(11 * time.Second)
			silent.Store(false)
			w.flush(time.Minute)
			w.door.Cut()
		}
		if posts.Load() != 0 {
			w.Errorf("%d requests", posts.Load())
		}
		_ = stop()
		w.door.Cut()
	})
}

// TestWhatIsOnItsWayIsNotGivenUp: a full queue never drops a report in flight.
func TestWhatIsOnItsWayIsNotGivenUp(t *testing.T) {
	bubble(t, client.Config{Queue: 200}, func(w *world) {
		w.delay = 5 * time.Second
		progress := func(n int) {
			h := beat(fmt.Sprint(n % 50))
			h.Kind, h.PositionMs = messagev1.Kind_KIND_PROGRESS, int64(n)
			if err := w.client.Report(h); err != nil {
				w.Fatal(err)
			}
		}
		for n := range 50 {
			progress(n)
		}
		stop := w.run()
		time.Sleep(time.Second)
		for n := range 300 {
			progress(50 + n)
		}
		w.flush(time.Minute)
		told := make(map[int64]messagev1.Status)
		for _, a := range w.answers {
			told[a.Heartbeat.PositionMs] = a.Status
		}
		for _, h := range w.stored {
			if told[h.PositionMs] != messagev1.Status_STATUS_STORED {
				w.Errorf("%d is stored, told %v", h.PositionMs, told[h.PositionMs])
			}
		}
		if len(w.answers) != 350 || len(told) != 350 {
			w.Errorf("told %d times of %d", len(w.answers), len(told))
		}
		_ = stop()
	})
}

// TestALargeReportOnASlowLink: one large report gets through any link of 1 KB/s on both transports.
func TestALargeReportOnASlowLink(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 10 * time.Second} {
		for _, post := range []bool{false, true} {
			t.Run(fmt.Sprint(patience, post), func(t *testing.T) {
				bubble(t, client.Config{Patience: patience}, func(w *world) {
					if post {
						w.post = w.upload
						w.refuse(http.StatusUpgradeRequired)
					}
					w.behind(nil, func(conn net.Conn) net.Conn { return slow(conn, 1100) })
					for _, text := range []string{"x", "<", "\x01"} {
						h := beat(text)
						h.ObjectId, h.Meta = "large", map[string]string{"title": strings.Repeat(text, 3900)}
						if err := w.client.Report(h); err != nil {
							w.Fatal(err)
						}
						w.report("small")
					}
					stop := w.run()
					w.flush(5 * time.Minute)
					if len(w.answered) != 6 {
						w.Errorf("answered %v", w.answered)
					}
					_ = stop()
				})
			})
		}
	}
}

// TestAClockThatIsWrong: event times are right in the history, although the clock is wrong or set before
// sending, the device sleeps, or a message is slow.
func TestAClockThatIsWrong(t *testing.T) {
	for _, ahead := range []time.Duration{-30 * 365 * 24 * time.Hour, -5 * time.Hour, -119 * time.Second, -8 * time.Second, 0, 5 * time.Second, time.Hour} {
		for _, post := range []bool{false, true} {
			bubble(t, client.Config{}, func(w *world) {
				w.apart = 7 * time.Hour
				if post {
					w.post = w.upload
					w.refuse(http.StatusUpgradeRequired)
				}
				var made []int64
				reported := func() {
					h := beat(fmt.Sprint(len(made)))
					h.StartedAtMs = h.EventTimeMs + w.ahead.Load()/int64(time.Millisecond) - 1000
					h.EventTimeMs = h.StartedAtMs + 1000
					made = append(made, time.Now().Add(w.apart).UnixMilli())
					if err := w.client.Report(h); err != nil {
						w.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				w.ahead.Store(int64(ahead))
				reported()
				w.ahead.Add(int64(time.Minute))
				reported()
				stop := w.run()
				w.flush(time.Minute)
				for _, set := range []time.Duration{0, -time.Hour, 48 * time.Hour} {
					w.ahead.Add(int64(set))
					w.stall(9 * time.Second)
					for range 12 {
						reported()
					}
					w.flush(time.Minute)
				}
				w.asleep.Add(int64(time.Hour)) // no time passes for the others
				reported()
				w.flush(time.Minute)
				for i, h := range w.stored {
					off := h.EventTimeMs - made[i]
					if h.SentAtMs != 0 || off < -1 || off > 0 || h.EventTimeMs-h.StartedAtMs != 1000 {
						w.Errorf("%v ahead, by post %v: %d is %d ms off: %v", ahead, post, i, off, h)
					}
				}
				_ = stop()
			})
		}
	}
}

// TestOneRunAtATime: a second Run sends nothing until the first has ended.
func TestOneRunAtATime(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		first := w.run()
		synctest.Wait()
		second, third := w.run(), w.run()
		w.report("a")
		w.flush(time.Minute)
		synctest.Wait()
		if got := len(w.connections()); got != 1 {
			w.Errorf("got %d connections of two that run, want 1", got)
		}
		_, _ = third(), first() // one ends before its turn
		w.report("b")
		w.flush(time.Minute)
		if got := len(w.connections()); got != 2 {
			w.Errorf("got %d connections after the first has ended, want 2", got)
		}
		_ = second()
	})
}

// TestAClockThatIsSetDuringAViewing: a viewing's start time stays while the device's clock is set.
func TestAClockThatIsSetDuringAViewing(t *testing.T) {
	for _, set := range []time.Duration{-time.Hour, -20 * time.Second, 48 * time.Hour, 0} {
		bubble(t, client.Config{}, func(w *world) {
			stop := w.run()
			began := time.Now().UnixMilli()
			for i := range 4 {
				h := beat("film")
				h.Session, h.StartedAtMs = "s", began
				h.EventTimeMs = time.Now().Add(time.Duration(w.ahead.Load())).UnixMilli()
				if err := w.client.Report(h); err != nil {
					w.Fatal(err)
				}
				w.flush(time.Minute)
				if i == 0 {
					w.ahead.Add(int64(set))
				}
				time.Sleep(15 * time.Second)
			}
			for i, h := range w.stored {
				if h.StartedAtMs != began {
					w.Errorf("set by %v: report %d says that it began %d ms late", set, i, h.StartedAtMs-began)
				}
			}
			_ = stop()
		})
	}
}

// TestOrder: a later report has the later time, even if another one seems to follow both.
func TestOrder(t *testing.T) {
	for name, reports := range map[string][][2]int64{
		"after the clock was set, looked at roughly": {{5000, 1000}, {6002, 2010}, {6004, 2020}},
		"over such a look":                           {{4000, 1000}, {5000, 1000}, {6002, 2010}},
		"after one that is ahead":                    {{9000, 1000}, {5002, 1010}, {5004, 1020}},
		"after the first":                            {{5000, 1000}, {5002, 1010}, {5004, 1020}},
	} {
		dates := client.Dates(reports...)
		if dates[1] >= dates[2] {
			t.Errorf("%s: reports %v have the times %v", name, reports, dates)
		}
	}
}

// TestRecorded: reports from a file keep their times, whatever the device's clock and the number of retries.
func TestRecorded(t *testing.T) {
	bubble(t, client.Config{Recorded: true}, func(w *world) {
		w.ahead.Store(int64(time.Hour))
		stop := w.run()
		var want []int64
		for i := range 4 {
			h := beat(fmt.Sprint(i))
			h.EventTimeMs = time.Now().Add(-24 * time.Hour).UnixMilli()
			want = append(want, h.EventTimeMs)
			w.stall(time.Second)
			if err := w.client.Report(h); err != nil {
				w.Fatal(err)
			}
			w.flush(time.Minute)
		}
		for i, h := range w.stored {
			if h.SentAtMs != 0 || h.EventTimeMs != want[i] {
				w.Errorf("%d: got %v, want the time %d and no other", i, h, want[i])
			}
		}
		_ = stop()
	})
}

// TestTimeThatIsPutBack: elapsed time was overestimated by a minute. The next answer corrects the clock, and
// events keep their order.
func TestTimeThatIsPutBack(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		stop := w.run()
		for i, asleep := range []time.Duration{0, time.Minute, 0, 0} {
			w.asleep.Add(int64(asleep)) // no time passes for the others
			w.report(fmt.Sprint(i))
			w.flush(time.Minute)
			time.Sleep(20 * time.Second)
		}
		time.Sleep(time.Minute)
		w.report("last")
		w.flush(time.Minute)
		for i, h := range w.stored[1:] {
			if h.EventTimeMs <= w.stored[i].EventTimeMs {
				w.Errorf("%s is at %d, and the one before at %d", h.ObjectId, h.EventTimeMs, w.stored[i].EventTimeMs)
			}
		}
		if last := w.stored[4]; last.EventTimeMs != time.Now().UnixMilli() {
			w.Errorf("in the end it is %d ms off", last.EventTimeMs-time.Now().UnixMilli())
		}
		_ = stop()
	})
}

// TestAnEdgeThatDoesNotTellTheTime: such an edge derives the time from the displayed sending time. Reports from
// before the clock was set are adjusted.
func TestAnEdgeThatDoesNotTellTheTime(t *testing.T) {
	bubble(t, client.Config{}, func(w *world) {
		w.silent = true
		w.ahead.Store(int64(-30 * 365 * 24 * time.Hour))
		early := beat("1")
		early.EventTimeMs += w.ahead.Load() / int64(time.Millisecond)
		if err := w.client.Report(early); err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.ahead.Store(0)
		w.report("2")
		stop := w.run()
		w.flush(time.Minute)
		for i, ago := range []int64{60_000, 0} {
			h := w.stored[i]
			if got := h.SentAtMs - h.EventTimeMs; got != ago || h.SentAtMs != time.Now().UnixMilli() {
				w.Errorf("%s: %d ms before it was sent, want %d", h.ObjectId, got, ago)
			}
		}
		_ = stop()
	})
}

// stall delays everything sent from now on by d.
func (w *world) stall(d time.Duration) { w.stalled.Store(time.Now().Add(d).UnixNano()) }

// stalling is a connection that can delay messages.
type stalling struct {
	net.Conn
	until *atomic.Int64
}

func (s stalling) Write(p []byte) (int, error) {
	time.Sleep(time.Until(time.Unix(0, s.until.Load())))
	return s.Conn.Write(p)
}
