package hbase_test

import (
	"net"
	"strings"
	"testing"

	"github.com/playhead/playhead/history/hbase"
)

// TestAFailedConnectionIsForgotten once its server accepts another.
func TestAFailedConnectionIsForgotten(t *testing.T) {
	listen := func(addr string) net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen("127.0.0.1:0")
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var d hbase.Dialer
	if d.Dial(t.Context(), addr); !strings.Contains(d.Reason(), addr) {
		t.Errorf("reason %q, want %s", d.Reason(), addr)
	}
	l = listen(addr)
	defer l.Close()
	if d.Dial(t.Context(), addr); d.Reason() != "" {
		t.Errorf("reason %q after the server was back, want none", d.Reason())
	}
}
