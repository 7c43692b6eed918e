package ws_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/internal/memnet"
	"github.com/playhead/playhead/internal/obs/obstest"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	secret    = "0123456789abcdef0123456789abcdef"
	inJSON    = "playhead.v1.json"
	inProto   = "playhead.v1.proto"
	audience  = "players"
	edgesHost = "edge.example"
)

// service stores everything unless the test sets answer.
type service struct {
	mu     sync.Mutex
	now    int64                     // its NowMs
	asked  []*historyv1.ApplyRequest // requests with heartbeats
	answer func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error)
}

func (s *service) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp := &historyv1.ApplyResponse{NowMs: s.now}
	if len(req.Heartbeats) == 0 {
		return resp, nil
	}
	s.mu.Lock()
	s.asked = append(s.asked, req)
	s.mu.Unlock()
	if s.answer != nil {
		return s.answer(ctx, req)
	}
	for range req.Heartbeats {
		resp.Statuses = append(resp.Statuses, historyv1.Status_STATUS_STORED)
	}
	return resp, nil
}

type world struct {
	service  service
	log      strings.Builder
	registry *prometheus.Registry
	handler  *ws.Handler
	door     *memnet.Listener
	client   *http.Client
	query    string // for the next handshakes
	stop     context.CancelFunc
	stopped  chan struct{}
}

// bubble runs fn with a world in a synctest bubble.
func bubble(t *testing.T, cfg ws.Config, fn func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		fn(t, w)
		w.stop()
		<-w.stopped
		if w.client != nil {
			w.client.CloseIdleConnections()
		}
	})
}

func newWorld(t *testing.T, cfg ws.Config) *world {
	t.Helper()
	tokens, err := token.NewVerifier([]byte(secret), audience)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{registry: prometheus.NewRegistry(), door: memnet.Listen(), stopped: make(chan struct{})}
	cfg.Service, cfg.Tokens, cfg.Registry, cfg.Logger = &w.service, tokens, w.registry, slog.New(slog.NewTextHandler(&w.log, nil))
	if w.handler, err = ws.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.client = &http.Client{Transport: &http.Transport{DialContext: w.door.Dial}}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	server := &http.Server{Handler: upgrading(w.handler), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(w.door) }() // ends with Close
	go func() {
		if err := w.handler.Run(ctx); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		close(w.stopped)
	}()
	t.Cleanup(cancel)
	return w
}

func upgrading(h *ws.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := h.Upgrade(w, r)
		refused, _ := errors.AsType[*ws.Refusal](err)
		switch {
		case refused != nil:
			http.Error(w, refused.Error(), refused.HTTPStatus())
		case errors.Is(err, token.ErrInvalid):
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case exceeded(err):
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case err != nil:
			panic(err)
		}
	})
}

func exceeded(err error) bool {
	_, ok := errors.AsType[*limit.Exceeded](err)
	return ok
}

func mint(t testing.TB, uid string, life time.Duration) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, []byte(secret), jwt.MapClaims{"sub": uid, "aud": audience, "exp": time.Now().Add(life).Unix()})
}

func sign(t testing.TB, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type answer struct {
	status int
	header http.Header
	body   string
}

// knock dials with the given headers, each "Name: value".
func (w *world) knock(t *testing.T, protocols []string, headers ...string) (*websocket.Conn, answer, error) {
	t.Helper()
	opts := &websocket.DialOptions{HTTPHeader: http.Header{}, Subprotocols: protocols}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		opts.HTTPHeader.Set(name, value)
	}
	return w.open(t, opts)
}

func (w *world) open(t *testing.T, opts *websocket.DialOptions) (*websocket.Conn, answer, error) {
	t.Helper()
	opts.HTTPClient = w.client
	conn, resp, err := websocket.Dial(t.Context(), "ws://"+edgesHost+"/v1/stream"+w.query, opts)
	if resp == nil {
		return conn, answer{}, err
	}
	if err == nil {
		return conn, answer{status: resp.StatusCode, header: resp.Header}, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body) // in memory, cannot fail
	return conn, answer{resp.StatusCode, resp.Header, string(body)}, err
}

// dial connects as uid with a token valid for an hour.
func (w *world) dial(t *testing.T, uid, protocol string) *websocket.Conn {
	t.Helper()
	conn, _, err := w.knock(t, []string{protocol}, "Authorization: Bearer "+mint(t, uid, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// deaf connects as uid and never answers pings.
func (w *world) deaf(t *testing.T, uid string) *websocket.Conn {
	t.Helper()
	conn, _, err := w.open(t, &websocket.DialOptions{
		HTTPHeader:     http.Header{"Authorization": {"Bearer " + mint(t, uid, time.Hour)}},
		Subprotocols:   []string{inJSON},
		OnPingReceived: func(context.Context, []byte) bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func write(t *testing.T, conn *websocket.Conn, typ websocket.MessageType, body string) {
	t.Helper()
	if err := conn.Write(t.Context(), typ, []byte(body)); err != nil {
		t.Fatalf("send %.100s: %v", body, err)
	}
}

func read(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	_, body, err := conn.Read(t.Context())
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return string(body)
}

func say(t *testing.T, conn *websocket.Conn, body string) string {
	t.Helper()
	write(t, conn, websocket.MessageText, body)
	return read(t, conn)
}

// closed reads until the connection ends, and returns the close status.
func closed(t *testing.T, conn *websocket.Conn) websocket.CloseError {
	t.Helper()
	for {
		_, _, err := conn.Read(t.Context())
		if end, ok := errors.AsType[websocket.CloseError](err); ok {
			return end
		}
		if err != nil {
			return websocket.CloseError{Code: websocket.StatusAbnormalClosure, Reason: err.Error()}
		}
	}
}

// count returns a counter or gauge with the given label values.
func (w *world) count(t *testing.T, name string, label ...string) float64 {
	t.Helper()
	return obstest.Sum(t, w.registry, name, label...)
}

// since returns the bubble time since began, truncated to milliseconds.
func since(began time.Time) time.Duration { return time.Since(began).Truncate(time.Millisecond) }

const beat = `{"object":{"id":"100","type":1},"kind":"progress","position_ms":61000,"duration_ms":600000,"event_time":"2000-01-01T00:00:00Z"}`

func message(seq string, beats ...string) string {
	return `{"seq":` + seq + `,"heartbeats":[` + strings.Join(beats, ",") + `]}`
}
