package run

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// collectorFloor is memory that is never touched and so is none, but counts for the
// collector, which waits until as much again is allocated. Between few players the heap
// is so small that it would otherwise collect ten times a second.
const collectorFloor = 32 << 20

// Memory returns how many bytes the process may take: the limit of its control groups, or GOMEMLIMIT where that is less. 0
// means as much as there is.
func Memory() int64 { return memory(os.Getenv, os.DirFS("/")) }

func memory(getenv func(string) string, files fs.FS) int64 {
	most := containerMemory(files)
	if getenv("GOMEMLIMIT") == "" {
		return most
	}
	if own := debug.SetMemoryLimit(-1); most == 0 || own < most {
		return own
	}
	return most
}

// limitMemory has the collector run more often as the process comes near to what its container may take, because beyond
// that it would be killed, with all that it holds. GOMEMLIMIT counts more, where it is set. A fifth is left for what is not
// Go's: the blocks of the embedded store, and pages of files that are written.
func limitMemory(getenv func(string) string, files fs.FS) {
	if most := containerMemory(files); most > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(most - most/5)
	}
}

// containerMemory returns how much the process may take, 0 for as much as there is: the least that its control group, or one
// around that, says. Groups of both versions count.
func containerMemory(files fs.FS) (most int64) {
	groups, _ := fs.ReadFile(files, "proc/self/cgroup") // there is none elsewhere than on Linux
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, _ := strings.Cut(rest, ":")
		root, name := "sys/fs/cgroup", "memory.max"
		switch controllers {
		case "":
		case "memory":
			root, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Join(root, group); len(dir) >= len(root); dir = path.Dir(dir) {
			text, _ := fs.ReadFile(files, path.Join(dir, name))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < noLimit && (most == 0 || n < most) {
				most = n
			}
		}
	}
	return most
}

// noLimit is below what a group of version 1 without a limit says: the largest number of whole pages.
const noLimit = 1 << 60
