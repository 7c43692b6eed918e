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
	"time"
)

// poms pins every artifact: some newer versions have a description in the
// registries but no jars.
//
//go:embed pom/*.xml
var poms embed.FS

// installJars copies the jars of one embedded pom to the library folder. The
// pom is put beside them last and tells later which versions are installed.
func installJars(ctx context.Context, c Config, name string) error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("java is not on the PATH: install a Java 17 runtime")
	}
	pom, err := poms.ReadFile("pom/" + name + ".xml")
	if err != nil {
		return err
	}
	// Maven's local repository is not safe for two of its processes at once.
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

// copyJars fills a folder beside lib and puts it in place when it is whole.
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

// javaArgv is a Java command with a fixed heap, in megabytes, that names the
// data folder so that its process can be told from others.
func javaArgv(n Node, heap int, rest ...string) []string {
	return append([]string{
		"java", "-Dplayhead.dir=" + n.Dir, fmt.Sprintf("-Xms%dm", heap), fmt.Sprintf("-Xmx%dm", heap),
		"-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
	}, rest...)
}
