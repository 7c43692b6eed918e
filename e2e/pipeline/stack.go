package pipeline

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Engines are the addresses of the real engines.
type Engines struct {
	Redis   string // several with commas between are a cluster
	Cluster bool
	Kafka   string
	HBase   string
}

// FromEnv reads the addresses that `engines env` prints. Redis is the single server
// or the cluster.
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

// Stack is the services of the product as processes on one set of engines, with a
// topic, a group and a table of their own.
type Stack struct {
	Engines  Engines
	Services []*Process
	Jobs     []*Process
	BFF      *Process // nil until StartBFF
	RPC      []string // addresses of the services
	Name     string   // of topic, group and table

	bin string
	bff []string // the edge's own flags
}

// NewStack starts so many services and jobs and waits until they are ready.
func NewStack(t testing.TB, e Engines, services, jobs int) *Stack {
	t.Helper()
	s := &Stack{Engines: e, Name: "e2e_" + strings.ToLower(rand.Text()[:10]), bin: Build(t)}
	for range services {
		s.StartService(t, FreeAddr(t))
	}
	for range jobs {
		s.StartJob(t)
	}
	return s
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

// StartBFF starts an edge in front of all services and returns its address.
func (s *Stack) StartBFF(t testing.TB, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	s.bff = []string{"--listen", FreeAddr(t), "--token-secret-file", file, "--user-rate", "1e6", "--user-burst", "1e6"}
	s.RestartBFF(t)
	return s.bff[1]
}

// RestartBFF starts an edge as before, where the last one has ended.
func (s *Stack) RestartBFF(t testing.TB) {
	t.Helper()
	admin := FreeAddr(t)
	s.BFF = Start(t, filepath.Join(s.bin, "bff"), append([]string{"--admin", admin, "--service", strings.Join(s.RPC, ",")}, s.bff...)...)
	s.BFF.Ready(t, admin)
}

func (s *Stack) start(t testing.TB, name string, more ...string) *Process {
	t.Helper()
	admin := FreeAddr(t)
	args := append([]string{
		"--admin", admin, "--redis", s.Engines.Redis, "--kafka", s.Engines.Kafka, "--hbase", s.Engines.HBase,
		"--kafka-topic", s.Name, "--kafka-group", s.Name, "--kafka-first-of-day-topic", s.Name + "_first", "--hbase-table", s.Name, "--kafka-partitions", "8",
	}, more...)
	if s.Engines.Cluster {
		args = append(args, "--redis-cluster")
	}
	p := Start(t, filepath.Join(s.bin, name), args...)
	p.Ready(t, admin)
	return p
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
