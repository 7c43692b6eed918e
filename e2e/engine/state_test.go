package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

func TestStateRoundTrip(t *testing.T) {
	dir := t.TempDir()
	nodes := map[string][]engine.Node{
		"redis":         {{PID: 11, Ports: []int{1}, Dir: "/d/r", Log: "/l/r", LogFrom: 7, Started: time.Unix(1e9, 0).UTC()}},
		"redis_cluster": {{PID: 12, Ports: []int{2, 5}}, {PID: 13, Ports: []int{3, 6}}, {PID: 14, Ports: []int{4, 7}}},
		"kafka":         {{PID: 0, Ports: []int{8, 9}}},
		"hbase":         {{PID: 15, Ports: []int{10, 11, 12}}},
	}
	if err := engine.UpdateState(t.Context(), dir, func(s *engine.State) { s.Processes = nodes }); err != nil {
		t.Fatal(err)
	}
	got, err := engine.ReadState(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.State{
		Redis:        "127.0.0.1:1",
		RedisCluster: []string{"127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"},
		HBase:        "127.0.0.1:10", // Kafka is stopped and has no address
		Processes:    nodes,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("state after a round trip:\ngot  %+v\nwant %+v", got, want)
	}
}

func TestReadStateMissingAndBroken(t *testing.T) {
	dir := t.TempDir()
	if s, err := engine.ReadState(dir); err != nil || len(s.Processes) != 0 {
		t.Errorf("state of a new folder is %+v, %v; want empty, nil", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "engines.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.ReadState(dir); err == nil {
		t.Error("half a state file reads without an error")
	}
}

// Engines start side by side and each records itself: none may be lost.
func TestUpdateStateConcurrently(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			err := engine.UpdateState(t.Context(), dir, func(s *engine.State) {
				s.Processes[fmt.Sprint(i)] = []engine.Node{{PID: i + 1, Ports: []int{i}}}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s, err := engine.ReadState(dir); err != nil || len(s.Processes) != 8 {
		t.Errorf("after 8 updates at once: %d processes, %v; want 8, nil", len(s.Processes), err)
	}
}
