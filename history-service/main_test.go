package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// unused returns an address without a listener.
func unused(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await retries until there is no error.
func await[T any](t *testing.T, ask func() (T, error)) T {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); ; {
		answer, err := ask()
		if err == nil {
			return answer
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(err)
		}
	}
}

func ready(t *testing.T, admin string) (int, string) {
	t.Helper()
	resp := await(t, func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+admin+"/readyz", nil)
		if err != nil {
			return nil, err
		}
		return http.DefaultClient.Do(req)
	})
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// becomeReady waits until the service is ready.
func becomeReady(t *testing.T, admin string) {
	t.Helper()
	await(t, func() (any, error) {
		code, body := ready(t, admin)
		if code != http.StatusOK {
			return nil, errors.New("not ready: " + body)
		}
		return nil, nil
	})
}

// start runs a service with the given Redis, and without Kafka and HBase.
func start(t *testing.T, redis string, more ...string) (client historyv1.HistoryServiceClient, admin string) {
	t.Helper()
	listen, admin := unused(t), unused(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- service(ctx, append(more,
			"--listen", listen, "--admin", admin, "--redis", redis, "--kafka", unused(t), "--hbase", unused(t), "--drain", "2s",
		), func(string) string { return "" }, io.Discard)
	}()
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("service: %v", err)
		}
		_ = conn.Close()
	})
	return historyv1.NewHistoryServiceClient(conn), admin
}

// TestStartsWithoutArchiveAndQueue: without HBase and Kafka, heartbeats are stored. Reads that need the archive are
// unavailable.
func TestStartsWithoutArchiveAndQueue(t *testing.T) {
	client, admin := start(t, miniredis.RunT(t).Addr())
	becomeReady(t, admin)
	now := time.Now().UnixMilli()
	beat := &historyv1.Heartbeat{Uid: "u", ObjectId: "o", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: now, PositionMs: 7, DurationMs: 100}
	resp, err := client.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat}}, grpc.WaitForReady(true))
	if err != nil || resp.GetStatuses()[0] != historyv1.Status_STATUS_STORED {
		t.Errorf("apply: %v, %v, want it stored", resp, err)
	}
	_, err = client.List(t.Context(), &historyv1.ListRequest{Uid: "u"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a page of a user whom only the archive knows: %v, want unavailable", err)
	}
}

// TestStartsWithoutCache: without any engine, the service is alive but not ready and gives the reason. It
// acknowledges nothing.
func TestStartsWithoutCache(t *testing.T) {
	addr := unused(t)
	client, admin := start(t, addr)
	if code, body := ready(t, admin); code != http.StatusServiceUnavailable || !strings.Contains(body, addr) || !strings.Contains(body, "set --redis") {
		t.Errorf("/readyz: %d %s, want it to say that nobody is at %s and how to help", code, body, addr)
	}
	now := time.Now().UnixMilli()
	beat := &historyv1.Heartbeat{Uid: "u", ObjectId: "o", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: now, PositionMs: 7, DurationMs: 100}
	_, err := client.Apply(t.Context(), &historyv1.ApplyRequest{Heartbeats: []*historyv1.Heartbeat{beat}}, grpc.WaitForReady(true))
	if status.Code(err) != codes.Unavailable {
		t.Errorf("apply: %v, want unavailable", err)
	}
}

