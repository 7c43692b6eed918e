package hbase_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tsuna/gohbase"

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

// listen returns a loopback listener that never accepts: connections succeed and stay silent.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestOpenNobodyThere fails at once on a closed port.
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

// TestNotPrepared: an unprepared archive is unavailable at once.
func TestNotPrepared(t *testing.T) {
	a, err := hbase.New(hbase.Config{ZooKeeper: listen(t).Addr().String(), Deadline: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Page(t.Context(), "u", history.Query{Limit: 1}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("row: got %v, want %v", err, history.ErrUnavailable)
	}
	for _, err := range a.Put(t.Context(), cells(1)) {
		if !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("put: got %v, want %v", err, history.ErrUnavailable)
		}
	}
}

// TestOpenSilence: a silent ZooKeeper fails at the deadline.
func TestOpenSilence(t *testing.T) {
	addr := listen(t).Addr().String()
	start := time.Now()
	_, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: addr, Deadline: 50 * time.Millisecond})
	wantUnreachable(t, err, addr)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v, want about the deadline of 50ms", took)
	}
}

// wantUnreachable wants a one-line error that names the address.
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

// connect returns both ends of a connection; the client's is wrapped.
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

// TestSilenceIsNotPutOff keeps sending, as a busy client, to a server that never answers.
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

// TestSilenceCountsFromTheLastByte has a server that answers once and then falls silent.
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

// TestIdleConnectionStays: silence without pending answers is no failure.
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

// java returns the client's error for an HBase exception.
func java(class, text string) error { return exception{class, text} }

type exception struct{ class, text string }

func (e exception) Error() string {
	return fmt.Sprintf("HBase Java exception %s:\n%s: %s\n\tat org.apache.hadoop.A.b(A.java:1)\n\tat c.D.e(D.java:2)\n", e.class, e.class, e.text)
}

func TestClassify(t *testing.T) {
	const pkg = "org.apache.hadoop.hbase."
	for _, test := range []struct {
		err  error
		want error
	}{
		{java(pkg+"regionserver.NoSuchColumnFamilyException", "no x"), history.ErrPermanent},
		{java(pkg+"DoNotRetryIOException", "exceeds limit of 10485760 bytes"), history.ErrPermanent},
		{java(pkg+"exceptions.FailedSanityCheckException", "timestamp"), history.ErrPermanent},
		{java(pkg+"PleaseHoldException", "Master is initializing"), history.ErrUnavailable},
		{java(pkg+"ipc.ServerNotRunningYetException", "Server is not running yet"), history.ErrUnavailable},
		{java(pkg+"MasterNotRunningException", "no master"), history.ErrUnavailable},
		{java(pkg+"exceptions.MasterStoppedException", "stopped"), history.ErrUnavailable},
		{java(pkg+"exceptions.RegionOpeningException", "opening"), history.ErrUnavailable},
		{java(pkg+"regionserver.RegionServerStoppedException", "stopping"), history.ErrUnavailable},
		{java(pkg+"regionserver.RegionServerAbortedException", "aborting"), history.ErrUnavailable},
		{java(pkg+"NotAllMetaRegionsOnlineException", "meta is not online"), history.ErrUnavailable},
		{java(pkg+"TableNotEnabledException", "history"), history.ErrUnavailable},
		{java(pkg+"CallQueueTooBigException", "full"), history.ErrUnavailable},
		{java(pkg+"quotas.RpcThrottlingException", "throttled"), history.ErrUnavailable},
		{java("java.io.IOException", "hbase:meta is not online"), history.ErrUnavailable},
		{errors.New("procedure not found"), history.ErrUnavailable},
		{errors.New("zk: node does not exist"), history.ErrUnavailable},
		{java(pkg+"RegionTooBusyException", "org.apache.hadoop.hbase.DoNotRetryIOException in the text"), history.ErrUnavailable},
		{java(pkg+"NotServingRegionException", "moved"), history.ErrUnavailable},
		{gohbase.TableNotFound, history.ErrUnavailable},
		{gohbase.NotExecutedError, history.ErrUnavailable},
		{gohbase.ErrClientClosed, history.ErrClosed},
		{gohbase.ErrClientClosed, history.ErrUnavailable},
		{context.DeadlineExceeded, history.ErrUnavailable},
		{context.DeadlineExceeded, context.DeadlineExceeded},
		{context.Canceled, context.Canceled},
	} {
		got := hbase.Classify(test.err)
		if !errors.Is(got, test.want) {
			t.Errorf("%v: got %v, want it to be %v", test.err, got, test.want)
		}
		if errors.Is(got, history.ErrPermanent) && errors.Is(got, history.ErrUnavailable) {
			t.Errorf("%v: got %v, which is both", test.err, got)
		}
		if strings.ContainsAny(got.Error(), "\n\t") {
			t.Errorf("%v: got %q, want one line", test.err, got)
		}
		if again := hbase.Classify(got); !errors.Is(again, test.want) {
			t.Errorf("%v: twice: got %v, want it to be %v", test.err, again, test.want)
		}
	}
	if got := hbase.Classify(nil); got != nil {
		t.Errorf("nil: got %v", got)
	}
}
