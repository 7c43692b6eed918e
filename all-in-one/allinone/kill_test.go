package allinone_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/run"
)

// TestKill repeatedly kills the process under load. The cache then has everything acknowledged. Finally a new
// process archives it within seconds: no surviving hold could announce it.
func TestKill(t *testing.T) {
	dir, l := t.TempDir(), newLoad(t)
	for round := range int64(4) {
		p := start(t, dir)
		stop := l.run(p.rpc)
		l.until(200 + 700*round)
		p.kill()
		stop()
		db, err := pebble.Open(dir, pebble.Config{})
		if err != nil {
			t.Fatal(err)
		}
		l.held(db.Cache())
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d heartbeats acknowledged", l.acked.Load())
	h := open(t, dir)
	l.held(h.Cache())
	h.clean(patience)
	l.archived(h.Cache(), h.Archive())
}

// TestTerminate stops the process by SIGTERM under load. It ends in time, without an error, and keeps
// everything acknowledged.
func TestTerminate(t *testing.T) {
	dir, l := t.TempDir(), newLoad(t)
	p := start(t, dir)
	stop := l.run(p.rpc)
	l.until(500)
	if took := p.terminate(); took > drain {
		t.Errorf("stopped after %v, want at most %v", took, drain)
	}
	stop()
	h := open(t, dir)
	l.held(h.Cache())
	h.clean(patience)
	l.archived(h.Cache(), h.Archive())
}

// child is the environment variable with the data directory that makes the test binary an all-in-one.
const child = "ALLINONE_TEST_DIR"

// withPlays is the environment of a child with a stream of plays.
const withPlays = "ALLINONE_TEST_PLAYS=1"

// TestTakenPort: a taken port fails before anything is created.
func TestTakenPort(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := config(filepath.Join(t.TempDir(), "data"))
	cfg.HTTP = l.Addr().String()
	if _, err := allinone.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v, want an error that names --listen", err)
	}
	if _, err := os.Stat(cfg.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(child) != "" {
		run.Main(serve)
	}
	os.Exit(m.Run())
}

// serve does the work of playhead serve.
func serve(ctx context.Context, _ []string, getenv func(string) string, out io.Writer) error {
	cfg := config(getenv(child))
	var err error
	if cfg.Counted, err = count.ParseTypes([]string{"all"}); err != nil {
		return err
	}
	cfg.Plays = getenv("ALLINONE_TEST_PLAYS") != ""
	p, err := allinone.Open(ctx, cfg)
	if err != nil {
		return err
	}
	p.Greet(out, "demo")
	return p.Run(ctx)
}

func config(dir string) allinone.Config {
	return allinone.Config{Dir: dir, HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Drain: drain}
}

const drain = 8 * time.Second

type process struct {
	*testing.T
	cmd              *exec.Cmd
	http, rpc, token string
	admin            string
	log              *strings.Builder
	ended            bool
}

// start starts a child and waits for its greeting.
func start(t *testing.T, dir string, env ...string) *process {
	t.Helper()
	p := &process{T: t, log: &strings.Builder{}}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0]) // killed at the end of the test at the latest
	p.cmd.Env = append(append(os.Environ(), child+"="+dir), env...)
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	lines := bufio.NewScanner(out)
	for p.token == "" && lines.Scan() {
		p.read(lines.Text())
	}
	if p.token == "" {
		_ = p.cmd.Wait() // the log says more than the error
		t.Fatalf("no greeting: %s", p.log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p
}

func (p *process) read(line string) {
	if value, ok := strings.CutPrefix(strings.TrimSpace(line), "export TOKEN="); ok {
		p.token = value
	}
	switch f := strings.Fields(line); {
	case len(f) > 2 && f[0] == "HTTP":
		p.http = f[2]
	case len(f) > 1 && f[0] == "gRPC":
		p.rpc = f[1]
	case len(f) > 1 && f[0] == "metrics":
		p.admin = strings.TrimSuffix(strings.TrimPrefix(f[1], "http://"), "/metrics")
	}
}

func (p *process) kill() {
	if !p.ended {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		_ = p.cmd.Wait()         // reports the signal
		p.ended = true
	}
}

// terminate sends SIGTERM and returns the time until the end.
func (p *process) terminate() time.Duration {
	p.Helper()
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.Errorf("stopped: %v: %s", err, p.log)
	}
	p.ended = true
	return time.Since(began)
}
