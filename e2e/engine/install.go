package engine

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// installRedis uses the system's server, or installs it. The package redis-tools contains the server's program as
// redis-check-rdb. The package redis-server would add little but a running system service.
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
	if err := aptInstall(ctx, "redis-tools"); err != nil {
		return err
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

// redisServer returns the link to start: the program is a server only under that name.
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

// aptInstall installs a package, and updates the package lists if that fails.
func aptInstall(ctx context.Context, name string) error {
	install := []string{"install", "--no-install-recommends", name}
	if aptGet(ctx, install...) == nil {
		return nil
	}
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	return aptGet(ctx, install...)
}

// aptGet runs apt-get. It needs root, or sudo without a password.
func aptGet(ctx context.Context, args ...string) error {
	if os.Geteuid() != 0 && exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
		return fmt.Errorf("apt-get needs root: run `apt-get %s` as root, or put the programs on the PATH", strings.Join(args, " "))
	}
	argv := append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"}, args...)
	return tool(ctx, 5*time.Minute, asRoot(argv...)...)
}

func asRoot(argv ...string) []string {
	if os.Geteuid() == 0 {
		return argv
	}
	return append([]string{"sudo", "-n"}, argv...)
}

// tool runs a command and quotes the end of its output if it fails.
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

// poms pins every artifact: some newer versions are in the registries without jars.
//
//go:embed pom/*.xml
var poms embed.FS

// InstallJars installs the jars of an embedded pom, such as "generators", and returns their folder.
func InstallJars(ctx context.Context, c Config, name string) (string, error) {
	c, err := c.complete()
	if err != nil {
		return "", err
	}
	return filepath.Join(c.Lib, name), installJars(ctx, c, name)
}

// installJars copies the jars of one embedded pom to the library folder. It writes the pom last, as the marker of
// the installed versions.
func installJars(ctx context.Context, c Config, name string) error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("java is not on the PATH: install a Java 17 runtime")
	}
	pom, err := poms.ReadFile("pom/" + name + ".xml")
	if err != nil {
		return err
	}
	// Maven's local repository does not support concurrent processes.
	unlock, err := lock(ctx, filepath.Join(c.Lib, "maven.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	lib := filepath.Join(c.Lib, name)
	if old, err := os.ReadFile(filepath.Join(lib, "pom.xml")); err == nil && bytes.Equal(old, pom) {
		return nil
	}
	began := time.Now()
	c.Log.Info("installing jars with maven, the first time takes minutes", "engine", name)
	if err := copyJars(ctx, lib, pom); err != nil {
		return err
	}
	c.Log.Info("installed jars", "engine", name, "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// copyJars fills a temporary folder and renames it to lib when complete.
func copyJars(ctx context.Context, lib string, pom []byte) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return errors.New("mvn is not on the PATH: install maven")
	}
	tmp := lib + ".new"
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
		return err
	}
	file := filepath.Join(tmp, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return err
	}
	err := tool(ctx, 15*time.Minute, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies",
		"-DoutputDirectory="+tmp, "-DincludeScope=runtime")
	if err != nil {
		return fmt.Errorf("fetch jars: %w", err)
	}
	return errors.Join(os.RemoveAll(lib), os.Rename(tmp, lib))
}

// javaArgv returns a Java command with a fixed heap, in megabytes. The command names the data folder, which
// identifies its process.
func javaArgv(n Node, heap int, rest ...string) []string {
	return append([]string{
		"java", "-Dplayhead.dir=" + n.Dir, fmt.Sprintf("-Xms%dm", heap), fmt.Sprintf("-Xmx%dm", heap),
		"-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
	}, rest...)
}
