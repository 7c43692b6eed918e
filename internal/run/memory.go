package run

import (
	"io/fs"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// collectorFloor is memory that is never touched and so is none, but counts for the
// collector, which waits until as much again is allocated. Between few players the heap
// is so small that it would otherwise collect ten times a second.
const collectorFloor = 32 << 20

// limitMemory has the collector run more often as the process comes near to what its container may take, because beyond
// that it would be killed, with all that it holds. GOMEMLIMIT counts more, where it is set. A fifth is left for what is not
// Go's: the blocks of the embedded store, and pages of files that are written.
func limitMemory(getenv func(string) string, files fs.FS) {
	if most := containerMemory(files); most > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(most - most/5)
	}
}

// containerMemory returns how much the process may take, 0 for as much as there is: the least that its control group, or one
// around that, says.
func containerMemory(files fs.FS) (most int64) {
	groups, _ := fs.ReadFile(files, "proc/self/cgroup") // there is none elsewhere than on Linux
	for line := range strings.Lines(string(groups)) {
		group, ours := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !ours {
			continue
		}
		for dir := path.Join("sys/fs/cgroup", group); len(dir) >= len("sys/fs/cgroup"); dir = path.Dir(dir) {
			text, _ := fs.ReadFile(files, path.Join(dir, "memory.max"))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && (most == 0 || n < most) {
				most = n
			}
		}
	}
	return most
}
