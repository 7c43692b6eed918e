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

// procAttr makes the process the leader of its own group, so that a Ctrl-C
// meant for the caller does not reach it. A detached one gets its own session
// and stays; any other is killed by the kernel when its caller ends, even if
// the caller is killed itself.
func procAttr(detach bool) *syscall.SysProcAttr {
	if detach {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// run starts c and reaps it when it ends. The kernel ties the death signal to
// the thread that forked, so that thread is held until the process has ended.
func run(c *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			_ = c.Wait() // how it ended is for the log and for Alive
		}
	}()
	return <-started
}

// cmdline is the command line of a process, each argument followed by a zero
// byte. It is empty for a process that does not exist or was not reaped yet.
func cmdline(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(b)
}

// belongs reports whether a command line is that of an engine working in dir.
func belongs(cmdline, dir string) bool {
	return strings.Contains(cmdline, "\x00--dir\x00"+dir+"\x00") ||
		strings.Contains(cmdline, "\x00-D\x00"+dir+"\x00") ||
		strings.Contains(cmdline, "\x00-Dplayhead.dir="+dir+"\x00")
}

// owner finds a process working in dir. Two servers on the same files would
// destroy them, and engines.json may have been deleted under a running one.
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

// CPU returns the processor time that a running process has used, with that of its
// children that have ended: a Redis that rewrites its log forks for it.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read processor time: %w", err)
	}
	// The second field is the name in parentheses and may hold anything; user and
	// system time of the process and of its children are fields 14 to 17.
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
