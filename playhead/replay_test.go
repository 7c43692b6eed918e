package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/allinonetest"
	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/admin"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const rows = "user_id,video_id,time_ms,play_time_ms,duration_ms\n7,100,1650812741436,16000,49866\n8,100,1650812741437,1,0\n"

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func none(string) string { return "" }

// serveRPC runs a service on loopback and returns its address.
func serveRPC(t *testing.T, service historyv1.HistoryServiceServer) string {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, service)
	if erasure, ok := service.(historyv1.ErasureServiceServer); ok {
		historyv1.RegisterErasureServiceServer(srv, erasure)
	}
	go func() { _ = srv.Serve(lis) }() // until Stop
	t.Cleanup(srv.Stop)
	return lis.Addr().String()
}

func service(t *testing.T) *rpc.Server {
	t.Helper()
	db := servicetest.Store(t)
	return servicetest.New(t, rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Erasers: []admin.Eraser{db}})
}

// replayed runs a replay command and returns its output.
func replayed(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := replayCommand(t.Context(), args, none, &out)
	return out.String(), err
}

// TestCopy sends files to a service. What it has already and what is too old is counted as such.
func TestCopy(t *testing.T) {
	now, old, addr := file(t, recent()), file(t, rows), serveRPC(t, service(t))
	for _, tt := range []struct {
		args string
		want string
		fail string
	}{
		{now + " --dry-run", "  readable   2\n", ""},
		{old + " --dry-run", "  readable   2\n", ""}, // whether it has expired is the target's to say
		{now, "  new        2\n", ""},
		{"copy --from csv:" + now, "  equal      2\n", ""},
		{"copy --to service --beats 15s " + now, "  equal      2\n", ""},
		{now + " --uid 7", "  equal      1\n  skipped    1\n", ""},
		{now + " --type 2", "  skipped    2\n", ""},
		{now + " --until 2022-04-01", "  skipped    2\n", ""},
		{old, "  expired    2\n", "done, but 2 rows are older than the retention"}, // 2022
	} {
		out, err := replayed(t, append(strings.Fields(tt.args), "--service="+addr)...)
		if tt.fail == "" && err != nil || tt.fail != "" && (err == nil || !strings.Contains(err.Error(), tt.fail)) {
			t.Errorf("%s: %v, want %q", tt.args, err, tt.fail)
		}
		if !strings.HasSuffix(out, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.args, out, tt.want)
		}
	}
}

// TestCopyRejects keeps rows that cannot be read, and goes on behind them.
func TestCopyRejects(t *testing.T) {
	path, rejects, report := file(t, recent()+"9,100,165\n10,100,4102444800000,1000,0\n"), filepath.Join(t.TempDir(), "rejects.csv"), filepath.Join(t.TempDir(), "report.json")
	_, err := replayed(t, "--to=none", "--rejects="+rejects, "--report="+report, path)
	if code := exitCode(err); code != 3 {
		t.Errorf("exit code %d of %v, want 3", code, err)
	}
	if first := "done, but 2 rows were rejected; the first is " + path + ":4: 3 columns, want 5"; !strings.Contains(err.Error(), first) {
		t.Errorf("%v, want %q", err, first)
	}
	want := "file,line,column,reason\n" + path + ",4,,\"3 columns, want 5\"\n" + path + ",5,,time: 2100-01-01T00:00:01Z is in the future\n"
	if got, err := os.ReadFile(rejects); err != nil || string(got) != want {
		t.Errorf("rejects: %q, %v, want %q", got, err, want)
	}
	got, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(got), `"rows": 4`) || !strings.Contains(string(got), `"rejected": 2`) || !strings.Contains(string(got), `"finished": true`) {
		t.Errorf("report: %s, %v", got, err)
	}
	if _, err = replayed(t, "--to=none", "--max-rejects=1", path); exitCode(err) != 4 {
		t.Errorf("exit code %d of %v, want 4", exitCode(err), err)
	}
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*run.ExitError](err); ok {
		return e.Code
	}
	return 1
}

func TestCopyFails(t *testing.T) {
	good := file(t, recent())
	for _, tt := range []struct{ name, args, want string }{
		{"no file", "", "--from: want a file"},
		{"no such file", "none.csv", "stat none.csv: no such file"},
		{"no such source", "--from=xls:a", "--from: want csv:FILE"},
		{"no time of a topic", "--from=kafka:history.flush", "want kafka:TOPIC@TIME"},
		{"times of a topic in reverse", "--from=kafka:history.flush@2026-02-01..2026-01-01", "want kafka:TOPIC@TIME"},
		{"no letters", "--from=dead:none", "--from: no store in none"},
		{"no such target", "--to=nowhere " + good, "--to: want service"},
		{"no such flag", "--sped=2 " + good, "--sped"},
		{"no period", "--beats=often " + good, "--beats: want none"},
		{"no time", "--since=yesterday " + good, "--since: want a day"},
		{"no share", "--sample=2 " + good, "--sample: want a share"},
		{"no address", "--service= " + good, `--service: want host:port, got ""`},
		{"nobody listens", "--patience=50ms --service=127.0.0.1:1 " + good, "ended after 0 rows: "},
		{"standard input again", "--to=none --checkpoint=c -", "standard input cannot be read again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := replayed(t, strings.Fields(tt.args)...); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("replay %s: %v, want %q in one line", tt.args, err, tt.want)
			}
		})
	}
}

