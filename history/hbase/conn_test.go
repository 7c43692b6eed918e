package hbase_test

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/playhead/playhead/history/hbase"
)

// connect returns both ends of a connection, the first of them wrapped.
func connect(t *testing.T, patience time.Duration) (client, server net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	client = hbase.NewConn(c.(*net.TCPConn), patience)
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// TestSilenceIsNotPutOff sends on and on, as a busy client does, to a server that
// never answers.
func TestSilenceIsNotPutOff(t *testing.T) {
	client, _ := connect(t, time.Hour)
	if err := client.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := client.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the first deadline exceeded", err)
	}
}

// TestSilenceCountsFromTheLastByte has a server that answers in time and then no more.
func TestSilenceCountsFromTheLastByte(t *testing.T) {
	client, server := connect(t, time.Millisecond)
	if err := client.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatalf("got %v, want a byte", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the deadline exceeded", err)
	}
}

// TestIdleConnectionStays waits for nothing: then silence is no fault.
func TestIdleConnectionStays(t *testing.T) {
	client, server := connect(t, time.Nanosecond)
	for _, deadline := range []time.Time{time.Now().Add(time.Nanosecond), {}} {
		if err := client.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.Write([]byte{1, 2}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := client.Read(make([]byte, 1)); err != nil {
			t.Errorf("got %v, want a byte", err)
		}
	}
}
