package engine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// procAttr puts the process into its own group, which shields it from the caller's Ctrl-C. A detached process
// gets its own session and survives. The kernel kills any other when its caller ends, even if the caller is
// killed.
func procAttr(detach bool) *syscall.SysProcAttr {
	if detach {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// run starts c and reaps it. The kernel ties the death signal to the thread that forked, so run keeps that thread
// until the process ends.
func run(c *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // the log and Alive report the end
		}
	}()
	return <-started
}

// cmdline returns a process's command line, each argument followed by a zero byte. It is empty for an absent or
// unreaped process.
func cmdline(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(b)
}

// belongs reports whether a command line is an engine's in dir.
func belongs(cmdline, dir string) bool {
	return strings.Contains(cmdline, "\x00--dir\x00"+dir+"\x00") ||
		strings.Contains(cmdline, "\x00-D\x00"+dir+"\x00") ||
		strings.Contains(cmdline, "\x00-Dplayhead.dir="+dir+"\x00")
}

// owner finds a process that works in dir. Two servers on the same files would corrupt them, and engines.json may
// be deleted under a running server.
func owner(dir string) (pid int, ok bool) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if err == nil && belongs(cmdline(pid), dir) {
			return pid, true
		}
	}
	return 0, false
}

// jiffy is the unit of processor time in /proc, the same on every Linux.
const jiffy = 10 * time.Millisecond

// CPU returns the processor time of a running process and its ended children: Redis forks to rewrite its log.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	// The second field is the name in parentheses, with any content. User and system time of the process and its
	// children are fields 14 to 17.
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return 0, fmt.Errorf("read processor time: /proc/%d/stat is %q", pid, text)
	}
	var total time.Duration
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		total += time.Duration(n) * jiffy
	}
	return total, nil
}
