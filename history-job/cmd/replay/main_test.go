package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const rows = "user_id,video_id,time_ms,play_time_ms,duration_ms\n7,100,1650812741436,16000,49866\n8,100,1650812741437,1,0\n"

// file writes a trace and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func none(string) string { return "" }

// serve runs a service on loopback and returns its address.
func serve(t *testing.T, service historyv1.HistoryServiceServer) string {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, service)
	go func() { _ = srv.Serve(lis) }() // ends with Stop
	t.Cleanup(srv.Stop)
	return lis.Addr().String()
}

func service(t *testing.T) *rpc.Server {
	t.Helper()
	db, err := pebble.Open(t.TempDir(), pebble.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	queue := memqueue.New(memqueue.Config{})
	held, err := aggregate.New(aggregate.Config{Publisher: queue})
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.New(rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Aggregate: held, Queue: queue})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSend(t *testing.T) {
	trace, addr := file(t, rows), serve(t, service(t))
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"", []string{"5 heartbeats acknowledged in ", "\n  stored       5\n"}},
		{"--limit=4", []string{"3 heartbeats acknowledged in "}},
		{"--no-shift", []string{"5 heartbeats acknowledged in ", "\n  expired      5\n"}}, // of 2022
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
	addr := serve(t, service(t))
	for _, tt := range []struct{ name, args, want string }{
		{"no trace", "", "<trace>"},
		{"no such trace", "none.csv", "read trace: open none.csv: no such file"},
		{"a broken last line", cut, "line 4: 3 columns, want 5"},
		{"no such flag", "--sped=2 " + good, "--sped"},
		{"no number", "--speed=fast " + good, "--speed"},
		{"no address", "--patience=50ms --service= " + good, "ended after 0 of 5 heartbeats: "},
		{"nobody listens", "--patience=50ms --service=127.0.0.1:1 " + good, "ended after 0 of 5 heartbeats: "},
		{"batches beyond the limit", "--window=1001 --service=" + addr + " " + file(t, many()), "want at most 1000"},
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

// many are rows of more heartbeats than a batch may have.
func many() string {
	return strings.SplitAfter(rows, "\n")[0] + strings.Repeat("7,100,1650812741436,16000,49866\n", 400)
}

// silent takes batches and says nothing.
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

// TestSendInterrupted is Ctrl-C while the service has the first batch.
func TestSendInterrupted(t *testing.T) {
	s := silent{came: make(chan struct{}, 16)}
	addr := serve(t, s)
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
