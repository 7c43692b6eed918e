package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/internal/run"
)

// restartPause is the supervisor's delay before a restart.
const restartPause = 200 * time.Millisecond

// unit is one process of the product under a supervisor, which restarts it like systemd unless it is set down.
type unit struct {
	name, admin string
	argv        []string
	log         *slog.Logger

	mu     sync.Mutex
	p      *process.Process
	killed bool // deliberate: no surprise
	down   bool
	wake   chan struct{} // capacity 1: no longer down
	ready  bool
	ends   []string // surprising ones
}

func (u *unit) watch(ctx context.Context) {
	for ctx.Err() == nil {
		p := u.launch()
		if p != nil {
			u.await(ctx, p)
		}
		select {
		case <-u.wake:
		case <-time.After(restartPause):
		case <-ctx.Done():
		}
	}
}

func (u *unit) launch() *process.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		return nil
	}
	p, err := process.Start(u.argv[0], u.argv[1:]...)
	if err != nil {
		u.ends = append(u.ends, err.Error())
		return nil
	}
	u.p, u.killed, u.ready = p, false, false
	return p
}

// await returns when the process has ended, and kills it when ctx is done.
func (u *unit) await(ctx context.Context, p *process.Process) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch log := p.Log(); {
	case strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:"):
		u.ends = append(u.ends, u.name+" panicked: "+log)
	case !u.killed && u.ready:
		u.ends = append(u.ends, u.name+" ended by itself: "+lastLine(log))
	case !u.killed:
		u.log.Debug("does not start yet", "process", u.name, "says", lastLine(log))
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// kill ends the process with SIGKILL; the supervisor restarts it.
func (u *unit) kill() {
	if p := u.signal(syscall.SIGKILL); p != nil {
		<-p.Done()
	}
}

func (u *unit) logTail() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return ""
	}
	return u.p.Log()
}

func (u *unit) alive() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return false
	}
	select {
	case <-u.p.Done():
		return false
	default:
		return true
	}
}

func (u *unit) signal(sig syscall.Signal) *process.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return nil
	}
	u.killed = u.killed || sig == syscall.SIGKILL || sig == syscall.SIGTERM
	u.p.Signal(sig)
	return u.p
}

// crash ends the process with SIGKILL until up.
func (u *unit) crash() {
	u.setDown(true)
	if p := u.signal(syscall.SIGKILL); p != nil {
		<-p.Done()
	}
}

// setDown sets whether the process stays down once it has ended.
func (u *unit) setDown(down bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down = down
}

// up lets the supervisor restart a crashed process.
func (u *unit) up() {
	u.setDown(false)
	run.Wake(u.wake)
}

// crash ends processes until up.
func crash(units []*unit) {
	for _, u := range units {
		u.crash()
	}
}

// up lets the supervisors restart crashed processes.
func up(units []*unit) {
	for _, u := range units {
		u.up()
	}
}

func (u *unit) awaitReady(ctx context.Context, limit time.Duration) error {
	return process.Await(ctx, limit, u.name+" to be ready", func(ctx context.Context) error {
		u.mu.Lock()
		p := u.p
		u.mu.Unlock()
		if p == nil {
			return fmt.Errorf("not started")
		}
		select {
		case <-p.Done():
			return fmt.Errorf("ended: %s", lastLine(p.Log()))
		default:
		}
		if err := p.Ready(ctx, u.admin); err != nil {
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.ready = u.p == p
		return nil
	})
}

func (u *unit) readyNow(ctx context.Context) error {
	u.mu.Lock()
	p := u.p
	u.mu.Unlock()
	if p == nil {
		return errors.New("not started")
	}
	return p.Ready(ctx, u.admin)
}

func (u *unit) surprises() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ends
}

func newUnit(log *slog.Logger, name, admin string, argv ...string) *unit {
	argv[0] = filepath.Clean(argv[0])
	return &unit{name: name, admin: admin, argv: argv, log: log, wake: make(chan struct{}, 1)}
}

// metric returns a metric of the current process, summed over its labels.
func (u *unit) metric(ctx context.Context, name string) (float64, error) {
	v, err := process.Metric(ctx, u.admin, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.name, err)
	}
	return v, nil
}

func total(ctx context.Context, units []*unit, name string) (sum float64, err error) {
	for _, u := range units {
		v, err := u.metric(ctx, name)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// atLeast fails while a metric, summed over processes, is below a minimum.
func atLeast(least float64, units []*unit, name string) step {
	return func(ctx context.Context) error {
		got, err := total(ctx, units, name)
		if err == nil && got < least {
			err = fmt.Errorf("%s is %.0f, want %.0f", name, got, least)
		}
		return err
	}
}

func (u *unit) resident() (int64, error) {
	u.mu.Lock()
	p := u.p
	u.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	return pages * int64(os.Getpagesize()), nil
}
