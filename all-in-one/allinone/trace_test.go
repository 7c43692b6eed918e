package allinone_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/playhead/playhead/all-in-one/allinone"
	"github.com/playhead/playhead/all-in-one/servicetest"
	"github.com/playhead/playhead/bff/edge"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/obs/obstest"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const applyStream = "history.v1.HistoryService/ApplyStream"

// tracing sends all traces of a service to the collector.
func tracing(t *testing.T, c *obstest.Collector, service string) *trace.Tracer {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	traces, err := obs.Traces{OTLPEndpoint: c.URL, TraceSample: 1}.Open(t.Context(), service, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(traces.Close)
	return traces.Tracer
}

// acknowledged waits for the spans of a report from a door to the cache, in another trace than those known. It returns
// the service's span.
func acknowledged(t *testing.T, c *obstest.Collector, door string, known ...obstest.Span) obstest.Span {
	t.Helper()
	root := c.Await(t, door, func(s obstest.Span) bool {
		return !slices.ContainsFunc(known, func(k obstest.Span) bool { return k.Trace() == s.Trace() })
	})
	call := c.Await(t, applyStream, func(s obstest.Span) bool { return s.Under(root) })
	served := c.Await(t, applyStream, func(s obstest.Span) bool { return s.Under(call) })
	c.Await(t, "write pebble", func(s obstest.Span) bool { return s.Under(served) })
	return served
}

// private fails if a span has the user or an object.
func private(t *testing.T, c *obstest.Collector) {
	t.Helper()
	for _, s := range c.Spans() {
		if text := s.String(); strings.Contains(text, "demo") || strings.Contains(text, "film") {
			t.Errorf("span %s names a user or object: %s", s.Name, text)
		}
	}
}

// stopped is the last report of a viewing, which announces its key at once.
func stopped(id string) string { return strings.Replace(heartbeat(id, 61000), "pause", "stop", 1) }

// TestTrace follows a report through the all-in-one, from each door to the archive.
func TestTrace(t *testing.T) {
	collector := obstest.NewCollector(t)
	tracer := tracing(t, collector, "playhead")
	h := openWith(t, func(cfg *allinone.Config) { cfg.Dir, cfg.Tracer = t.TempDir(), tracer })

	h.send(t.Context(), "POST /v1/heartbeats", `{"heartbeats":[`+stopped("film")+`]}`)
	served := acknowledged(t, collector, "POST /v1/heartbeats")
	processed := collector.Await(t, "archive", func(s obstest.Span) bool { return s.LinksTo(served) })
	collector.Await(t, "promote pebble", func(s obstest.Span) bool { return s.Under(processed) })

	conn := h.dialQuery(t.Context(), "")
	text := fmt.Sprintf(`{"seq":1,"heartbeats":[%s]}`, stopped("film2"))
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	served = acknowledged(t, collector, "message /v1/stream")
	collector.Await(t, "archive", func(s obstest.Span) bool { return s.LinksTo(served) })

	h.send(t.Context(), "GET /v1/history", "")
	root := collector.Await(t, "GET /v1/history", nil)
	list := func(parent obstest.Span) obstest.Span {
		return collector.Await(t, "history.v1.HistoryService/List", func(s obstest.Span) bool { return s.Under(parent) })
	}
	served = list(list(root))
	collector.Await(t, "list pebble", func(s obstest.Span) bool { return s.Under(served) })
	private(t, collector)
}

// TestTraceOfACaller: the gRPC door goes on with a caller's trace, and with its decision not to sample.
func TestTraceOfACaller(t *testing.T) {
	collector := obstest.NewCollector(t)
	tracer := tracing(t, collector, "playhead")
	h := openWith(t, func(cfg *allinone.Config) { cfg.Dir, cfg.Tracer = t.TempDir(), tracer })
	conn, err := grpc.NewClient(h.RPC(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const sampled, unsampled = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737"
	for _, parent := range []string{"00-" + unsampled + "-00f067aa0ba902b7-00", "00-" + sampled + "-00f067aa0ba902b7-01"} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), trace.Header, parent)
		beat := &historyv1.Heartbeat{Uid: "demo", ObjectId: "film", ObjectType: 1, Kind: historyv1.Kind_KIND_STOP, EventTimeMs: time.Now().UnixMilli(), PositionMs: 1000}
		if _, err := historyv1.NewHistoryServiceClient(conn).Apply(ctx, &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat}}); err != nil {
			t.Fatal(err)
		}
	}
	served := collector.Await(t, "history.v1.HistoryService/Apply", func(s obstest.Span) bool { return s.Trace() == sampled })
	collector.Await(t, "write pebble", func(s obstest.Span) bool { return s.Under(served) })
	collector.Await(t, "archive", func(s obstest.Span) bool { return s.LinksTo(served) })
	for _, s := range collector.Spans() {
		if s.Trace() == unsampled {
			t.Errorf("span %s of a trace that its caller does not sample", s.Name)
		}
	}
}

