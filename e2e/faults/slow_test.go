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

// TestSlowLine sends bytes at once: they must arrive together after the delay, or one after the other on a narrow
// line.
func TestSlowLine(t *testing.T) {
	const by, pieces, each = 200 * time.Millisecond, 20, 10
	for name, tt := range map[string]struct {
		slow        time.Duration
		narrow      int64 // bytes per second
		least, most time.Duration
	}{
		"slow":   {slow: by, least: by, most: pieces * by / 2},
		"narrow": {narrow: pieces * each * 2, least: time.Second / 2, most: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			addr, slow, narrow, end, err := faults.Line(t.Context(), echo(t))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			slow(tt.slow)
			narrow(tt.narrow)
			began := time.Now()
			for range pieces {
				if _, err := conn.Write([]byte("some piece")); err != nil {
					t.Fatal(err)
				}
			}
			got, err := io.ReadAll(io.LimitReader(conn, pieces*each))
			if took := time.Since(began); err != nil || string(got) != strings.Repeat("some piece", pieces) || took < tt.least || took > tt.most {
				t.Errorf("%q arrived after %v, err %v; want %d pieces after %v to %v", got, took, err, pieces, tt.least, tt.most)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPrintSlow(t *testing.T) {
	var out strings.Builder
	err := faults.Print(&out, []faults.Result{{Case: "slow-kafka", Slow: []faults.SlowRow{{
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
	if err := faults.Run(ctx, o, []string{"slow"}, nil); err == nil || strings.Contains(err.Error(), "no case") {
		t.Errorf("Run of slow = %v, want the end of its context", err)
	}
}
