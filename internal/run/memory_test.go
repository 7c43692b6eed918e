package run_test

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/playhead/playhead/internal/run"
)

// TestLimitMemory has the collector know what the container may take, unless it is told otherwise.
func TestLimitMemory(t *testing.T) {
	const mib = 1 << 20
	own := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(own)
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	group, of := "proc/self/cgroup", "sys/fs/cgroup/"
	for name, c := range map[string]struct {
		files fstest.MapFS
		env   string
		want  int64
	}{
		"no control groups":  {want: math.MaxInt64},
		"of a container":     {files: fstest.MapFS{group: file("0::/\n"), of + "memory.max": file("524288000\n")}, want: 400 * mib},
		"none":               {files: fstest.MapFS{group: file("0::/a.slice\n"), of + "a.slice/memory.max": file("max\n")}, want: math.MaxInt64},
		"the least":          {files: fstest.MapFS{group: file("0::/a/b\n"), of + "a/memory.max": file("104857600\n"), of + "a/b/memory.max": file("524288000\n")}, want: 80 * mib},
		"of another version": {files: fstest.MapFS{group: file("4:memory:/a\n"), of + "memory.max": file("524288000\n")}, want: math.MaxInt64},
		"told otherwise":     {files: fstest.MapFS{group: file("0::/\n"), of + "memory.max": file("524288000\n")}, env: "1GiB", want: math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		run.LimitMemory(func(string) string { return c.env }, c.files)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
