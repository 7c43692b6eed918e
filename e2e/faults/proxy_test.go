package faults_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/faults"
)

func echo(t *testing.T) string {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return lis.Addr().String()
}

func TestProxy(t *testing.T) {
	addr, cut, stall, end, err := faults.Proxy(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say(t, conn, "passed on")
	resume := stall()
	if _, err := conn.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 4)); n > 0 || err == nil {
		t.Errorf("a stalled proxy passes %d bytes, error %v", n, err)
	}
	resume()
	hear(t, conn, "held")
	say(t, conn, "again")
	cut()
	if _, err := io.ReadAll(conn); err != nil && !isReset(err) {
		t.Errorf("read after a cut: %v", err)
	}
	if err := end(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func isReset(err error) bool {
	_, ok := err.(*net.OpError) //nolint:errorlint // nothing wraps it
	return ok
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	hear(t, c, text)
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}
