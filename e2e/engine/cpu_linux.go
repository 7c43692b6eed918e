package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

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