// TestTakenPort: a port in use is reported before any engine is contacted.
func TestTakenPort(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, flag := range []string{"--listen", "--admin"} {
		err := service(t.Context(), []string{
			"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", flag, taken.Addr().String(), "--redis", "nowhere:99999", "--kafka", unused(t), "--hbase", unused(t),
		}, func(string) string { return "" }, io.Discard)
		if err == nil || !strings.HasSuffix(err.Error(), "address already in use (choose another with "+flag+")") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestOpenToTheNetwork: a server that other machines reach asks for certificates unless --insecure-rpc is set.
func TestOpenToTheNetwork(t *testing.T) {
	for _, args := range [][]string{nil, {"--insecure-rpc"}} {
		err := service(t.Context(), append(args, "--listen", "0.0.0.0:0", "--admin", "127.0.0.1:0", "--redis", "nowhere:99999", "--kafka", unused(t), "--hbase", unused(t), "--webhook-url", "x"),
			func(string) string { return "" }, io.Discard)
		if refused := err != nil && strings.Contains(err.Error(), "would be open to the network; set --tls-cert, --tls-key and --tls-client-ca, or --insecure-rpc"); refused != (args == nil) {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

// TestRefusedAtTheStart: a wrong Redis password ends the process with a one-line error, since waiting does not
// help.
func TestRefusedAtTheStart(t *testing.T) {
	redis := miniredis.RunT(t)
	redis.RequireAuth("secret")
	err := service(t.Context(), []string{
		"--listen", unused(t), "--admin", unused(t), "--redis", redis.Addr(), "--redis-password", "guess", "--kafka", unused(t), "--hbase", unused(t),
	}, func(string) string { return "" }, io.Discard)
	if err == nil || !strings.Contains(err.Error(), redis.Addr()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("service: %v, want one line that names %s", err, redis.Addr())
	}
}

// TestRedisOverTLS connects to Redis with TLS and a password file. Without TLS, the service is not ready.
func TestRedisOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	defer server.Close()
	redis := miniredis.NewMiniRedis()
	redis.RequireAuth("secret")
	if err := redis.StartTLS(&tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}); err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	ca, password := filepath.Join(t.TempDir(), "ca"), filepath.Join(t.TempDir(), "password")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(ca, cert, 0o600), os.WriteFile(password, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	_, admin := start(t, redis.Addr(), "--redis-ca", ca, "--redis-password-file", password)
	becomeReady(t, admin)
	_, admin = start(t, redis.Addr(), "--redis-password-file", password)
	if code, body := ready(t, admin); code != http.StatusServiceUnavailable || strings.Contains(body, "secret") {
		t.Errorf("/readyz in plain text: %d %s, want it not ready, and no password told", code, body)
	}
}

// TestConnections: a connection above the limit waits until another one closes.
func TestConnections(t *testing.T) {
	client, admin := start(t, miniredis.RunT(t).Addr(), "--max-connections", "1")
	becomeReady(t, admin)
	req := &historyv1.DeleteRequest{Uid: "u", Objects: []*historyv1.Object{{Id: "o", Type: 1}}}
	if _, err := client.Delete(t.Context(), req, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	addr := peerOf(t, client, req)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := historyv1.NewHistoryServiceClient(conn).Delete(ctx, req, grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("over a second connection: %v, want it to wait", err)
	}
	if _, err := client.Delete(t.Context(), req); err != nil {
		t.Errorf("over the first one: %v", err)
	}
	if err := service(t.Context(), []string{"--max-connections", "0"}, func(string) string { return "" }, io.Discard); err == nil {
		t.Error("a server without connections was opened")
	}
}

// peerOf returns the address of a client's server.
func peerOf(t *testing.T, client historyv1.HistoryServiceClient, req *historyv1.DeleteRequest) string {
	t.Helper()
	var p peer.Peer
	if _, err := client.Delete(t.Context(), req, grpc.Peer(&p)); err != nil {
		t.Fatal(err)
	}
	return p.Addr.String()
}

// TestWrongRules: invalid rules fail before anything is opened.
func TestWrongRules(t *testing.T) {
	for _, rules := range []string{"done=101", "3:done=4", "1:grace=5s;2:color=red"} {
		err := service(t.Context(), []string{"--rules", rules}, func(string) string { return "" }, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), "--rules: ") {
			t.Errorf("%s: got %v, want it to name the flag", rules, err)
		}
	}
}

// TestClockFarAhead starts 100 days after the last trusted time. The service runs and reports it, until an operator
// confirms the clock.
func TestClockFarAhead(t *testing.T) {
	redis := miniredis.RunT(t)
	last := strconv.FormatInt(time.Now().Add(-100*24*time.Hour).UnixMilli(), 10)
	if err := redis.Set("playhead:trusted", last); err != nil {
		t.Fatal(err)
	}
	_, admin := start(t, redis.Addr())
	readyWith := func(held bool) {
		t.Helper()
		await(t, func() (any, error) {
			code, body := ready(t, admin)
			if code != http.StatusOK || strings.Contains(body, "the latest trusted time is") != held {
				return nil, fmt.Errorf("%d %s, want 200, held %v", code, body, held)
			}
			return nil, nil
		})
	}
	readyWith(true)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+admin+"/clock/confirm", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("confirm: %s", resp.Status)
	}
	readyWith(false)
	if at, err := redis.Get("playhead:trusted"); err != nil || at <= last {
		t.Errorf("saved: got %s, %v, want later than %s", at, err, last)
	}
}
