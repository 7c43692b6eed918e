package hbase_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

func TestOpenInvalid(t *testing.T) {
	for _, test := range []struct {
		field string
		c     hbase.Config
	}{
		{"zookeeper", hbase.Config{}},
		{"regions", hbase.Config{ZooKeeper: "localhost:1", Regions: -1}},
		{"regions", hbase.Config{ZooKeeper: "localhost:1", Regions: 257}},
		{"deadline", hbase.Config{ZooKeeper: "localhost:1", Deadline: -time.Second}},
	} {
		_, err := hbase.Open(t.Context(), test.c)
		if !errors.Is(err, history.ErrInvalid) || !strings.Contains(err.Error(), test.field+":") {
			t.Errorf("%+v: got %v, want %s refused", test.c, err, test.field)
		}
	}
}

// listen returns a listener on loopback that nobody accepts from: connections are
// made and stay silent.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestOpenNobodyThere finds a port where nothing listens, at once.
func TestOpenNobodyThere(t *testing.T) {
	l := listen(t)
	addr := l.Addr().String()
	_ = l.Close()
	start := time.Now()
	_, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: addr, Deadline: time.Hour})
	wantUnreachable(t, err, addr)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %v, want no waiting for the deadline", took)
	}
}

// TestNotPrepared uses an archive that has not answered yet: it is unavailable, at once.
func TestNotPrepared(t *testing.T) {
	a, err := hbase.New(hbase.Config{ZooKeeper: listen(t).Addr().String(), Deadline: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Row(t.Context(), "u"); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("row: got %v, want %v", err, history.ErrUnavailable)
	}
	for _, err := range a.Put(t.Context(), cells(1)) {
		if !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("put: got %v, want %v", err, history.ErrUnavailable)
		}
	}
}

// TestOpenSilence finds a ZooKeeper that says nothing: the deadline ends it.
func TestOpenSilence(t *testing.T) {
	addr := listen(t).Addr().String()
	start := time.Now()
	_, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: addr, Deadline: 50 * time.Millisecond})
	wantUnreachable(t, err, addr)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v, want about the deadline of 50ms", took)
	}
}

// wantUnreachable wants one line that names the address.
func wantUnreachable(t *testing.T, err error, addr string) {
	t.Helper()
	if !errors.Is(err, history.ErrUnavailable) {
		t.Fatalf("open: got %v, want %v", err, history.ErrUnavailable)
	}
	if text := err.Error(); !strings.Contains(text, addr) || strings.Contains(text, "\n") {
		t.Errorf("open: got %q, want one line that names %s", text, addr)
	}
	t.Log(err)
}
