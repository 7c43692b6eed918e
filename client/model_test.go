package client_test

import (
	"context"
	"errors"
	"fmt"
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
	"pgregory.net/rapid"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/memnet"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The model: a client over a slow link to an edge that does anything. Every report must be
// told once as what the edge said of it, or wait; no message that the edge takes may hold
// its reports up; and what happened has the time at which it did, whatever the clock says.

// fate is what the edge does with a message.
type fate struct {
	what string
	code int // of a close or an error
}

// step is something that happens to the client.
type step struct {
	after time.Duration
	what  string
	n     int // reports, or seconds that the clock is set ahead
	kind  string
}

type script struct {
	rate       int // of the link, bytes a second
	steps      []step
	fates      []fate
	handshakes []int // HTTP statuses, 101 for a connection, 0 for none at all
}

var (
	fates = rapid.Custom(func(t *rapid.T) fate {
		what := rapid.SampledFrom([]string{
			"take", "take", "close", "take and close", "error", "busy", "cut", "take and cut", "silence", "unavailable", "garbage", "half", "other", "few",
		}).Draw(t, "fate")
		codes := []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 1013, 4401}
		if what == "error" || what == "busy" {
			codes = []int{1, 2, 3, 4, 5, 6}
		}
		return fate{what, rapid.SampledFrom(codes).Draw(t, "code")}
	})
	steps = rapid.Custom(func(t *rapid.T) step {
		s := step{
			after: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "after")) * time.Millisecond,
			what:  rapid.SampledFrom([]string{"report", "report", "report", "clock", "cut"}).Draw(t, "step"),
		}
		switch s.what {
		case "report":
			s.n = rapid.IntRange(1, 130).Draw(t, "n")
			s.kind = rapid.SampledFrom([]string{"small", "small", "large", "poison", "cursed"}).Draw(t, "kind")
		case "clock":
			s.n = rapid.IntRange(-100_000, 100_000).Draw(t, "seconds")
		}
		return s
	})
	scripts = rapid.Custom(func(t *rapid.T) script {
		return script{
			rate:       rapid.SampledFrom([]int{1 << 10, 4 << 10, 1 << 20}).Draw(t, "rate"),
			steps:      rapid.SliceOfN(steps, 1, 6).Draw(t, "steps"),
			fates:      rapid.SliceOfN(fates, 0, 12).Draw(t, "fates"),
			handshakes: rapid.SliceOfN(rapid.SampledFrom([]int{101, 101, 0, 401, 429, 502, 503}), 0, 6).Draw(t, "handshakes"),
		}
	})
)

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scripts.Draw(rt, "script")
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = play(t, s) })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// play runs a script and says what went wrong.
func play(t *testing.T, s script) []string {
	e := &anyEdge{fates: s.fates, handshakes: s.handshakes, taken: make(map[string]bool), blamed: make(map[string]bool), door: memnet.Listen()}
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(e.door) }() // ends with Close
	p := &player{happened: make(map[string]time.Time), told: make(map[string][]historyv1.Status)}
	began := time.Now()
	var err error
	p.Client, err = client.New(client.Config{
		URL: "http://edge", Token: func(context.Context) (string, error) { return "token", nil }, Answered: p.hear,
		Clock: func() (time.Time, time.Duration) {
			return time.Now().Add(time.Duration(p.ahead.Load())), time.Since(began)
		},
		HTTP: &http.Client{Transport: &http.Transport{DialContext: e.slowly(s.rate), DisableKeepAlives: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for _, step := range s.steps {
		time.Sleep(step.after) // of the bubble
		p.step(t, e, step)
	}
	for range 120 {
		time.Sleep(time.Minute) // of the bubble
		if p.Waiting() == p.cursed {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		p.wrong = append(p.wrong, err.Error())
	}
	e.door.Cut()
	_ = server.Close()
	time.Sleep(time.Hour) // of the bubble, for everybody to go
	return append(p.wrong, p.check(e)...)
}

// player is who reports, and what became of it.
type player struct {
	*client.Client
	ahead    atomic.Int64 // of the clock, nanoseconds
	cursed   int
	happened map[string]time.Time
	wrong    []string

	mu   sync.Mutex
	told map[string][]historyv1.Status
}

func (p *player) step(t *testing.T, e *anyEdge, s step) {
	switch s.what {
	case "cut":
		e.door.Cut()
	case "clock":
		p.ahead.Add(int64(s.n) * int64(time.Second))
	case "report":
		for i := range s.n {
			kind := s.kind
			if (kind == "poison" || kind == "cursed") && i%40 != 7 { // few are
				kind = "small"
			}
			p.report(t, kind)
		}
	}
}

func (p *player) report(t *testing.T, kind string) {
	id := fmt.Sprintf("%s%d", kind, len(p.happened))
	p.happened[id] = time.Now()
	if kind == "cursed" {
		p.cursed++
	}
	h := &historyv1.Heartbeat{
		ObjectId: id, ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, PositionMs: 1000, Session: id,
		EventTimeMs: time.Now().Add(time.Duration(p.ahead.Load())).UnixMilli(),
	}
	if kind == "large" {
		h.Meta = map[string]string{"title": strings.Repeat("x", 1300)}
	}
	if err := p.Report(h); err != nil {
		t.Fatal(err)
	}
}

func (p *player) hear(a client.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told[a.Heartbeat.ObjectId] = append(p.told[a.Heartbeat.ObjectId], a.Status)
}

func (p *player) check(e *anyEdge) (wrong []string) {
	if n := len(p.happened) - len(p.told); p.Waiting() != n {
		wrong = append(wrong, fmt.Sprintf("%d wait, and %d were not told of", p.Waiting(), n))
	}
	for id, at := range p.happened {
		told := p.told[id]
		switch {
		case strings.HasPrefix(id, "cursed") && len(told) == 0:
		case len(told) != 1:
			wrong = append(wrong, fmt.Sprintf("%s: told %v", id, told))
		case told[0] == historyv1.Status_STATUS_INVALID && !e.blamed[id]:
			wrong = append(wrong, id+": told invalid, but never refused alone")
		case told[0] != historyv1.Status_STATUS_INVALID && !e.taken[id]:
			wrong = append(wrong, fmt.Sprintf("%s: told %v, but never taken", id, told))
		}
		for _, when := range e.times[id] {
			if off := when.Sub(at).Abs(); off > 15*time.Second {
				wrong = append(wrong, fmt.Sprintf("%s: happened %v from when it did", id, off))
			}
		}
	}
	slices.Sort(wrong)
	return wrong[:min(len(wrong), 5)]
}

// anyEdge is an edge that follows a script, and then takes all but what is poison to it:
// that it closes with 1007. It fails on what is cursed, always.
type anyEdge struct {
	door *memnet.Listener

	mu         sync.Mutex
	fates      []fate
	handshakes []int
	taken      map[string]bool
	blamed     map[string]bool        // refused in a message of their own
	times      map[string][]time.Time // of events, as the service corrects them
}

// slowly dials connections that send so many bytes a second.
func (e *anyEdge) slowly(rate int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := e.door.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &slowConn{conn, rate}, nil
	}
}

type slowConn struct {
	net.Conn
	rate int
}

func (c *slowConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		piece := p[:min(len(p), 512)]
		time.Sleep(time.Duration(len(piece)) * time.Second / time.Duration(c.rate)) // of the bubble
		var m int
		m, err = c.Conn.Write(piece)
		n, p = n+m, p[m:]
	}
	return n, err
}

func (e *anyEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost { // a proxy lets none through
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	switch status := e.handshake(); status {
	case 101:
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}})
		if err == nil {
			e.serve(conn)
		}
	case 0:
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(status)
	}
}

