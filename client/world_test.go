package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/memnet"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

const secret = "0123456789abcdef0123456789abcdef"

// world is an edge with its service and a client in one bubble.
type world struct {
	*testing.T
	client *client.Client
	door   *memnet.Listener
	stop   context.CancelFunc // stops the edge
	life   time.Duration      // lifetime of tokens
	delay  time.Duration      // of the service's next answer
	post   http.HandlerFunc   // answers requests; nil treats them as handshakes
	films  *filmService       // the service, if set
	fate   func([]*messagev1.Heartbeat) ([]messagev1.Status, error)

	mu       sync.Mutex
	edge     *ws.Handler
	status   int              // of handshakes; 0 for the edge's own
	front    http.HandlerFunc // answers everything; nil for the edge
	wrap     func(net.Conn) net.Conn
	dials    []time.Time            // handshakes.
	stored   []*messagev1.Heartbeat // heartbeats received by the service.
	ahead    atomic.Int64           // lead of the device's clock, nanoseconds.
	apart    time.Duration          // lead of the service's clock over the bubble's.
	silent   bool                   // responses lack the service's time
	asleep   atomic.Int64           // sleep of the device so far, nanoseconds.
	stalled  atomic.Int64           // nothing sent arrives before, Unix nanoseconds.
	answered []string               // answers, "id status".
	answers  []client.Answer
	told     func(client.Answer) // called for the next answer, if set
	tells    map[uint64]func(*messagev1.Change)
	telling  time.Duration // delay of changes on a new connection
}

func bubble(t *testing.T, cfg client.Config, fn func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, life: time.Hour, door: memnet.Listen()}
		w.open()
		server := &http.Server{Handler: http.HandlerFunc(w.upgrade), ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(w.door) }() // ends with Close
		cfg.URL, cfg.Answered, cfg.Clock = "http://edge", w.hear, w.clock()
		if cfg.Token == nil {
			cfg.Token = w.token
		}
		cfg.HTTP = &http.Client{Transport: &http.Transport{DialContext: w.dial, DisableKeepAlives: true}}
		var err error
		if w.client, err = client.New(cfg); err != nil {
			t.Fatal(err)
		}
		fn(w)
		_ = server.Close()
		w.stop()
		time.Sleep(time.Minute) // for the edge to end
	})
}

// open starts an edge. The previous one must have stopped.
func (w *world) open() {
	w.Helper()
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		w.Fatal(err)
	}
	edge, err := ws.New(ws.Config{Service: w, Tokens: tokens, Changes: w})
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.edge = edge
	w.stop = func() {
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		_ = edge.Run(ctx) // never fails
	}
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := w.door.Dial(ctx, network, addr)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		conn = stalling{conn, &w.stalled}
	}
	if err == nil && w.wrap != nil {
		conn = w.wrap(conn)
	}
	return conn, err
}

// behind inserts a handler and a connection wrapper between client and edge; nil for none.
func (w *world) behind(front http.HandlerFunc, wrap func(net.Conn) net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.front, w.wrap = front, wrap
}

// clock returns the device's clock: the bubble's plus the test's settings.
func (w *world) clock() func() (time.Time, time.Duration) {
	began := time.Now()
	return func() (time.Time, time.Duration) {
		return time.Now().Add(time.Duration(w.ahead.Load())), time.Since(began) + time.Duration(w.asleep.Load())
	}
}

func (w *world) upgrade(rw http.ResponseWriter, r *http.Request) {
	edge, status, front := w.dialled(r)
	switch {
	case front != nil:
		front(rw, r)
		return
	case r.Method == http.MethodPost && w.post != nil:
		w.post(rw, r)
		return
	}
	if status == http.StatusServiceUnavailable {
		rw.Header().Set("Retry-After", "7")
	}
	if status != 0 {
		rw.WriteHeader(status)
		return
	}
	err := edge.Upgrade(rw, r)
	if refused, ok := errors.AsType[*ws.Refusal](err); ok {
		rw.WriteHeader(refused.HTTPStatus())
	} else if err != nil {
		rw.WriteHeader(http.StatusUnauthorized)
	}
}

func (w *world) dialled(r *http.Request) (*ws.Handler, int, http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.URL.Path == "/v1/stream" {
		w.dials = append(w.dials, time.Now())
	}
	return w.edge, w.status, w.front
}

func (w *world) connections() []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dials)
}

// refuse answers handshakes with a status; 0 accepts them.
func (w *world) refuse(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

func (w *world) token(context.Context) (string, error) {
	return token.Mint([]byte(secret), "u1", "", w.life)
}

func (w *world) hear(a client.Answer) {
	w.answered = append(w.answered, a.Heartbeat.ObjectId+" "+a.Status.String()[len("STATUS_"):])
	w.answers = append(w.answers, a)
	if w.told != nil {
		w.told(a)
	}
}

// Apply is the service.
func (w *world) Apply(_ context.Context, req *messagev1.ApplyRequest) (*messagev1.ApplyResponse, error) {
	switch {
	case len(req.Heartbeats) == 0:
		return &messagev1.ApplyResponse{NowMs: w.now()}, nil
	case w.films != nil:
		resp := w.films.apply(req)
		time.Sleep(w.films.delay)
		resp.NowMs = w.now()
		return resp, nil
	}
	statuses, delay, err := w.apply(req.Heartbeats)
	time.Sleep(delay)
	return &messagev1.ApplyResponse{Statuses: statuses, NowMs: w.now()}, err
}

// now returns the service's time, or 0 if silent.
func (w *world) now() int64 {
	if w.silent {
		return 0
	}
	return time.Now().Add(w.apart).UnixMilli()
}

func (w *world) apply(beats []*messagev1.Heartbeat) ([]messagev1.Status, time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := w.delay
	w.stored, w.delay = append(w.stored, beats...), 0
	if w.fate != nil {
		statuses, err := w.fate(beats)
		return statuses, delay, err
	}
	return all(beats, messagev1.Status_STATUS_STORED), delay, nil
}

func all(beats []*messagev1.Heartbeat, status messagev1.Status) []messagev1.Status {
	return slices.Repeat([]messagev1.Status{status}, len(beats))
}

func (w *world) run() (stop func() error) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.client.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func (w *world) report(ids ...string) {
	w.Helper()
	for _, id := range ids {
		if err := w.client.Report(beat(id)); err != nil {
			w.Fatal(err)
		}
	}
}

func beat(id string) *messagev1.Heartbeat {
	return &messagev1.Heartbeat{ObjectId: id, ObjectType: 1, Kind: messagev1.Kind_KIND_STOP, EventTimeMs: time.Now().UnixMilli(), PositionMs: 1000}
}

// flush waits until all is answered, at most for limit.
func (w *world) flush(limit time.Duration) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	if err := w.client.Flush(ctx); err != nil {
		w.Fatalf("%v; answered %v", err, w.answered)
	}
}
