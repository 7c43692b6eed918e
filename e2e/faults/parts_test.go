package faults_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/faults"
)

// What is sent at once arrives together, a while later.
func TestLag(t *testing.T) {
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn) // an echo
		}
	}()
	addr, set, end, err := faults.Lag(t.Context(), lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	const by, pieces = 200 * time.Millisecond, 20
	set(by)
	began := time.Now()
	for range pieces {
		if _, err := conn.Write([]byte("piece")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(io.LimitReader(conn, pieces*5))
	if took := time.Since(began); err != nil || string(got) != strings.Repeat("piece", pieces) || took < by || took > pieces*by/2 {
		t.Errorf("%q arrived after %v, err %v; want %d pieces a little after %v", got, took, err, pieces, by)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestPrintSlow(t *testing.T) {
	var out strings.Builder
	err := faults.Print(&out, []faults.Result{{Case: "part-kafka", Slow: []faults.SlowRow{{
		What: "Kafka's broker", Services: 2, Players: 200, RefusedMS: 2224,
		Touched: faults.Share{Players: 20, Sent: 400, InTime: 4}, Others: faults.Share{Players: 180, Sent: 100, InTime: 99, LatestMS: 722},
		Edge: faults.Weight{Before: 31, Most: 52},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Kafka's broker", "20 of 200", "1.0 %", "2.224s", "99.0 %", "722ms", "31 to 52"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRunFamily(t *testing.T) {
	o := faults.Options{Dir: t.TempDir(), Lib: t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := faults.Run(ctx, o, []string{"part"}, nil); err == nil || strings.Contains(err.Error(), "no case") {
		t.Errorf("Run of part = %v, want the end of its context", err)
	}
}