func (e *anyEdge) handshake() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.handshakes) == 0 {
		return 101
	}
	status := e.handshakes[0]
	e.handshakes = e.handshakes[1:]
	return status
}

// serve deals with the messages of a connection until it ends.
func (e *anyEdge) serve(conn *websocket.Conn) {
	conn.SetReadLimit(128 << 10)
	defer conn.CloseNow() //nolint:errcheck // it has ended
	for {
		_, text, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		var req historyv1.StreamRequest
		if err := proto.Unmarshal(text, &req); err != nil {
			return
		}
		if e.message(conn, &req) != nil {
			return
		}
	}
}

var errOver = errors.New("over")

// message does with a message what the script says.
func (e *anyEdge) message(conn *websocket.Conn, req *historyv1.StreamRequest) error {
	f := e.next(req)
	answer := &historyv1.StreamResponse{Sequence: req.Sequence, Result: &historyv1.ApplyResponse{}}
	switch f.what {
	case "take", "take and cut", "take and close", "unavailable", "half", "few", "other":
		answer.Result.Statuses = e.take(req, f.what == "unavailable")
	}
	switch f.what {
	case "close", "take and close":
		e.blame(req, f.code == 1003 || f.code == 1007 || f.code == 1009)
		_ = conn.Close(websocket.StatusCode(f.code), "for a reason")
		return errOver
	case "cut", "take and cut":
		return errOver
	case "silence":
		time.Sleep(20 * time.Second) // of the bubble
		return errOver
	case "error", "busy":
		e.blame(req, f.code <= 2)
		answer.Result, answer.Error = nil, &historyv1.StreamError{Code: historyv1.StreamErrorCode(f.code)}
		if f.what == "busy" {
			answer.Error.RetryAfterMs = 3000
		}
	case "other":
		answer.Sequence += 7
	case "few":
		answer.Result.Statuses = answer.Result.Statuses[1:]
	}
	text, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	switch f.what {
	case "garbage":
		text = []byte{0xff}
	case "half":
		text = text[:len(text)/2]
	}
	return conn.Write(context.Background(), websocket.MessageBinary, text)
}