// TestTraceOverKafka follows reports through edge, service and job as three processes have them: over gRPC, a message
// of Kafka and the put into HBase.
func TestTraceOverKafka(t *testing.T) {
	collector := obstest.NewCollector(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	queue := func(service string) *kafka.Queue {
		q, err := kafka.Open(t.Context(), kafka.Config{Brokers: brokers.ListenAddrs(), Partitions: 1, Tracer: tracing(t, collector, service)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	published, consumed := queue("history-service"), queue("history-job")
	db := servicetest.Store(t)
	tables := hbase.Over(hbasefake.New(time.Now), hbase.Config{})

	held, err := aggregate.New(aggregate.Config{Publisher: published, Tick: time.Hour, Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	service, err := rpc.New(rpc.Config{Cache: db.Cache(), Archive: tables, Aggregate: held, Queue: published, Tracer: tracing(t, collector, "history-service")})
	if err != nil {
		t.Fatal(err)
	}
	job, err := archive.New(archive.Config{Cache: db.Cache(), Archive: tables, Tracer: tracing(t, collector, "history-job")})
	if err != nil {
		t.Fatal(err)
	}
	back, front := listen(t), listen(t)
	up, err := uplink.Open(uplink.Config{Services: []string{back.Addr().String()}, Batch: 2, Linger: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte(strings.Repeat("s", token.MinSecret))
	tokens, err := token.Open(token.Config{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	players, err := edge.New(edge.Config{Service: up, Tokens: tokens, Listener: front, Tracer: tracing(t, collector, "bff")})
	if err != nil {
		t.Fatal(err)
	}
	g := &run.Group{}
	players.AddTo(g)
	g.Add("uplink", 0, run.Closing(up.Close))
	g.Add("rpc", 0, func(ctx context.Context) error { return service.Serve(ctx, back, nil, time.Second) })
	g.Add("aggregate", 0, held.Run)
	g.Add("job", 0, job.Generations(consumed, archive.Loops{"consume": job.Consume}))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	// Two reports, one batch: each has the whole way to the cache in its own trace.
	for _, uid := range []string{"demo1", "demo2"} {
		bearer, err := token.Mint(secret, uid, "", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		conn, _, err := websocket.Dial(t.Context(), "ws://"+front.Addr().String()+"/v1/stream", &websocket.DialOptions{ //nolint:bodyclose // websocket needs no close
			Subprotocols: []string{"playhead.v1.json", "bearer." + bearer},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		text := fmt.Sprintf(`{"seq":1,"heartbeats":[%s]}`, stopped("film"))
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	var served []obstest.Span
	for len(served) < 2 {
		served = append(served, acknowledged(t, collector, "message /v1/stream", served...))
	}
	// One message of both keys goes on in the trace of one report, and has links to both.
	sent := collector.Await(t, "publish", func(s obstest.Span) bool { return s.LinksTo(served[0]) && s.LinksTo(served[1]) })
	if !sent.Under(served[0]) && !sent.Under(served[1]) || sent.Service != "history-service" || sent.Attribute("playhead.keys") != int64(2) {
		t.Errorf("send: %+v, want it under a report, of the service, with 2 keys", sent)
	}
	processed := collector.Await(t, "archive", func(s obstest.Span) bool { return s.Under(sent) && s.LinksTo(sent) })
	for _, step := range []string{"load pebble", "put hbase", "mark_clean pebble"} {
		if s := collector.Await(t, step, func(s obstest.Span) bool { return s.Under(processed) }); s.Service != "history-job" {
			t.Errorf("%s: service %s, want history-job", step, s.Service)
		}
	}
	private(t, collector)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}
