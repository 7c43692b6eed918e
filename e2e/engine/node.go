package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Node is one process of an engine.
type Node struct {
	PID     int       `json:"pid"`      // 0 after a deliberate stop.
	Ports   []int     `json:"ports"`    // On 127.0.0.1, the client port first.
	Dir     string    `json:"dir"`      // Absolute data folder, part of the command line.
	Log     string    `json:"log"`      // Output; every start appends.
	LogFrom int64     `json:"log_from"` // Offset of the last start in Log, bytes.
	Started time.Time `json:"started"`
}

// Addr returns the client address; empty before the first start.
func (n Node) Addr() string {
	if len(n.Ports) == 0 {
		return ""
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Ports[0]))
}

// Alive reports whether the recorded process runs and is ours: another process may have reused the number.
func (n Node) Alive() bool { return n.PID > 0 && belongs(cmdline(n.PID), n.Dir) }

// spawn runs argv in the data folder and appends its output to the log.
func (n *Node) spawn(ctx context.Context, argv []string, attr *syscall.SysProcAttr) error {
	out, err := os.OpenFile(n.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	end, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	// The engine outlives the context that bounds its start.
	c := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = n.Dir, out, out, attr
	if err := run(c); err != nil {
		return err
	}
	n.PID, n.LogFrom, n.Started = c.Process.Pid, end, time.Now().Round(time.Second)
	n.shown(ctx)
	return nil
}

// shown waits until the kernel shows the command line, shortly after the start. A process without one would count
// as dead. One that ended at once never gets one.
func (n *Node) shown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = until(ctx, func() (bool, error) { return cmdline(n.PID) != "", nil }) // too late counts as dead
}

// signal signals the whole process group.
func (n Node) signal(sig syscall.Signal) error {
	if !n.Alive() {
		return nil
	}
	if err := syscall.Kill(-n.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", n.PID, err)
	}
	return nil
}

func (n Node) gone(ctx context.Context) error {
	return until(ctx, func() (bool, error) {
		if n.Alive() {
			return false, fmt.Errorf("process %d still runs", n.PID)
		}
		return true, nil
	})
}

// logged reports whether the process has logged mark since its last start. It stops reading at the first match,
// because logs grow large.
func (n Node) logged(mark string) (bool, error) {
	f, err := os.Open(n.Log)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.Seek(n.LogFrom, io.SeekStart); err != nil {
		return false, err
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), []byte(mark)) {
			return true, nil
		}
	}
	return false, lines.Err()
}

// logTail returns the end of the output since the last start, for an error.
func (n Node) logTail() string {
	f, err := os.Open(n.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	b := make([]byte, min(end-n.LogFrom, 16<<10))
	if _, err := f.ReadAt(b, end-int64(len(b))); err != nil {
		return err.Error()
	}
	return "end of " + n.Log + ":\n" + tail(b)
}

// tail returns the last 15 lines of b.
func tail(b []byte) string {
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// until calls try every 50 ms until it is done or the context ends. The error then has the cause and try's last
// error.
func until(ctx context.Context, try func() (done bool, err error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := try()
		if done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// lock takes an exclusive file lock. The kernel releases it when this process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = until(ctx, func() (bool, error) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		return !errors.Is(err, syscall.EWOULDBLOCK), err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// State is the content of engines.json. An engine has an address from its start to its stop, even while a killed
// process is down. All addresses are on 127.0.0.1.
type State struct {
	Redis        string            `json:"redis,omitempty"`         // host:port
	RedisCluster []string          `json:"redis_cluster,omitempty"` // host:port of every master
	Kafka        string            `json:"kafka,omitempty"`         // host:port of the broker
	HBase        string            `json:"hbase,omitempty"`         // host:port of the ZooKeeper quorum
	Processes    map[string][]Node `json:"processes"`               // by engine name
}

// ReadState reads engines.json in dir. A missing file is an empty State.
func ReadState(dir string) (State, error) {
	s := State{Processes: map[string][]Node{}}
	b, err := os.ReadFile(filepath.Join(dir, "engines.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	return s, nil
}

// updateState changes engines.json. The lock serializes concurrent starts. The rename protects readers from a
// partial file.
func updateState(ctx context.Context, dir string, change func(*State)) error {
	unlock, err := lock(ctx, filepath.Join(dir, "lock", "engines.json"))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := ReadState(dir)
	if err != nil {
		return err
	}
	change(&s)
	s.address()
	return s.write(filepath.Join(dir, "engines.json"))
}

// address derives the address fields from the processes.
func (s *State) address() {
	one := func(name string) (addr string) {
		if a := addrs(s.Processes[name]); len(a) == 1 {
			return a[0]
		}
		return ""
	}
	s.Redis, s.Kafka, s.HBase = one("redis"), one("kafka"), one("hbase")
	s.RedisCluster = addrs(s.Processes["redis_cluster"])
}

func addrs(nodes []Node) []string {
	var out []string
	for _, n := range nodes {
		if n.PID != 0 {
			out = append(out, n.Addr())
		}
	}
	return out
}

func (s *State) write(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	return nil
}
