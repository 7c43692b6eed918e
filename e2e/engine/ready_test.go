package engine_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/playhead/playhead/e2e/engine"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// answer serves one connection: it reads the request and replies.
func answer(t *testing.T, reply string) engine.Node {
	t.Helper()
	l := listen(t)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, reply)
	}()
	return engine.Node{Ports: []int{l.Addr().(*net.TCPAddr).Port}}
}

func TestKafkaReady(t *testing.T) {
	const head, tail = "\x00\x00\x00\x01", "\x00\x00\x00\x01\x00\x00\x00\x00" // the request's number; the controller, no topics
	for name, c := range map[string]struct{ reply, err string }{
		"one broker":    {"\x00\x00\x00\x1d" + head + "\x00\x00\x00\x01" + "\x00\x00\x00\x01\x00\x01h\x00\x00\x00\x01\xff\xff" + tail, ""},
		"no broker yet": {"\x00\x00\x00\x10" + head + "\x00\x00\x00\x00" + tail, "no broker"},
		"cut off":       {"\x00\x00", "EOF"},
	} {
		checkError(t, name, engine.KafkaReady(t.Context(), answer(t, c.reply)), c.err)
	}
}

// TestHBaseReady ignores lines from earlier starts, because every start appends to the log.
func TestHBaseReady(t *testing.T) {
	const mark = "x Master has completed initialization 7.1sec\n"
	for name, c := range map[string]struct {
		log  string
		from int64
		err  string
	}{
		"ready":         {"start\n" + mark + "more\n", 0, ""},
		"not yet":       {"start\n", 0, "initializing"},
		"empty":         {"", 0, "initializing"},
		"earlier start": {mark + "start\n", int64(len(mark)), "initializing"},
		"second start":  {mark + "start\n" + mark, int64(len(mark)), ""},
	} {
		n := engine.Node{Log: filepath.Join(t.TempDir(), "log"), LogFrom: c.from}
		if err := os.WriteFile(n.Log, []byte(c.log), 0o644); err != nil {
			t.Fatal(err)
		}
		checkError(t, name, engine.HBaseReady(t.Context(), n), c.err)
	}
}

func TestLogTail(t *testing.T) {
	n := engine.Node{Log: filepath.Join(t.TempDir(), "log"), LogFrom: 4}
	long := "old\n" + strings.Repeat("early\n", 10000) + strings.Repeat("late\n", 15)
	if err := os.WriteFile(n.Log, []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	got := n.LogTail()
	if strings.Count(got, "late") != 15 || strings.Contains(got, "early") {
		t.Errorf("tail of a long log is %q, want its last 15 lines", got)
	}
	if got := (engine.Node{Log: "/no/such/log"}).LogTail(); !strings.Contains(got, "no such file") {
		t.Errorf("tail of a missing log is %q", got)
	}
}

// checkError wants no error for an empty text, else one that contains it.
func checkError(t *testing.T, name string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error is %v, want %q", name, err, want)
	}
}
