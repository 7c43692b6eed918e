// Package pipeline runs the services as real processes between real engines. It compares the engines' final
// content with a plain merge of the sent heartbeats.
package pipeline

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
)

// Engines are the addresses of the real engines.
type Engines struct {
	Redis   string // several, separated by commas, form a cluster
	Cluster bool
	Kafka   string
	HBase   string
}

// FromEnv reads the addresses printed by `engines env`. Redis is the single server or the cluster.
func FromEnv(t testing.TB, cluster bool) Engines {
	t.Helper()
	e := Engines{Cluster: cluster, Redis: address(t, "PLAYHEAD_TEST_REDIS")}
	if cluster {
		e.Redis = address(t, "PLAYHEAD_TEST_REDIS_CLUSTER")
	}
	e.Kafka, e.HBase = address(t, "PLAYHEAD_TEST_KAFKA"), address(t, "PLAYHEAD_TEST_HBASE")
	return e
}

func address(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run this with make e2e", name)
	}
	return v
}

// Flush empties Redis, which belongs to the tests.
func Flush(t testing.TB, e Engines) {
	t.Helper()
	if err := process.Flush(t.Context(), strings.Split(e.Redis, ",")...); err != nil {
		t.Fatal(err)
	}
}

// Stack is the product's services as processes on one set of engines, with their own topic, group and table.
type Stack struct {
	Engines  Engines
	Services []*Process
	Jobs     []*Process
	BFF      *Process // nil until StartBFF
	RPC      []string // addresses of the services
	Name     string   // of topic, group and table

	product process.Product
	secret  string // file of the edge's secret
	listen  string // address of the edge
}

// NewStack builds the commands, starts services and jobs, and waits until they are ready.
func NewStack(t testing.TB, e Engines, services, jobs int) *Stack {
	t.Helper()
	s := &Stack{Engines: e, Name: "e2e_" + strings.ToLower(rand.Text()[:10])}
	s.product = process.Product{Bin: Build(t, "bff", "history-service", "history-job"), Name: s.Name, Redis: e.Redis, Cluster: e.Cluster, Kafka: e.Kafka, HBase: e.HBase}
	for range services {
		s.StartService(t, FreeAddr(t))
	}
	for range jobs {
		s.StartJob(t)
	}
	return s
}

// Build builds commands and returns their folder, which the end of the test removes.
func Build(t testing.TB, commands ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-o", dir}
	for _, name := range commands {
		args = append(args, "github.com/playhead/playhead/"+name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// StartService adds a history-service on an address.
func (s *Stack) StartService(t testing.TB, rpc string, more ...string) *Process {
	t.Helper()
	p := s.start(t, "history-service", append([]string{"--listen", rpc}, more...)...)
	s.Services, s.RPC = append(s.Services, p), append(s.RPC, rpc)
	return p
}

// StartJob adds a history-job.
func (s *Stack) StartJob(t testing.TB, more ...string) *Process {
	t.Helper()
	p := s.start(t, "history-job", more...)
	s.Jobs = append(s.Jobs, p)
	return p
}

func (s *Stack) start(t testing.TB, name string, more ...string) *Process {
	t.Helper()
	admin := FreeAddr(t)
	argv := s.product.Command(name, admin, more...)
	p := Start(t, argv[0], argv[1:]...)
	p.Ready(t, admin)
	return p
}

// StartBFF starts an edge in front of all services and returns its address.
func (s *Stack) StartBFF(t testing.TB, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.StartBFFAt(t, FreeAddr(t), file)
	return s.listen
}

// StartBFFAt starts an edge at an address, with the secret of a file.
func (s *Stack) StartBFFAt(t testing.TB, listen, secret string) {
	t.Helper()
	s.listen, s.secret = listen, secret
	s.RestartBFF(t)
}

// RestartBFF starts an edge like the last one, which has ended.
func (s *Stack) RestartBFF(t testing.TB) {
	t.Helper()
	admin := FreeAddr(t)
	argv := s.product.Edge(s.listen, admin, s.secret, s.RPC)
	s.BFF = Start(t, argv[0], argv[1:]...)
	s.BFF.Ready(t, admin)
}

// Stop ends the edge, the services and the jobs, each within its deadline.
func (s *Stack) Stop(t testing.TB) {
	t.Helper()
	all := slices.Concat(s.Services, s.Jobs)
	if s.BFF != nil {
		all = append([]*Process{s.BFF}, all...)
	}
	for _, p := range all {
		p.Stop(t, 20*time.Second)
	}
}

// Process is one running command of the product.
type Process struct {
	*process.Process

	Admin string // address of health, metrics and profiles, once it is ready
}

// Start starts a command. At the end of the test it kills the process, and logs its output after a failure.
func Start(t testing.TB, path string, args ...string) *Process {
	t.Helper()
	p, err := process.Start(path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s %v:\n%s", path, args, p.Log())
		}
	})
	return &Process{Process: p}
}

// Stop ends the process with SIGTERM. It fails the test after the deadline, or if the process reports unfinished
// work.
func (p *Process) Stop(t testing.TB, deadline time.Duration) {
	t.Helper()
	if err := p.Process.Stop(deadline); err != nil {
		t.Error(err)
	}
}

// Ready waits until the process is ready.
func (p *Process) Ready(t testing.TB, admin string) {
	t.Helper()
	p.Admin = admin
	Await(t, 30*time.Second, p.Path+" to be ready", func(ctx context.Context) error {
		select {
		case <-p.Done():
			t.Fatalf("%s ended\n%s", p.Path, p.Log())
		default:
		}
		return p.Process.Ready(ctx, admin)
	})
}

// Await tries a condition until it holds, or the limit passes.
func Await(t testing.TB, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	if err := process.Await(t.Context(), limit, what, condition); err != nil {
		t.Fatal(err)
	}
}

// Clean fails while a record may be newer than the archive.
func Clean(ctx context.Context, c history.Ledger) error { return process.Clean(ctx, c) }

// FreeAddr returns an unused loopback address.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := process.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Dial spreads streams over all services.
func Dial(t testing.TB, addrs []string) *grpc.ClientConn {
	t.Helper()
	r := manual.NewBuilderWithScheme("services")
	var state resolver.State
	for _, a := range addrs {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: a})
	}
	r.InitialState(state)
	conn, err := grpc.NewClient("services:///", grpc.WithResolvers(r), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	if err != nil {
		t.Fatalf("dial %v: %v", addrs, err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
