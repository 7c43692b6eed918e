package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/server"
	"github.com/playhead/playhead/internal/memnet"
	"github.com/playhead/playhead/internal/obs/obstest"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// slow is a handler that signals begun and waits for letGo.
type slow struct{ begun, letGo chan struct{} }

func newSlow() slow { return slow{make(chan struct{}, 30), make(chan struct{})} }

func (s slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.begun <- struct{}{}
	select {
	case <-s.letGo:
		_, _ = io.WriteString(w, "done")
	case <-r.Context().Done():
	}
}

func start(t *testing.T, cfg server.Config) (addr string, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	cfg.Listener = listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- server.New(cfg).Run(ctx) }()
	return cfg.Listener.Addr().String(), cancel, done
}

func get(t *testing.T, addr string) <-chan string {
	t.Helper()
	answer := make(chan string, 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			answer <- "error: " + err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answer <- string(text)
	}()
	return answer
}

func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	h := newSlow()
	addr, stop, ended := start(t, server.Config{Handler: h})
	answer := get(t, addr)
	<-h.begun
	stop()
	waitClosed(t, addr)
	select {
	case err := <-ended:
		t.Fatalf("Run returned %v before the answer", err)
	default:
	}
	close(h.letGo)
	if got := <-answer; got != "done" {
		t.Errorf("answer %q, want done", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func waitClosed(t *testing.T, addr string) {
	t.Helper()
	for began := time.Now(); ; {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Since(began) > 10*time.Second {
			t.Fatal("still listening")
		}
	}
}

// TestStopDoesNotWaitForSilence checks that a browser's unused connections do not delay the shutdown.
func TestStopDoesNotWaitForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memnet.Listen()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- server.New(server.Config{Handler: newSlow(), Listener: l, Drain: time.Second}).Run(ctx)
		}()
		conn, err := l.Dial(ctx, "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		synctest.Wait()
		stop()
		began := time.Now()
		if err := <-ended; err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("Run: %v, after %v", err, time.Since(began))
		}
	})
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	h := newSlow()
	addr, stop, ended := start(t, server.Config{Handler: h, Drain: time.Millisecond})
	answer := get(t, addr)
	<-h.begun
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "cut off after 1ms") {
		t.Errorf("Run: %v, want an error that says so", err)
	}
	if got := <-answer; !strings.HasPrefix(got, "error") {
		t.Errorf("answer %q, want an error", got)
	}
}

type counted struct {
	net.Listener
	mu        sync.Mutex
	open, top int
}

func (l *counted) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.add(1)
	}
	return countedConn{conn, l}, err
}

func (l *counted) add(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
	l.top = max(l.top, l.open)
}

type countedConn struct {
	net.Conn
	l *counted
}

func (c countedConn) Close() error {
	c.l.add(-1)
	return c.Conn.Close()
}

func TestMaxConnections(t *testing.T) {
	h, l := newSlow(), &counted{Listener: listen(t)}
	close(h.letGo)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.New(server.Config{Handler: h, Listener: l, MaxConnections: 2}).Run(ctx) }()
	var answers []<-chan string
	for range cap(h.begun) {
		answers = append(answers, get(t, l.Addr().String()))
	}
	for _, answer := range answers {
		if got := <-answer; got != "done" {
			t.Errorf("answer %q, want done", got)
		}
	}
	stop()
	if err := <-ended; err != nil || l.top > 3 {
		t.Errorf("%d connections at once, %v, want 2 at most, and one that waits", l.top, err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	addr, _, _ := start(t, server.Config{Handler: http.NotFoundHandler()})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: edge\r\nX: %s\r\n\r\n", strings.Repeat("x", 32<<10)) // cut off halfway
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("got %q, %v, want 431", line, err)
	}
}

func TestAddressInUse(t *testing.T) {
	l := listen(t)
	defer l.Close()
	if err := server.New(server.Config{Addr: l.Addr().String()}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("Run: %v, want an error of listen", err)
	}
	closed := listen(t)
	_ = closed.Close()
	if err := server.New(server.Config{Listener: closed}).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "serve") {
		t.Errorf("Run: %v, want an error of serve", err)
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestAFloodFromOneAddress(t *testing.T) {
	reg := prometheus.NewRegistry()
	addr, _, _ := start(t, server.Config{Handler: http.NotFoundHandler(), PerAddress: 3, Registry: reg})
	const hello = "GET / HTTP/1.1\r\nHost: edge\r\n\r\n"
	var inside []net.Conn
	for range 3 {
		conn := dial(t, addr)
		_, _ = io.WriteString(conn, hello)
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "404") {
			t.Fatalf("got %q, %v, want 404", line, err)
		}
		inside = append(inside, conn)
	}
	for range 20 {
		if n, err := dial(t, addr).Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatalf("the fourth connection read %d bytes, %v, want it closed", n, err)
		}
	}
	if got := obstest.Sum(t, reg, "playhead_edge_refused_connections_total"); got != 20 {
		t.Errorf("%v connections refused, want 20", got)
	}
	_ = inside[0].Close()
	for answer := ""; answer != "404 page not found\n"; { // the server has seen it
		answer = <-get(t, addr)
	}
}

// TestConnectionsThatAreNotHeard checks that silent, slow and non-HTTP connections are closed and counted; ones
// with a request are not.
func TestConnectionsThatAreNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, l := prometheus.NewRegistry(), memnet.Listen()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- server.New(server.Config{Handler: http.NotFoundHandler(), Listener: l, Registry: reg}).Run(ctx)
		}()
		for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: ed", "\x16\x03\x01 no HTTP\r\n\r\n", "GET / HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n"} {
			conn, err := l.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn, said) }()
			began := time.Now()
			text, _ := io.ReadAll(conn)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%q: answered %q after %v, want the end within 10 s", said, text, took)
			}
		}
		synctest.Wait()
		if got := obstest.Sum(t, reg, "playhead_edge_incomplete_connections_total"); got != 3 {
			t.Errorf("%v connections incomplete, want 3", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestStrangersMakeRoom fills the server without tokens. Connections with a token stay, and a new one evicts a
// stranger after a second. If all have a token, the next one waits.
func TestStrangersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, l := prometheus.NewRegistry(), memnet.Listen()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- server.New(server.Config{
				Handler: http.NotFoundHandler(), Listener: l, Registry: reg, MaxConnections: 3,
				Known: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer good" },
			}).Run(ctx)
		}()
		dial := func() net.Conn {
			conn, err := l.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		ask := func(conn net.Conn) error {
			go func() {
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer good\r\n\r\n")
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			return err
		}
		player := dial()
		if err := ask(player); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			go func() {
				conn, err := l.Dial(ctx, "", "")
				for err == nil { // reconnects after each close
					_, _ = io.ReadAll(conn)
					conn, err = l.Dial(ctx, "", "")
				}
			}()
		}
		time.Sleep(20 * time.Second)
		if err := ask(player); err != nil {
			t.Errorf("the player of before: %v", err)
		}
		began := time.Now()
		next := dial()
		if err := ask(next); err != nil || time.Since(began) > 10*time.Second {
			t.Errorf("another player: %v after %v", err, time.Since(began))
		}
		if got := obstest.Sum(t, reg, "playhead_edge_evicted_connections_total"); got < 15 {
			t.Errorf("%v connections made room, want two or so each second", got)
		}
		third := dial()
		if err := ask(third); err != nil {
			t.Errorf("a third player: %v", err)
		}
		time.Sleep(time.Minute)
		for _, conn := range []net.Conn{player, next, third} {
			if err := ask(conn); err != nil {
				t.Errorf("all have a token: %v", err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
