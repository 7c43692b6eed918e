// Command naive is the design that most teams build first, for comparison. Each heartbeat is an HTTP request and
// an RPC, and each RPC a pipeline of ZADD and SET. Redis's answer is the acknowledgement.
//
//	naive --listen 127.0.0.1:9001 --redis 127.0.0.1:6379            the service
//	naive --listen 127.0.0.1:9000 --service 127.0.0.1:9001          the edge
//
// The edge takes its token secret from $PLAYHEAD_TOKEN_SECRET.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type flags struct {
	Listen  string `help:"Address." required:""`
	Redis   string `help:"Address of Redis: be the service."`
	Service string `help:"Address of the service: be the edge."`
}

func main() { run.Main(naive) }

func naive(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f flags
	if err := run.Parse("naive", &f, args, getenv, out); err != nil {
		return err
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if f.Redis != "" {
		return serve(ctx, lis, &service{client: goredis.NewClient(&goredis.Options{Addr: f.Redis, Protocol: 2})})
	}
	tokens, err := token.NewVerifier([]byte(getenv("PLAYHEAD_TOKEN_SECRET")), "")
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(f.Service, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	srv := &http.Server{Handler: &edge{tokens, historyv1.NewHistoryServiceClient(conn)}, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	return srv.Serve(lis)
}

func serve(ctx context.Context, lis net.Listener, s *service) error {
	srv := grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, s)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	return srv.Serve(lis)
}

type edge struct {
	tokens  *token.Verifier
	service historyv1.HistoryServiceClient
}

type body struct {
	Heartbeats []struct {
		Object struct {
			ID   string `json:"id"`
			Type uint32 `json:"type"`
		} `json:"object"`
		PositionMS int64             `json:"position_ms"`
		DurationMS int64             `json:"duration_ms"`
		EventTime  time.Time         `json:"event_time"`
		Session    string            `json:"session"`
		Device     string            `json:"device"`
		Meta       map[string]string `json:"meta"`
	} `json:"heartbeats"`
}

// ServeHTTP accepts one heartbeat.
func (e *edge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := token.Bearer(r.Header.Get("Authorization"))
	uid, _, err := e.tokens.Verify(text)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil || len(b.Heartbeats) != 1 {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	h := b.Heartbeats[0]
	_, err = e.service.Apply(r.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
		Uid: uid, ObjectId: h.Object.ID, ObjectType: h.Object.Type, Kind: historyv1.Kind_KIND_PROGRESS,
		EventTimeMs: h.EventTime.UnixMilli(), PositionMs: h.PositionMS, DurationMs: h.DurationMS,
		Session: h.Session, Device: h.Device, Meta: h.Meta,
	}}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"results": []map[string]string{{"status": "stored"}}}) // the client sees a failure
}

type service struct {
	historyv1.UnimplementedHistoryServiceServer

	client *goredis.Client
}

const life = 90 * 24 * time.Hour

// Apply stores one heartbeat, and overwrites any older one.
func (s *service) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	h := req.GetHeartbeats()[0]
	e := history.Event{
		Key:  history.Key{UID: h.Uid, Object: history.Object{ID: h.ObjectId, Type: h.ObjectType}},
		Kind: history.KindProgress, At: h.EventTimeMs, Position: h.PositionMs, Duration: h.DurationMs,
		Session: h.Session, Device: h.Device, Meta: history.NewMeta(h.Meta),
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	r, tag := e.Record(), fmt.Sprintf("{b%04d}:", history.BucketOf(h.Uid))
	pipe := s.client.Pipeline()
	pipe.ZAdd(ctx, tag+"h:"+h.Uid, goredis.Z{Score: r.Version.Score(), Member: e.Key.Object.String()})
	pipe.Set(ctx, tag+"c:"+h.Uid+":"+e.Key.Object.String(), wire.AppendRecord(nil, r), life)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &historyv1.ApplyResponse{Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED}}, nil
}
