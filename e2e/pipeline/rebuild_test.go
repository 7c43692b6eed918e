//go:build e2e

package pipeline_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history/redis"
)

// tool is the command of operators.
type tool string

func buildTool(t *testing.T) tool {
	t.Helper()
	return tool(filepath.Join(pipeline.Build(t, "playhead"), "playhead"))
}

func (p tool) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(p), append([]string{"replay"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd
}

// run runs a replay command, which must succeed, and returns its output.
func (p tool) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(t, args...)
	err := cmd.Run()
	out := cmd.Stdout.(*bytes.Buffer).String()
	if err != nil {
		t.Fatalf("replay %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	t.Logf("replay %s: %s", strings.Join(args, " "), out)
	return out
}

// rowsOf writes a file of viewings of the last hours, of users with a prefix.
func rowsOf(t *testing.T, prefix string, rows int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("user_id,video_id,time_ms,play_time_ms,duration_ms\n")
	first := time.Now().Add(-10 * time.Hour).UnixMilli()
	for i := range rows {
		fmt.Fprintf(&b, "%s%d,%d,%d,20000,30000\n", prefix, i%500, i%17, first+int64(i)*1000)
	}
	path := filepath.Join(t.TempDir(), prefix+".csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRebuild drops the table of the archive while players report, and copies Redis into a new one. The archive then has
// everything that was ever reported, deletes too.
func TestRebuild(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	s := pipeline.NewStack(t, e, 1, 1)
	p := buildTool(t)
	before, during := rowsOf(t, "a", 5000), rowsOf(t, "b", 5000)
	service := []string{"--to", "service", "--service", s.RPC[0]}
	p.run(t, append([]string{"copy", "--from", "csv:" + before}, service...)...)
	cache, err := redis.Open(t.Context(), redis.Config{Addrs: strings.Split(e.Redis, ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	clean := func() {
		t.Helper()
		pipeline.Await(t, 3*time.Minute, "everything to be archived", func(ctx context.Context) error { return pipeline.Clean(ctx, cache) })
	}
	clean()
	table := "archive:" + s.Name + "@" + e.HBase
	p.run(t, "verify", "--from", "csv:"+before, "--to", table)

	load := p.command(t, append([]string{"copy", "--from", "csv:" + during, "--rate", "250", "--patience", "3m"}, service...)...)
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	dropTable(t, e.HBase, s.Name)
	from := []string{"--from", "cache:", "--redis", e.Redis, "--to", table}
	p.run(t, append([]string{"copy"}, from...)...)
	if err := load.Wait(); err != nil {
		t.Fatalf("load: %v\n%s", err, load.Stdout)
	}
	clean()
	p.run(t, append([]string{"verify", "--repair"}, from...)...)
	for _, rows := range []string{before, during} {
		p.run(t, "verify", "--from", "csv:"+rows, "--to", table)
	}
	s.Stop(t)
}

func dropTable(t *testing.T, zooKeeper, table string) {
	t.Helper()
	admin := gohbase.NewAdminClient(zooKeeper)
	if err := admin.DisableTable(hrpc.NewDisableTable(t.Context(), []byte(table))); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteTable(hrpc.NewDeleteTable(t.Context(), []byte(table))); err != nil {
		t.Fatal(err)
	}
}
