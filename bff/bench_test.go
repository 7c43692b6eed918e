package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const players = 500

// storing is a service that stores nothing, so that only the way there is measured.
type storing struct {
	historyv1.UnimplementedHistoryServiceServer
}

func (storing) Apply(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	return &historyv1.ApplyResponse{Statuses: slices.Repeat([]historyv1.Status{historyv1.Status_STATUS_STORED}, len(req.Heartbeats))}, nil
}

func (s storing) ApplyStream(stream grpc.BidiStreamingServer[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp, _ := s.Apply(stream.Context(), req.Batch)
		if err := stream.Send(&historyv1.ApplyStreamResponse{Sequence: req.Sequence, Result: resp}); err != nil {
			return err
		}
	}
}

// services returns the two ways to it: in batches, and with a call for each request.
func services(b *testing.B) (shared, unary ws.Service) {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := grpc.NewServer()
	historyv1.RegisterHistoryServiceServer(srv, storing{})
	healthpb.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(l) }() // ends with Stop
	b.Cleanup(srv.Stop)
	up, err := uplink.Open(uplink.Config{Services: []string{l.Addr().String()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = up.Close() })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return up, caller{historyv1.NewHistoryServiceClient(conn)}
}

type caller struct{ historyv1.HistoryServiceClient }

func (c caller) Apply(ctx context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	return c.HistoryServiceClient.Apply(ctx, req)
}

// plain is the door that most teams write first: a request for each heartbeat, decoded by
// encoding/json, and a call for it.
func plain(tokens *token.Verifier, s ws.Service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, _ := token.Bearer(r.Header.Get("Authorization"))
		uid, _, err := tokens.Verify(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		var body struct {
			Heartbeats []struct {
				Object     struct{ ID string }
				PositionMS int64     `json:"position_ms"`
				EventTime  time.Time `json:"event_time"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Heartbeats) != 1 {
			http.Error(w, "malformed", http.StatusBadRequest)
			return
		}
		beat := body.Heartbeats[0]
		resp, err := s.Apply(r.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{{
			Uid: uid, ObjectId: beat.Object.ID, ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: beat.EventTime.UnixMilli(), PositionMs: beat.PositionMS,
		}}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(codec.Reply{Results: []codec.Result{{Status: codec.StatusName(resp.Statuses[0])}}})
	}
}

// player says one thing again and again, and knows how long the answer is.
type player struct {
	conn   net.Conn
	text   []byte
	answer []byte
}

func (p *player) report() error {
	if _, err := p.conn.Write(p.text); err != nil {
		return err
	}
	_, err := io.ReadFull(p.conn, p.answer)
	return err
}

const beat = `"heartbeats":[{"object":{"id":"100","type":1},"kind":"progress","position_ms":61000,"event_time":"2026-03-01T20:15:00Z"}]}`

func connect(b *testing.B, addr string) net.Conn {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

func bearer(b *testing.B) string {
	b.Helper()
	text, err := token.Mint([]byte(secret), "u1", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// overStreams are players who stay.
func overStreams(b *testing.B, tokens *token.Verifier, s ws.Service) (all []*player) {
	b.Helper()
	h, err := ws.New(ws.Config{Service: s, Tokens: tokens, Limit: limit.New(1e9, 1e9), PerUser: players})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Upgrade(w, r); err != nil {
			b.Error(err)
		}
	}))
	b.Cleanup(server.Close)
	body := `{"seq":1,` + beat
	frame := append([]byte{0x81, 0x80 | 126, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, 0}, body...) // the mask is zeros
	hello := "GET / HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: playhead.v1.json\r\nAuthorization: Bearer " + bearer(b) + "\r\n\r\n"
	for range players {
		p := &player{connect(b, server.Listener.Addr().String()), frame, make([]byte, 2+len(`{"seq":1,"results":[{"status":"stored"}]}`))}
		if _, err := io.WriteString(p.conn, hello); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			b.Fatal(resp, err)
		}
		_ = resp.Body.Close()
		all = append(all, p)
	}
	return all
}

// overRequests are players who come with a request each time, over a connection that
// stays.
func overRequests(b *testing.B, tokens *token.Verifier, s ws.Service) (all []*player) {
	b.Helper()
	server := httptest.NewServer(plain(tokens, s))
	b.Cleanup(server.Close)
	request := fmt.Sprintf("POST /v1/heartbeats HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{%s", bearer(b), 1+len(beat), beat)
	for range players {
		p := &player{conn: connect(b, server.Listener.Addr().String()), text: []byte(request)}
		if _, err := p.conn.Write(p.text); err != nil {
			b.Fatal(err)
		}
		answer := make([]byte, 4<<10)
		n, err := p.conn.Read(answer)
		if err != nil || !strings.Contains(string(answer[:n]), "stored") {
			b.Fatalf("%s: %v", answer[:n], err)
		}
		p.answer = answer[:n]
		all = append(all, p)
	}
	return all
}

// BenchmarkEdge is one heartbeat at a time from each of 500 players: over streams and in
// batches upward, and as most teams write it first. The CPU is that of all ends.
func BenchmarkEdge(b *testing.B) {
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		b.Fatal(err)
	}
	shared, unary := services(b)
	b.Run("stream", func(b *testing.B) { flood(b, overStreams(b, tokens, shared)) })
	b.Run("plain", func(b *testing.B) { flood(b, overRequests(b, tokens, unary)) })
}

func flood(b *testing.B, all []*player) {
	before := cpu(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			for range (b.N + i) / len(all) {
				if err := p.report(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64((cpu(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "beats/s")
}

// BenchmarkBatchingDelay is the median time to an answer at 4,000 heartbeats a second, with
// batches upward and with a call for each message.
func BenchmarkBatchingDelay(b *testing.B) {
	tokens, err := token.NewVerifier([]byte(secret), "")
	if err != nil {
		b.Fatal(err)
	}
	shared, unary := services(b)
	b.Run("batches", func(b *testing.B) { pace(b, overStreams(b, tokens, shared)) })
	b.Run("calls", func(b *testing.B) { pace(b, overStreams(b, tokens, unary)) })
}

func pace(b *testing.B, all []*player) {
	const every = players * time.Second / 4000
	took := make([][]time.Duration, len(all))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() {
			next := time.Now().Add(every * time.Duration(i) / time.Duration(len(all)))
			for range (b.N + i) / len(all) {
				time.Sleep(time.Until(next))
				began := time.Now()
				if err := p.report(); err != nil {
					b.Error(err)
					return
				}
				took[i], next = append(took[i], time.Since(began)), next.Add(every)
			}
		})
	}
	wg.Wait()
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(sorted[len(sorted)/2].Nanoseconds())/1e6, "ms-p50")
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Nanoseconds())/1e6, "ms-p99")
}

// cpu is what the process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
