package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/playhead/backfill"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// asCommand is the environment variable that makes the test binary the command.
const asCommand = "TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process is the command as a process of its own.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer // both outputs, after it ended
	done chan struct{}
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), self, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asCommand+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the test looks at ProcessState
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// viewings are generated rows, and what a plain merge of them expects.
type viewings struct {
	csv            string
	rows, rejected int64
	want           map[string]map[string]*merged // by user and object
}

// merged is the expected state of a record.
type merged struct{ end, position, duration, plays int64 }

// generated makes rows of users who watch one thing after the other, some of them again. Some rows are there twice, and
// some cannot be read.
func generated(rows int, random *rand.Rand) *viewings {
	v := &viewings{want: make(map[string]map[string]*merged)}
	var csv strings.Builder
	csv.WriteString(strings.SplitAfter(rowsHeader, "\n")[0])
	const users = 100
	first := time.Now().Add(-60 * 24 * time.Hour).UnixMilli()
	for i := range rows {
		user, object := fmt.Sprintf("user-%d", i%users), fmt.Sprintf("film-%d", random.IntN(60))
		start := first + int64(i/users)*600_000
		duration := int64(60_000 + 1000*random.IntN(240))
		played := 20_000 + int64(random.IntN(int(duration-20_000)))
		row := fmt.Sprintf("%s,%s,%d,%d,%d\n", user, object, start, played, duration)
		v.rows++
		switch random.IntN(50) {
		case 0: // a field is missing
			v.rejected++
			csv.WriteString(strings.Replace(row, ",", "", 1))
			continue
		case 1: // twice
			v.rows++
			csv.WriteString(row)
		}
		csv.WriteString(row)
		v.expect(user, object, merged{end: start + played, position: played, duration: duration})
	}
	v.csv = csv.String()
	return v
}

const rowsHeader = "user_id,video_id,time_ms,play_time_ms,duration_ms\n"

// expect adds a viewing: the latest one decides, and each that reaches 90 % is a play.
func (v *viewings) expect(user, object string, m merged) {
	if v.want[user] == nil {
		v.want[user] = make(map[string]*merged)
	}
	old := v.want[user][object]
	if old == nil {
		old = &merged{}
		v.want[user][object] = old
	}
	if m.position*10 >= m.duration*9 {
		m.plays = 1
	}
	m.plays += old.plays
	*old = m // rows of a user are in order of time
}

// check compares the history with the expectation, through the API.
func (v *viewings) check(t *testing.T, addr string) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service, wrong := historyv1.NewHistoryServiceClient(conn), 0
	for user, objects := range v.want {
		seen := 0
		for cursor, more := "", true; more; {
			page, err := service.List(t.Context(), &historyv1.ListRequest{Uid: user, Limit: 100, Cursor: cursor}, grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range page.GetItems() {
				seen++
				got, want := merged{it.GetEventTimeMs(), it.GetPositionMs(), it.GetDurationMs(), int64(it.GetPlays())}, objects[it.GetObject().GetId()] //nolint:gosec // few
				if wrong < 5 && (want == nil || got != *want) {
					wrong++
					t.Errorf("%s of %s: got %+v, want %+v", it.GetObject().GetId(), user, got, want)
				}
			}
			cursor, more = page.GetCursor(), page.GetHasMore()
		}
		if seen != len(objects) {
			t.Errorf("%s has %d records, want %d", user, seen, len(objects))
		}
	}
}

// TestCopyKilled kills the tool and the server again and again while they copy. In the end the history is what a plain
// merge of the rows makes, and the report counts every row once.
func TestCopyKilled(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	v := generated(12_000, random)
	dir := t.TempDir()
	path, checkpoint, report, rejects := filepath.Join(dir, "rows.csv"), filepath.Join(dir, "checkpoint"), filepath.Join(dir, "report.json"), filepath.Join(dir, "rejects.csv")
	if err := os.WriteFile(path, []byte(v.csv), 0o600); err != nil {
		t.Fatal(err)
	}
	rpc := freePort(t)
	serve := func() *process {
		return startProcess(t, "serve", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--rpc", rpc, "--admin", "127.0.0.1:0", "--log-level", "error")
	}
	tool := func() *process {
		return startProcess(t, "replay", "copy", "--from", "csv:"+path, "--to", "service", "--service", rpc, "--parallel", "4", "--rate", "10000",
			"--checkpoint", checkpoint, "--report", report, "--rejects", rejects)
	}
	server, copying := serve(), tool()
	kills := 0
	for mark := ""; ; {
		next, ended := awaitMark(t, checkpoint, mark, copying.done)
		if ended {
			break
		}
		if mark = next; random.IntN(2) == 0 {
			server.kill()
			server = serve()
		} else {
			copying.kill()
			copying = tool()
		}
		kills++
	}
	if code := copying.cmd.ProcessState.ExitCode(); code != exitIncomplete { // rejected rows
		t.Fatalf("the copy ended with %d: %s", code, &copying.out)
	}
	v.check(t, rpc)
	v.checkReport(t, report, rejects)
	t.Logf("%d kills: %s", kills, &copying.out)
}

// awaitMark waits for another mark in the checkpoint. It reports the end of the copy.
func awaitMark(t *testing.T, checkpoint, mark string, done <-chan struct{}) (next string, ended bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case <-done:
			return "", true
		case <-ctx.Done():
			t.Fatal("the copy makes no progress")
		case <-tick.C:
		}
		var c struct{ Mark string }
		if b, err := os.ReadFile(checkpoint); err == nil && json.Unmarshal(b, &c) == nil && c.Mark != mark {
			return c.Mark, false
		}
	}
}

func (v *viewings) checkReport(t *testing.T, report, rejects string) {
	t.Helper()
	b, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var r backfill.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, n := range r.Outcomes {
		sum += n
	}
	if !r.Finished || r.Rows != v.rows || sum != v.rows || r.Outcomes["rejected"] != v.rejected || r.Outcomes["new"]+r.Outcomes["older"]+r.Outcomes["equal"] != v.rows-v.rejected {
		t.Errorf("report %s, want %d rows, %d rejected", b, v.rows, v.rejected)
	}
	if b, err = os.ReadFile(rejects); err != nil || int64(bytes.Count(b, []byte("\n"))) != v.rejected+1 {
		t.Errorf("%d lines of rejected rows, want %d and a header; %v", bytes.Count(b, []byte("\n")), v.rejected, err)
	}
}
