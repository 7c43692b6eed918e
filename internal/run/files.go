package run

import (
	"fmt"
	"math"
	"syscall"
)

// MinFiles is the least number of file descriptors of a process.
const MinFiles = 128

// Files returns the limit of file descriptors; Go raises the soft limit to the hard one before main. It fails
// below [MinFiles].
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