// silent reads batches and never answers.
type silent struct {
	historyv1.UnimplementedHistoryServiceServer
	came chan struct{}
}

func (s silent) ApplyStream(stream grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		s.came <- struct{}{}
		<-stream.Context().Done()
	}
}

// TestCopyInterrupted cancels during the first batch, like Ctrl-C.
func TestCopyInterrupted(t *testing.T) {
	s := silent{came: make(chan struct{}, 16)}
	addr := serveRPC(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-s.came
		cancel()
	}()
	var out strings.Builder
	err := replayCommand(ctx, []string{"--service=" + addr, "--patience=1h", file(t, recent())}, none, &out)
	if err == nil || !strings.Contains(err.Error(), "ended after 0 rows: context canceled") {
		t.Errorf("interrupted: %v", err)
	}
	if !strings.HasPrefix(out.String(), "0 rows in ") {
		t.Errorf("got %q, want what was done", &out)
	}
}

// edge runs the all-in-one and returns its address and its secret's file.
func edge(t *testing.T) (url, secret string) {
	t.Helper()
	secret = filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "http://" + started(t, t.TempDir(), func(c *allinone.Config) { c.SecretFile = secret }).HTTP(), secret
}

// started runs the all-in-one on a directory until the test ends.
func started(t *testing.T, dir string, change ...func(*allinone.Config)) *allinone.Process {
	t.Helper()
	cfg := allinone.Config{Dir: dir}
	for _, f := range change {
		f(&cfg)
	}
	return allinonetest.Start(t, cfg)
}

func TestThroughAnEdge(t *testing.T) {
	url, secret := edge(t)
	moved := file(t, recent())
	for _, want := range []string{"  new        2\n", "  equal      2\n"} { // the second run adds nothing
		out, err := replayed(t, "--to=edge:"+url, "--token-secret-file="+secret, moved)
		if err != nil || !strings.HasSuffix(out, want) {
			t.Errorf("got %q, %v, want %q", out, err, want)
		}
	}
	for args, want := range map[string]string{
		"--to=edge:" + url: "--to edge:URL needs --token-secret-file",
		"--to=edge:" + url + "/nowhere --token-secret-file=" + secret:                                     "refused for good",
		"--to=edge:" + url + " --patience=1h --token-secret-file=" + file(t, strings.Repeat("wrong", 10)): "refuses the tokens, is the secret its own, and the audience?",
		"--to=edge:" + url + " --token-secret-file=" + file(t, "short"):                                   "--token-secret-file: token secret: line 1 has 5 bytes; want at least 32",
		"--to=edge:127.0.0.1:1 --patience=1h --token-secret-file=" + secret:                               "want one such as https://",
		"--to=edge:http://127.0.0.1:1 --patience=300ms --token-secret-file=" + secret:                     "is it there",
	} {
		if _, err := replayed(t, append(strings.Fields(args), moved)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// recent returns rows of an hour ago.
func recent() string {
	return strings.ReplaceAll(rows, "16508127414", strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli()/100, 10))
}

// TestDead redrives letters; one does not decode. That letter stays in the topic, and the letters behind it get
// through, in this run and the next.
func TestDead(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	server := miniredis.RunT(t)
	letters, err := kafka.OpenDead(t.Context(), kafka.Config{Brokers: cluster.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer letters.Close()
	e := history.Event{
		Key:  history.Key{UID: "u", Object: history.Object{ID: "o", Type: 1}},
		Kind: history.KindProgress, At: time.Now().UnixMilli(), Position: 7, Duration: 100, Session: "s",
	}
	refused := history.Dead{Key: e.Key, Record: e.Record(), Origin: "archive", Reason: "too large", At: 1}
	if err := letters.Add(t.Context(), []history.Dead{{Payload: []byte{0xff}, Origin: "partition 0 offset 0", Reason: "corrupt", At: 1}, refused}); err != nil {
		t.Fatal(err)
	}
	if out, err := replayed(t, "copy", "--from=dead:", "--to=none", "--kafka="+cluster.ListenAddrs()[0]); exitCode(err) != exitIncomplete || !strings.Contains(out, "  readable   1\n") || !strings.Contains(out, "  rejected   1\n") {
		t.Errorf("copied letters: %q, %v, want one readable, one rejected", out, err)
	}
	for _, want := range []string{"1 letters driven again, 1 kept", "0 letters driven again, 1 kept"} {
		var out strings.Builder
		err := dead(t.Context(), []string{"--redis", server.Addr(), "--kafka", cluster.ListenAddrs()[0]}, none, &out)
		if err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("replay dead: %v, said %q, want %q", err, out.String(), want)
		}
	}
	cache, err := redis.Open(t.Context(), redis.Config{Addrs: []string{server.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if got := cache.Load(t.Context(), []history.Key{e.Key})[0]; got.Record == nil || got.Record.Position != e.Position {
		t.Errorf("the cache has %+v, want the record of the letter", got)
	}
}
