package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postgresKind returns PostgreSQL, the benchmarks' comparison. The product does not use it, so [Names] omits it.
func postgresKind() kind {
	return kind{
		name:    Postgres,
		ports:   [][]int{{40}},
		limit:   time.Minute,
		grace:   30 * time.Second,
		install: installPostgres,
		prepare: postgresPrepare,
		argv:    postgresArgv,
		ready:   postgresReady,
		user:    postgresUser,
	}
}

// postgresArgv starts a server tuned for many small writes: durable commits, ample memory, and no checkpoint
// during a run.
func postgresArgv(_ Config, n Node) []string {
	argv := []string{postgresProgram("postgres"), "-D", n.Dir, "-p", strconv.Itoa(n.Ports[0])}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=100",
		"fsync=on", "synchronous_commit=on", "full_page_writes=on",
		"shared_buffers=1GB", "max_wal_size=8GB", "min_wal_size=2GB", "wal_buffers=64MB", "checkpoint_timeout=30min",
		"wal_level=minimal", "max_wal_senders=0", "wal_compression=off", "jit=off", "autovacuum=on",
	} {
		argv = append(argv, "-c", setting)
	}
	return argv
}

// postgresPrepare initializes an empty data folder. The server trusts every caller: its port is on the loopback
// interface only.
func postgresPrepare(ctx context.Context, _ Config, n Node) error {
	if _, err := os.Stat(filepath.Join(n.Dir, "PG_VERSION")); err == nil {
		return nil
	}
	who, err := postgresUser()
	if err != nil {
		return err
	}
	if who != nil {
		if err := os.Chown(n.Dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, postgresProgram("initdb"), "-D", n.Dir, "-U", "postgres", "-A", "trust",
		"--locale=C", "--encoding=UTF8", "--no-sync")
	c.Dir, c.SysProcAttr = n.Dir, &syscall.SysProcAttr{Credential: who}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, tail(out))
	}
	return nil
}

// postgresReady relies on the log: the port opens before the server accepts connections.
func postgresReady(_ context.Context, n Node) error {
	ready, err := n.logged("ready to accept connections")
	if err == nil && !ready {
		err = errors.New("postgres is still starting")
	}
	return err
}

// postgresUser returns the server's user: it refuses to run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(errUID, errGID)
}

// postgresProgram returns a program of the newest installed version. Debian keeps versions apart and off the
// PATH.
func postgresProgram(name string) string {
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(paths) > 0 {
		return slices.MaxFunc(paths, func(a, b string) int { return cmp.Compare(postgresVersion(a), postgresVersion(b)) })
	}
	path, _ := exec.LookPath(name)
	return path
}

func postgresVersion(program string) int {
	v, _ := strconv.Atoi(strings.Split(program, "/")[4]) // 0 if unparsable
	return v
}

// installPostgres uses the system's server, or installs it. It stops the package from creating and starting a
// cluster.
func installPostgres(ctx context.Context, c Config) error {
	unlock, err := lock(ctx, filepath.Join(c.Dir, "lock", "apt"))
	if err != nil {
		return err
	}
	defer unlock()
	if postgresProgram("postgres") != "" && postgresProgram("initdb") != "" {
		return nil
	}
	c.Log.Info("installing postgresql with apt-get")
	if err := aptInstall(ctx, "postgresql-common"); err != nil {
		return err
	}
	no := []string{"sed", "-i", "-E", `s/^#?create_main_cluster.*/create_main_cluster = false/`, "/etc/postgresql-common/createcluster.conf"}
	if err := tool(ctx, time.Minute, asRoot(no...)...); err != nil {
		return err
	}
	return aptInstall(ctx, "postgresql")
}
