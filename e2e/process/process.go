// Package process starts, watches and ends the product's commands, for tests and fault runs. It needs Linux.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Process is one running command. It dies with the program that started it.
type Process struct {
	Path string

	cmd  *exec.Cmd
	log  tail
	done chan struct{}
}

// Start starts a command in its own process group, which shields it from the caller's Ctrl-C.
func Start(path string, args ...string) (*Process, error) {
	p := &Process{Path: path, done: make(chan struct{})}
	p.cmd = exec.Command(path, args...) //nolint:noctx // who ends it, and how, is what its user is about
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.Env = append([]string{"PLAYHEAD_LAME_DUCK=0s"}, os.Environ()...) // no load balancer looks
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, nil
}

// run keeps the thread that forked until the process ends, because the kernel ties the death signal to it.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the state has the result
	}
}

// Done is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends a signal; it ignores an ended process.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill ends the process with SIGKILL, like a crash, and waits for it.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the process with SIGTERM. It fails after the deadline, or if the process reports unfinished work.
func (p *Process) Stop(deadline time.Duration) error {
	p.Signal(syscall.SIGTERM)
	late := time.NewTimer(deadline)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C:
		return fmt.Errorf("%s did not stop within %v", p.Path, deadline)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %v", p.Path, p.cmd.ProcessState)
	}
	return nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPU returns the processor time of an ended process.
func (p *Process) CPU() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Log returns the end of the process's output.
func (p *Process) Log() string { return p.log.String() }

// Ready fails until the process reports readiness on its admin port.
func (p *Process) Ready(ctx context.Context, admin string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // best effort: the status suffices
		return fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(why))
	}
	return nil
}

// tail keeps the end of a log.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailBytes = 64 << 10

// Write appends p, and drops the oldest bytes beyond the bound.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > tailBytes {
		t.buf.Next(t.buf.Len() - tailBytes/2)
	}
	return t.buf.Write(p)
}

// String returns the kept output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

// Await tries a condition every 50 ms until it holds, or the limit passes.
func Await(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := error(nil); ; {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil { // an error of the ended context says nothing
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait %v for %s: %w", limit, what, last)
		}
	}
}

// The kernel assigns no outgoing connection a port from this range. Otherwise one could take the address before
// the command listens on it.
const (
	firstPort = 23000
	lastPort  = 32000
)

// FreeAddr returns an unused address of the loopback interface.
func FreeAddr(ctx context.Context) (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(lastPort-firstPort))
		var lis net.Listener
		if lis, err = new(net.ListenConfig).Listen(ctx, "tcp", addr); err == nil {
			return addr, lis.Close()
		}
	}
	return "", fmt.Errorf("find a free port: %w", err)
}

// Partitions is the number of partitions of a [Product]'s topics.
const Partitions = 8

// Product is the product's commands on one set of engines, with their own topics, consumer group and table.
type Product struct {
	Bin  string // folder of the built commands
	Name string // of group, table and key topic; prefix of the other topics

	Redis        string // addresses, separated by commas
	Cluster      bool   // Redis is a cluster
	Kafka, HBase string
}

// Command returns the command line of a history-service or history-job with an admin address.
func (p Product) Command(name, admin string, more ...string) []string {
	argv := []string{
		filepath.Join(p.Bin, name), "--admin", admin, "--kafka", p.Kafka, "--hbase", p.HBase,
		"--kafka-topic", p.Name, "--kafka-group", p.Name, "--kafka-partitions", fmt.Sprint(Partitions),
		"--kafka-dead-topic", p.DeadTopic(), "--kafka-first-of-day-topic", p.FirstTopic(), "--hbase-table", p.Name,
	}
	if p.Redis != "" {
		argv = append(argv, "--redis", p.Redis)
	}
	if p.Cluster {
		argv = append(argv, "--redis-cluster")
	}
	return append(argv, more...)
}

// Edge returns the command line of an edge without rate limits.
func (p Product) Edge(listen, admin, secretFile string, services []string) []string {
	return []string{
		filepath.Join(p.Bin, "bff"), "--listen", listen, "--admin", admin, "--service", strings.Join(services, ","),
		"--token-secret-file", secretFile, "--user-rate", "1e6", "--user-burst", "1e6",
	}
}

// DeadTopic returns the dead-letter topic.
func (p Product) DeadTopic() string { return p.Name + ".dead" }

// FirstTopic returns the topic of first-of-day announcements.
func (p Product) FirstTopic() string { return p.Name + ".first" }

// Flush empties Redis servers, which belong to the tests.
func Flush(ctx context.Context, addrs ...string) error {
	for _, addr := range addrs {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		if err := errors.Join(c.FlushAll(ctx).Err(), c.Close()); err != nil {
			return fmt.Errorf("empty redis %s: %w", addr, err)
		}
	}
	return nil
}

// Marked returns all dirty keys.
func Marked(ctx context.Context, c history.Ledger) ([]history.Key, error) {
	return c.Overdue(ctx, history.AllBuckets(), 0, 1_000_000)
}

// Clean fails while a key is dirty.
func Clean(ctx context.Context, c history.Ledger) error {
	left, err := Marked(ctx, c)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d keys are marked, such as %s", len(left), left[0])
	}
	return err
}
