//go:build e2e

package pipeline_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/redis"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// archived waits until everything that was acknowledged is in the archive.
func archived(t *testing.T, e pipeline.Engines) {
	t.Helper()
	cache, err := redis.Open(t.Context(), redis.Config{Addrs: strings.Split(e.Redis, ","), Cluster: e.Cluster})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	pipeline.Await(t, 3*time.Minute, "everything to be archived", func(ctx context.Context) error { return pipeline.Clean(ctx, cache) })
}

// tableOf names the archive of a stack for the tool.
func tableOf(s *pipeline.Stack) string { return "archive:" + s.Name + "@" + s.Engines.HBase }

// TestFirstImport brings 200,000 viewings into running services. Each counts once, and all are there.
func TestFirstImport(t *testing.T) {
	const viewings = 200_000
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	s := pipeline.NewStack(t, e, 1, 1)
	p := buildTool(t)
	path, report := filepath.Join(t.TempDir(), "old.csv"), filepath.Join(t.TempDir(), "report.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	out, first := bufio.NewWriter(f), time.Now().AddDate(0, 0, -80).Unix()
	for i := range viewings {
		fmt.Fprintf(out, "u%d;film %d;%d;1200\n", i%5000, i/5000, first+int64(i)*30)
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	columns := "user=1,object=2,time=3:s,played=4:s"
	p.run(t, "copy", path, "--map", columns, "--service", s.RPC[0], "--checkpoint", path+".state", "--report", report)
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows     int            `json:"rows"`
		Outcomes map[string]int `json:"outcomes"`
	}
	if err := json.Unmarshal(b, &got); err != nil || got.Rows != viewings || got.Outcomes["new"] != viewings {
		t.Errorf("report %s, %v, want %d new rows", b, err, viewings)
	}
	verified := p.run(t, "verify", path, "--map", columns, "--to", tableOf(s), "--cached", "--redis", e.Redis, "--kafka", e.Kafka, "--kafka-topic", s.Name)
	if want := fmt.Sprintf("  equal      %d\n", viewings); !strings.Contains(verified, want) {
		t.Errorf("verify: %s, want %q", verified, want)
	}
	s.Stop(t)
}

// TestNewTable moves the archive to another table while players report: a copy, new processes, and a copy of what the old
// ones have archived meanwhile.
func TestNewTable(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	s := pipeline.NewStack(t, e, 1, 1)
	p := buildTool(t)
	before, during := rowsOf(t, "a", 5000), rowsOf(t, "b", 2000)
	p.run(t, "copy", before, "--service", s.RPC[0])
	archived(t, e)
	rpc := pipeline.FreeAddr(t)
	load := p.command(t, "copy", during, "--rate", "500", "--patience", "3m", "--service", rpc)
	next := s.Name + "_next"
	to := "archive:" + next + "@" + e.HBase
	p.run(t, "copy", "--from", tableOf(s), "--to", to)
	s.StartService(t, rpc, "--hbase-table", next)
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	s.StartJob(t, "--hbase-table", next, "--hbase-regions", "4")
	s.Services[0].Stop(t, 20*time.Second)
	s.Jobs[0].Stop(t, 20*time.Second)
	s.Services, s.Jobs = s.Services[1:], s.Jobs[1:]
	if err := load.Wait(); err != nil {
		t.Fatalf("load: %v\n%s", err, load.Stdout)
	}
	p.run(t, "copy", "--from", tableOf(s), "--to", to, "--cached", "--redis", e.Redis, "--kafka", e.Kafka, "--kafka-topic", s.Name)
	archived(t, e)
	for _, from := range []string{tableOf(s), "csv:" + before, "csv:" + during} {
		p.run(t, "verify", "--from", from, "--to", to)
	}
	s.Stop(t)
}

// TestMove moves an all-in-one to the three engines while players report. The command is killed on its way, and started
// again; the edge takes the place of the all-in-one. Everything is in the archive, and what was deleted is not.
func TestMove(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	s := pipeline.NewStack(t, e, 0, 1)
	s.StartService(t, pipeline.FreeAddr(t), "--hold", "1s")
	p := buildTool(t)
	data, switched := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "switched")
	listen, rpc, admin := pipeline.FreeAddr(t), pipeline.FreeAddr(t), pipeline.FreeAddr(t)
	pipeline.Start(t, string(p), "serve", "--data", data, "--listen", listen, "--rpc", rpc, "--admin", admin, "--user-rate", "1000", "--user-burst", "1000").Ready(t, admin)
	before, during := rowsOf(t, "a", 5000), rowsOf(t, "b", 2000)
	p.run(t, "copy", before, "--service", rpc)
	_, err := historyv1.NewHistoryServiceClient(pipeline.Dial(t, []string{rpc})).Delete(t.Context(), &historyv1.DeleteRequest{Uid: "a3", Objects: []*historyv1.Object{{Id: "3", Type: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	load := p.command(t, "copy", during, "--to", "edge:http://"+listen, "--token-secret-file", filepath.Join(data, "token-secret"), "--rate", "100", "--patience", "3m")
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	move := func() *pipeline.Process {
		return pipeline.Start(t, string(p), "move", "--data", data, "--admin", admin, "--service", s.RPC[0], "--edge", "touch "+switched)
	}
	exists := func(path string) {
		t.Helper()
		pipeline.Await(t, time.Minute, path, func(context.Context) error { _, err := os.Stat(path); return err })
	}
	for _, file := range []string{filepath.Join(data+".moving", "snapshot.checkpoint"), switched} {
		killed := move()
		exists(file)
		killed.Kill()
	}
	s.StartBFFAt(t, listen, filepath.Join(data, "token-secret"))
	last := move()
	<-last.Done()
	if out := last.Log(); !strings.Contains(out, "moved: everything that "+data+" has is in "+s.RPC[0]) {
		t.Errorf("move: %s", out)
	}
	if err := load.Wait(); err != nil {
		t.Fatalf("load: %v\n%s", err, load.Stdout)
	}
	archived(t, e)
	for _, from := range []string{"archive:" + data, "csv:" + before, "csv:" + during} {
		out := p.run(t, "verify", "--from", from, "--to", tableOf(s))
		if from == "csv:"+before && !strings.Contains(out, "  deleted    ") {
			t.Errorf("verify: %s, want the deleted rows", out)
		}
	}
	s.Stop(t)
}

// TestRegions exchanges the records of two regions that were apart, until both archives are equal. A delete in one
// removes the object in both.
func TestRegions(t *testing.T) {
	var stacks [2]*pipeline.Stack
	p := buildTool(t)
	for i := range stacks {
		e := pipeline.FromEnv(t, i == 1)
		if !e.Cluster { // other tests keep what is in the cluster apart by users
			pipeline.Flush(t, e)
		}
		stacks[i] = pipeline.NewStack(t, e, 1, 1)
		p.run(t, "copy", rowsOf(t, "region", 1500), rowsOf(t, fmt.Sprint("only", i), 500), "--service", stacks[i].RPC[0])
	}
	_, err := historyv1.NewHistoryServiceClient(pipeline.Dial(t, stacks[1].RPC)).Delete(t.Context(), &historyv1.DeleteRequest{Uid: "region3", Objects: []*historyv1.Object{{Id: "3", Type: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range stacks {
		archived(t, stacks[i].Engines)
	}
	for i := range stacks {
		p.run(t, "copy", "--from", tableOf(stacks[i]), "--service", stacks[1-i].RPC[0])
	}
	for i := range stacks {
		archived(t, stacks[i].Engines)
	}
	for i := range stacks {
		out := p.run(t, "verify", "--from", tableOf(stacks[i]), "--to", tableOf(stacks[1-i]))
		if !strings.Contains(out, "  equal  ") {
			t.Errorf("region %d: %s, want all equal", i, out)
		}
		page, err := historyv1.NewHistoryServiceClient(pipeline.Dial(t, stacks[i].RPC)).List(t.Context(), &historyv1.ListRequest{Uid: "region3", Limit: 100})
		if err != nil || len(page.GetItems()) == 0 {
			t.Errorf("region %d: %v, %v, want records", i, page, err)
		}
		for _, it := range page.GetItems() {
			if it.GetObject().GetId() == "3" {
				t.Errorf("region %d: a deleted object is there", i)
			}
		}
	}
	for _, s := range stacks {
		s.Stop(t)
	}
}

// TestMovedType copies an archive into one under rules that move a type into a class.
func TestMovedType(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	p := buildTool(t)
	name := fmt.Sprint("moved_type_", time.Now().UnixNano())
	path, now := filepath.Join(t.TempDir(), "rows.csv"), time.Now().Unix()
	var rows strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&rows, "u%d;%d;%d;60;%d\n", i%100, i/100, now-int64(i+1)*100, []int{1, 7}[i%2])
	}
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	columns, old, next := "user=1,object=2,time=3:s,played=4:s,type=5", "archive:"+name+"@"+e.HBase, "archive:"+name+"_next@"+e.HBase
	rules := "previews: types=7,8 keep=14d list=200"
	p.run(t, "copy", path, "--map", columns, "--to", old)
	book, err := history.ParseRules("", []string{rules})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: e.HBase, Table: name, Existing: true, Rules: book}); !errors.Is(err, history.ErrRetention) || !strings.Contains(err.Error(), "playhead replay copy --from "+old+" ") {
		t.Errorf("a process with the rules: got %v, want it refused with the command", err)
	}
	p.run(t, "copy", "--from", old, "--to", next, "--rules", rules)
	for _, from := range [][]string{{path, "--map", columns}, {"--from", old}} {
		if out := p.run(t, append(append([]string{"verify"}, from...), "--to", next, "--rules", rules)...); !strings.Contains(out, "  equal      2000\n") {
			t.Errorf("verify %v: %s, want all 2000 rows", from, out)
		}
	}
	a, err := hbase.Open(t.Context(), hbase.Config{ZooKeeper: e.HBase, Table: name + "_next", Existing: true, Rules: book})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for uid, typ := range map[string]uint32{"u4": 1, "u5": 7} { // even rows have type 1
		for _, namespace := range book.Namespaces(uid) {
			page, err := a.Page(t.Context(), namespace, history.Query{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if namespace == book.NamespaceOf(uid, typ) {
				want = 20
			}
			if len(page.Items) != want {
				t.Errorf("%q has %d records, want %d of type %d", namespace, len(page.Items), want, typ)
			}
		}
	}
}

// TestTakeOut takes one user's data out, erases it with proof, and leaves all others.
func TestTakeOut(t *testing.T) {
	e := pipeline.FromEnv(t, false)
	pipeline.Flush(t, e)
	s := pipeline.NewStack(t, e, 1, 1)
	p := buildTool(t)
	rows, lines := rowsOf(t, "out", 2000), filepath.Join(t.TempDir(), "out7.ndjson")
	p.run(t, "copy", rows, "--service", s.RPC[0])
	archived(t, e)
	p.run(t, "copy", "--from", tableOf(s), "--uid", "out7", "--to", "ndjson:"+lines)
	if out := p.run(t, "erase", "out7", "--service", s.RPC[0]); !strings.Contains(out, "erased up to") {
		t.Errorf("erase: %s", out)
	}
	dry := p.run(t, "erase", "out7", "--service", s.RPC[0], "--dry-run")
	for line := range strings.Lines(dry) {
		if strings.HasSuffix(line, " found\n") && !strings.HasSuffix(line, " 0 found\n") {
			t.Errorf("after the erasure: %s", line)
		}
	}
	if !strings.Contains(dry, "archive: live records") {
		t.Errorf("the proof is %s, want a line for each place", dry)
	}
	out := p.run(t, "verify", "--from", "csv:"+rows, "--to", tableOf(s))
	if !strings.Contains(out, "  deleted    4\n") || !strings.Contains(out, "  equal      1996\n") {
		t.Errorf("the others: %s, want only the rows of the erased user deleted", out)
	}
	other := filepath.Join(t.TempDir(), "other")
	p.run(t, "copy", "--from", "ndjson:"+lines, "--to", "archive:"+other)
	if out := p.run(t, "verify", rows, "--uid", "out7", "--to", "archive:"+other); !strings.Contains(out, "  equal      4\n") {
		t.Errorf("what was taken out: %s, want all four viewings", out)
	}
	s.Stop(t)
}
