package main

import (
	"strings"
	"testing"
	"time"
)

// TestWarnUnreachable: a copy to a wrong address says so at once, and one to a right address says nothing.
func TestWarnUnreachable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:1":           "playhead: no answer from 127.0.0.1:1; trying for 1m0s\n",
		serveRPC(t, service(t)): "",
	} {
		r := remote{Service: addr}
		conn, err := r.dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		var out strings.Builder
		warnUnreachable(t.Context(), conn, time.Minute, &out)
		if out.String() != want {
			t.Errorf("%s: said %q, want %q", addr, out.String(), want)
		}
	}
}