// next returns what happens to a message: what must, or else what the script says.
func (e *anyEdge) next(req *historyv1.StreamRequest) fate {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range req.Heartbeats {
		if strings.HasPrefix(h.ObjectId, "poison") {
			return fate{"close", 1007}
		}
		if strings.HasPrefix(h.ObjectId, "cursed") {
			return fate{"close", 1011}
		}
	}
	if len(e.fates) == 0 {
		return fate{what: "take"}
	}
	f := e.fates[0]
	e.fates = e.fates[1:]
	return f
}

// take stores a message, without every second heartbeat where the store is unavailable.
func (e *anyEdge) take(req *historyv1.StreamRequest, unavailable bool) (statuses []historyv1.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, h := range req.Heartbeats {
		if unavailable && i%2 == 1 {
			statuses = append(statuses, historyv1.Status_STATUS_UNAVAILABLE)
			continue
		}
		status := historyv1.Status_STATUS_STORED
		if e.taken[h.ObjectId] {
			status = historyv1.Status_STATUS_UNCHANGED
		}
		statuses = append(statuses, status)
		e.taken[h.ObjectId] = true
		e.date(h, req.SentAtMs)
	}
	return statuses
}

// date notes when an event was, by the rule of the service.
func (e *anyEdge) date(h *historyv1.Heartbeat, sentAt int64) {
	at, skew := time.UnixMilli(h.EventTimeMs), time.Since(time.UnixMilli(sentAt))
	if skew.Abs() > 5*time.Second {
		at = at.Add(skew)
	}
	if e.times == nil {
		e.times = make(map[string][]time.Time)
	}
	e.times[h.ObjectId] = append(e.times[h.ObjectId], at)
}

func (e *anyEdge) blame(req *historyv1.StreamRequest, refused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if refused && len(req.Heartbeats) == 1 {
		e.blamed[req.Heartbeats[0].ObjectId] = true
	}
}
