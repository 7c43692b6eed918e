package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// world is the edge over the real service on the embedded store, each behind a
// socket.
type world struct {
	url  string
	stop func() // ends the service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := serve(t, newService(t), l)
	up, err := uplink.Open(uplink.Config{Services: []string{l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	players := httptest.NewServer(newEdge(t, up))
	t.Cleanup(players.Close)
	return &world{url: players.URL, stop: stop}
}

func newService(t *testing.T) *rpc.Server {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	queue := memqueue.New(memqueue.Config{})
	held, err := aggregate.New(aggregate.Config{Publisher: queue})
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.New(rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Aggregate: held, Queue: queue, Days: db.Days(), Announcer: nobody{}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// nobody hears who comes for the first time on a day.
type nobody struct{}

func (nobody) Announce(context.Context, []history.First) error { return nil }

// serve runs the service until the test ends, or stop is called.
func serve(t *testing.T, s *rpc.Server, l net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 2)
	go func() { _ = s.Serve(ctx, l, nil, time.Second); done <- struct{}{} }() // ends with ctx
	go func() { _ = s.Run(ctx); done <- struct{}{} }()
	ended := false
	stop = func() {
		if cancel(); !ended {
			<-done
			<-done
			ended = true
		}
	}
	t.Cleanup(stop)
	return stop
}

// do asks as uid and returns the status and the answer.
func (w *world) do(t *testing.T, uid, target, body string) (int, map[string]any) {
	t.Helper()
	status, text := w.ask(t, uid, target, body)
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s: %d %s: %v", target, status, text, err)
	}
	return status, answer
}

// raw asks as uid and returns what is answered with 200.
func (w *world) raw(t *testing.T, uid, target, body string) string {
	t.Helper()
	status, text := w.ask(t, uid, target, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", target, status, text)
	}
	return string(text)
}

func (w *world) ask(t *testing.T, uid, target, body string) (int, []byte) {
	t.Helper()
	return w.send(t, request(t, uid, target, strings.NewReader(body)))
}

func (w *world) send(t *testing.T, r *http.Request) (int, []byte) {
	t.Helper()
	out, err := http.NewRequestWithContext(t.Context(), r.Method, w.url+r.URL.String(), r.Body)
	if err != nil {
		t.Fatal(err)
	}
	out.Header = r.Header
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

// get walks into an answer: get(a, "results", 0, "status").
func get(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}
