package run

import (
	"fmt"
	"math"
	"syscall"
)

// MinFiles is how many file descriptors a process needs.
const MinFiles = 128

// Files returns how many file descriptors the process may have open. Go has raised the soft limit to the hard one
// before main. It fails where that is too few to keep some for the store and the engines.
func Files() (int, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of file descriptors: %w", err)
	}
	if r.Cur < MinFiles {
		return 0, fmt.Errorf("%d file descriptors are allowed; want %d at least: raise the limit with ulimit -n", r.Cur, MinFiles)
	}
	return int(min(r.Cur, math.MaxInt32)), nil
}
