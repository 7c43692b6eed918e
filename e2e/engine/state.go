package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// State is engines.json. An address is there from the start of an engine to
// its stop, also while a killed process is down; all are on 127.0.0.1.
type State struct {
	Redis        string            `json:"redis,omitempty"`         // host:port
	RedisCluster []string          `json:"redis_cluster,omitempty"` // host:port of every master
	Kafka        string            `json:"kafka,omitempty"`         // host:port of the broker
	HBase        string            `json:"hbase,omitempty"`         // host:port of the ZooKeeper quorum
	Processes    map[string][]Node `json:"processes"`               // by engine name
}

// ReadState reads engines.json in dir. A missing file is an empty State.
func ReadState(dir string) (State, error) {
	s := State{Processes: map[string][]Node{}}
	b, err := os.ReadFile(filepath.Join(dir, "engines.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read engines: %w", err)
	}
	return s, nil
}

// updateState changes engines.json. The lock is for engines that start side
// by side, the rename for readers, who never see half a file.
func updateState(ctx context.Context, dir string, change func(*State)) error {
	unlock, err := lock(ctx, filepath.Join(dir, "lock", "engines.json"))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := ReadState(dir)
	if err != nil {
		return err
	}
	change(&s)
	s.address()
	return s.write(filepath.Join(dir, "engines.json"))
}

// address derives the address fields from the processes.
func (s *State) address() {
	one := func(name string) (addr string) {
		if a := addrs(s.Processes[name]); len(a) == 1 {
			return a[0]
		}
		return ""
	}
	s.Redis, s.Kafka, s.HBase = one("redis"), one("kafka"), one("hbase")
	s.RedisCluster = addrs(s.Processes["redis_cluster"])
}

// addrs lists the addresses of the processes that were not stopped.
func addrs(nodes []Node) []string {
	var out []string
	for _, n := range nodes {
		if n.PID != 0 {
			out = append(out, n.Addr())
		}
	}
	return out
}

func (s *State) write(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write engines: %w", err)
	}
	return nil
}
