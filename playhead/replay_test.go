package main

import (
	"context"
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
	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
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
	return servicetest.New(t, rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Erasers: []history.Eraser{db}})
}

func TestSend(t *testing.T) {
	trace, addr := file(t, rows), serveRPC(t, service(t))
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"--shift", []string{"5 heartbeats acknowledged in ", "\n  stored       5\n"}},
		{"--limit=4", []string{"3 heartbeats acknowledged in "}},
		{"", []string{"5 heartbeats acknowledged in ", "\n  expired      5\n"}}, // too old: 2022
		{"--limit=1", []string{"0 heartbeats acknowledged in "}},
	} {
		var out strings.Builder
		if err := send(t.Context(), append(strings.Fields(tt.args), "--service="+addr, trace), none, &out); err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: got %q, want %q", tt.args, &out, want)
			}
		}
	}
}

func TestSendFails(t *testing.T) {
	good, cut := file(t, rows), file(t, rows+"9,100,165")
	addr := serveRPC(t, service(t))
	for _, tt := range []struct{ name, args, want string }{
		{"no trace", "", "<trace>"},
		{"no such trace", "none.csv", "read trace: open none.csv: no such file"},
		{"a broken last line", cut, "line 4: 3 columns, want 5"},
		{"no such flag", "--sped=2 " + good, "--sped"},
		{"no number", "--speed=fast " + good, "--speed"},
		{"no address", "--service= " + good, `--service: want host:port, got ""`},
		{"no port", "--service=localhost " + good, `--service: want host:port, got "localhost"`},
		{"nobody listens", "--patience=50ms --service=127.0.0.1:1 " + good, "ended after 0 of 5 heartbeats: "},
		{"batches beyond the limit", "--batch=1001 --service=" + addr + " " + good, "--batch: want 1 to 1000, got 1001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			err := send(t.Context(), strings.Fields(tt.args), none, &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("send %s: %v, want %q in one line", tt.args, err, tt.want)
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

// TestSendInterrupted cancels during the first batch, like Ctrl-C.
func TestSendInterrupted(t *testing.T) {
	s := silent{came: make(chan struct{}, 16)}
	addr := serveRPC(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	go func() {
		<-s.came
		cancel()
	}()
	var out strings.Builder
	err := send(ctx, []string{"--service=" + addr, "--patience=1h", file(t, rows)}, none, &out)
	if err == nil || !strings.Contains(err.Error(), "ended after 0 of 5 heartbeats: context canceled") {
		t.Errorf("interrupted: %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v to end", took)
	}
	if !strings.Contains(out.String(), "0 heartbeats acknowledged") {
		t.Errorf("got %q, want what was done", &out)
	}
}

// edge runs the all-in-one and returns its address and its secret's file.
func edge(t *testing.T) (url, secret string) {
	t.Helper()
	secret = filepath.Join(t.TempDir(), "secret")
	text := strings.Repeat("s", 40)
	if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "http://" + started(t, t.TempDir(), []byte(text)).HTTP(), secret
}

// started runs the all-in-one on a directory until the test ends.
func started(t *testing.T, dir string, secret []byte, change ...func(*allinone.Config)) *allinone.Process {
	t.Helper()
	cfg := allinone.Config{Dir: dir, HTTP: "127.0.0.1:0", RPC: "127.0.0.1:0", Admin: "127.0.0.1:0", Secret: secret}
	for _, f := range change {
		f(&cfg)
	}
	p, err := allinone.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestThroughAnEdge(t *testing.T) {
	url, secret := edge(t)
	trace, moved := file(t, rows), file(t, recent(rows))
	for _, stored := range []bool{true, false} { // the second run adds nothing
		var out strings.Builder
		err := send(t.Context(), []string{"--edge=" + url, "--token-secret-file=" + secret, moved}, none, &out)
		if err != nil || strings.Contains(out.String(), "stored       5") != stored || strings.Contains(out.String(), "stored") != stored {
			t.Errorf("got %q, %v, want them stored: %v", out.String(), err, stored)
		}
	}
	for args, want := range map[string]string{
		"--edge=" + url: "--edge needs --token-secret-file",
		"--edge=" + url + "/nowhere --token-secret-file=" + secret:                                     "refused for good",
		"--edge=" + url + " --patience=1h --token-secret-file=" + file(t, strings.Repeat("wrong", 10)): "refuses the tokens, is the secret its own, and the audience?",
		"--edge=" + url + " --token-secret-file=" + file(t, "short"):                                   "--token-secret-file: token secret: 5 bytes; want at least 32",
		"--edge=127.0.0.1:1 --patience=1h --token-secret-file=" + secret:                               "want one such as https://",
		"--edge=http://127.0.0.1:1 --patience=300ms --token-secret-file=" + secret:                     "is it there",
	} {
		err := send(t.Context(), append(strings.Fields(args), trace), none, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// recent moves a trace's rows to an hour ago.
func recent(rows string) string {
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
