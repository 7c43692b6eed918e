package run_test

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/playhead/playhead/internal/run"
)

// TestLimitMemory: the collector's limit follows the container's, unless GOMEMLIMIT is set.
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
		"of version 1":       {files: fstest.MapFS{group: file("5:cpu:/b\n4:memory:/a\n0::/\n"), of + "memory/a/memory.limit_in_bytes": file("524288000\n")}, want: 400 * mib},
		"none of version 1":  {files: fstest.MapFS{group: file("4:memory:/a\n"), of + "memory/a/memory.limit_in_bytes": file("9223372036854771712\n")}, want: math.MaxInt64},
		"within a container": {files: fstest.MapFS{group: file("4:memory:/docker/abc\n"), of + "memory/memory.limit_in_bytes": file("524288000\n")}, want: 400 * mib},
		"told otherwise":     {files: fstest.MapFS{group: file("0::/\n"), of + "memory.max": file("524288000\n")}, env: "1GiB", want: math.MaxInt64},
	} {
		debug.SetMemoryLimit(math.MaxInt64)
		run.LimitMemory(func(string) string { return c.env }, c.files)
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestMemory: the lower of both limits wins.
func TestMemory(t *testing.T) {
	own := debug.SetMemoryLimit(300 << 20) // like GOMEMLIMIT
	defer debug.SetMemoryLimit(own)
	files := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": {Data: []byte("524288000\n")}}
	for name, c := range map[string]struct {
		env   string
		files fstest.MapFS
		want  int64
	}{
		"no limit":      {"", nil, 0},
		"container":     {"", files, 500 << 20},
		"GOMEMLIMIT":    {"300MiB", nil, 300 << 20},
		"lesser of two": {"300MiB", files, 300 << 20},
	} {
		if got := run.MemoryOf(func(string) string { return c.env }, c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
