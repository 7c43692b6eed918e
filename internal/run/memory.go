package run

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// collectorFloor is allocated but untouched memory, which raises the collector's trigger. With few players the
// tiny heap would be collected ten times a second.
const collectorFloor = 32 << 20

// Memory returns the process's memory limit in bytes: that of its control groups or GOMEMLIMIT, whichever is
// less. 0 means no limit.
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

// limitMemory sets the collector's soft limit to four fifths of the container's memory, unless GOMEMLIMIT is
// set. The rest is for memory outside of Go: blocks of the embedded store and dirty file pages.
func limitMemory(getenv func(string) string, files fs.FS) {
	if most := containerMemory(files); most > 0 && getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(most - most/5)
	}
}

// containerMemory returns the lowest limit of the control group and its parents, of both versions, or 0 without one.
func containerMemory(files fs.FS) (most int64) {
	groups, _ := fs.ReadFile(files, "proc/self/cgroup") // exists on Linux only
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

// noLimit is below the value of an unlimited version 1 group: the largest number of whole pages.
const noLimit = 1 << 60
