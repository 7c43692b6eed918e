package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/playhead/playhead/e2e/process"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (s *stack) addService(ctx, watch context.Context, i int) error {
	addr, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	flags := s.cacheFlags()
	if i < len(s.redis) {
		flags = []string{"--redis", s.redis[i]}
	}
	u, err := s.unit(ctx, fmt.Sprintf("history-service-%d", i), append(flags, "--listen", addr, "--hold", s.hold.String(), "--deadline", "1.5s")...)
	if err != nil {
		return err
	}
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	s.services, s.conns = append(s.services, u), append(s.conns, conn)
	s.doors = append(s.doors, rpcDoor{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn)})
	s.wg.Go(func() { u.watch(watch) })
	return nil
}

func (s *stack) addJob(ctx, watch context.Context, i int, more ...string) error {
	more = slices.Concat(s.cacheFlags(), []string{"--sweep-age", s.sweep.String(), "--sweep-every", "1s"}, more)
	u, err := s.unit(ctx, fmt.Sprintf("history-job-%d", i), more...)
	if err != nil {
		return err
	}
	s.jobs = append(s.jobs, u)
	s.wg.Go(func() { u.watch(watch) })
	return nil
}

func (s *stack) addEdge(ctx, watch context.Context) error {
	secret := strings.Repeat("s", 32)
	file := filepath.Join(s.opts.Dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return err
	}
	listen, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	s.edge = edgeDoor{addr: listen, secret: []byte(secret)}
	var rpc []string
	for _, c := range s.conns {
		rpc = append(rpc, c.Target())
	}
	s.bff = newUnit(s.opts.Log, "bff", admin, filepath.Join(s.opts.Bin, "bff"), "--listen", listen, "--admin", admin,
		"--service", strings.Join(rpc, ","), "--token-secret-file", file, "--user-rate", "1e6", "--user-burst", "1e6")
	s.wg.Go(func() { s.bff.watch(watch) })
	return nil
}

// unit makes a service or job, named by command and number.
func (s *stack) unit(ctx context.Context, name string, more ...string) (*unit, error) {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	command := name[:strings.LastIndexByte(name, '-')]
	argv := append([]string{
		filepath.Join(s.opts.Bin, command), "--admin", admin, "--drain", s.drain.String(),
		"--kafka", s.es["kafka"].Addr(), "--hbase", s.es["hbase"].Addr(),
		"--kafka-topic", s.name, "--kafka-dead-topic", s.dead(), "--kafka-group", s.name, "--kafka-partitions", "8", "--hbase-table", s.name, "--hbase-regions", "4",
	}, more...)
	return newUnit(s.opts.Log, name, admin, argv...), nil
}

// dead is the topic of what could not be archived.
func (s *stack) dead() string { return s.name + ".dead" }
