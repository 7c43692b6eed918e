package ws_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// TestIdleConnectionsAreSmall measures the memory of idle connections, both ends in one process. The players
// are bare sockets. Each has sent one message, so its buffers have grown.
func TestIdleConnectionsAreSmall(t *testing.T) {
	const players, limit = 2000, 40 << 10
	for _, query := range []string{"", "?push=true"} {
		t.Run("stream"+query, func(t *testing.T) {
			addr := listen(t)
			before := memory()
			for i := range players {
				conn := ask(t, addr, query, mint(t, fmt.Sprint("user", i), time.Hour))
				t.Cleanup(func() { _ = conn.Close() })
			}
			got := (memory() - before) / players
			t.Logf("%d bytes for each of %d idle connections", got, players)
			if got > limit {
				t.Errorf("%d bytes for each of %d idle connections, want at most %d", got, players, limit)
			}
		})
	}
}

// listen starts an edge without limits on a real socket.
func listen(t testing.TB) (addr string) {
	t.Helper()
	tokens, err := token.NewVerifier([]byte(secret), audience)
	if err != nil {
		t.Fatal(err)
	}
	h, err := ws.New(ws.Config{Service: storing{}, Tokens: tokens, Changes: newBoard(), Limit: limit.New(1e9, 1e9), PerUser: 1e6})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(upgrading(h))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

type storing struct{}

func (storing) Apply(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	return &historyv1.ApplyResponse{Statuses: slices.Repeat([]historyv1.Status{historyv1.Status_STATUS_STORED}, len(req.Heartbeats))}, nil
}

func memory() int {
	runtime.GC()
	runtime.GC() // the first one only empties pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// frame is a heartbeat in a text frame with a zero mask.
func frame() []byte {
	body := message("1", strings.Replace(beat, `"2000-01-01T00:00:00Z"`, `"`+time.Now().UTC().Format(time.RFC3339)+`"`, 1))
	return append([]byte{0x81, 0x80 | 126, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, 0}, body...)
}

// answerSize is the size of its answer: a two-byte header and the text.
const answerSize = 2 + len(`{"seq":1,"results":[{"status":"stored"}]}`)

func handshake(bearer string) string {
	return "GET /v1/stream HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + inJSON + "\r\nAuthorization: Bearer " + bearer + "\r\n\r\n"
}

// bare connects with a plain socket, sends a heartbeat, and reads the answer.
func bare(t testing.TB, addr, bearer string) net.Conn {
	t.Helper()
	return ask(t, addr, "", bearer)
}

func ask(t testing.TB, addr, query, bearer string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append([]byte(strings.Replace(handshake(bearer), " HTTP", query+" HTTP", 1)), frame()...)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if _, err := io.ReadFull(r, make([]byte, answerSize)); err != nil {
		t.Fatal(err)
	}
	return conn
}
