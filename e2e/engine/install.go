package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// installRedis takes the server from the system or installs it. The package
// redis-tools holds the server's program under the name redis-check-rdb; the
// package redis-server would add little but a system service that starts.
func installRedis(ctx context.Context, c Config) error {
	unlock, err := lock(ctx, filepath.Join(c.Dir, "lock", "apt"))
	if err != nil {
		return err
	}
	defer unlock()
	if haveRedis() {
		return linkRedis(c)
	}
	began := time.Now()
	c.Log.Info("installing redis with apt-get")
	if err := aptGet(ctx, "install", "--no-install-recommends", "redis-tools"); err != nil {
		if err := aptGet(ctx, "update"); err != nil {
			return err
		}
		if err := aptGet(ctx, "install", "--no-install-recommends", "redis-tools"); err != nil {
			return err
		}
	}
	c.Log.Info("installed redis", "took", time.Since(began).Round(time.Millisecond))
	return linkRedis(c)
}

func haveRedis() bool {
	_, cli := exec.LookPath("redis-cli")
	_, server := redisProgram()
	return cli == nil && server == nil
}

func redisProgram() (string, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	return exec.LookPath("redis-check-rdb")
}

// redisServer is the link to start: the program is a server only if that is
// the name it is called by.
func redisServer(c Config) string { return filepath.Join(c.Lib, "redis", "redis-server") }

func linkRedis(c Config) error {
	program, err := redisProgram()
	if err != nil {
		return err
	}
	link := redisServer(c)
	if old, err := os.Readlink(link); err == nil && old == program {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(program, link)
}

// aptGet needs root, or sudo without a password.
func aptGet(ctx context.Context, args ...string) error {
	argv := append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"}, args...)
	if os.Geteuid() != 0 {
		argv = append([]string{"sudo", "-n"}, argv...)
		if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
			return errors.New("apt-get needs root: run `apt-get install redis-server` as root, or put redis-server and redis-cli on the PATH")
		}
	}
	return tool(ctx, 5*time.Minute, argv...)
}

// tool runs a command to its end and quotes the end of its output if it fails.
func tool(ctx context.Context, limit time.Duration, argv ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w\n%s", filepath.Base(argv[0]), err, tail(out))
}
