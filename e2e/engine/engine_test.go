package engine_test

import (
	"encoding/xml"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/playhead/playhead/e2e/engine"
)

func TestKafkaProperties(t *testing.T) {
	n := engine.Node{Ports: []int{20020, 20021}, Dir: "/d/kafka"}
	got := strings.Split(engine.KafkaProperties(n), "\n")
	for _, want := range []string{
		"process.roles=broker,controller",
		"controller.quorum.voters=1@127.0.0.1:20021",
		"listeners=PLAINTEXT://127.0.0.1:20020,CONTROLLER://127.0.0.1:20021",
		"advertised.listeners=PLAINTEXT://127.0.0.1:20020",
		"log.dirs=/d/kafka/logs",
		"auto.create.topics.enable=false",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("server.properties has no line %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
}

func TestHBaseSite(t *testing.T) {
	var site struct {
		Property []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"property"`
	}
	n := engine.Node{Ports: []int{30, 31, 32}, Dir: "/a & b/hbase"}
	if err := xml.Unmarshal(engine.HBaseSite(n), &site); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range site.Property {
		got[p.Name] = p.Value
	}
	for name, want := range map[string]string{
		"hbase.rootdir":                          "file:///a%20&%20b/hbase/root",
		"hbase.zookeeper.property.dataDir":       "/a & b/hbase/zk",
		"hbase.zookeeper.property.clientPort":    "30",
		"hbase.master.port":                      "31",
		"hbase.regionserver.port":                "32",
		"hbase.master.ipc.address":               "127.0.0.1",
		"hbase.regionserver.ipc.address":         "127.0.0.1",
		"hbase.hregion.memstore.mslab.enabled":   "false",
		"hbase.wal.provider":                     "asyncfs",
		"hbase.unsafe.regionserver.hostname":     "localhost",
		"hbase.unsafe.stream.capability.enforce": "false",
	} {
		if got[name] != want {
			t.Errorf("hbase-site.xml says %s = %q, want %q", name, got[name], want)
		}
	}
}

// TestCommandLinesBelong checks that each engine's own command line passes as ours.
func TestCommandLinesBelong(t *testing.T) {
	cfg := engine.Config{Lib: "/d/lib"}
	n := engine.Node{Ports: []int{1, 2, 3}, Dir: "/d/data/x"}
	for name, argv := range map[string][]string{
		"redis": engine.RedisArgv(cfg, n), "kafka": engine.KafkaArgv(cfg, n), "hbase": engine.HBaseArgv(cfg, n),
	} {
		line := strings.Join(argv, "\x00") + "\x00"
		if !engine.Belongs(line, n.Dir) {
			t.Errorf("command line of %s does not belong to %s: %q", name, n.Dir, argv)
		}
		if engine.Belongs(line, "/d/data") || engine.Belongs(line, "/d/data/xy") {
			t.Errorf("command line of %s belongs to another folder: %q", name, argv)
		}
	}
}

// TestRelativeFolders resolves relative folders, because an engine runs in its own folder.
func TestRelativeFolders(t *testing.T) {
	cfg, err := engine.Complete(engine.Config{Dir: "data", Lib: "lib"})
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(cfg.Dir) || !filepath.IsAbs(cfg.Lib) {
		t.Errorf("folders are %s and %s, want absolute paths", cfg.Dir, cfg.Lib)
	}
}

func TestPomsPinVersions(t *testing.T) {
	for name, want := range map[string]string{
		"kafka": "<version>4.3.1</version>", "hbase": "<version>2.6.4-hadoop3</version>",
	} {
		b, err := engine.Poms.ReadFile("pom/" + name + ".xml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("pom of %s has no %s:\n%s", name, want, b)
		}
	}
}

func TestClusterID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := engine.ClusterID()
		if len(id) != 22 || id[0] == '-' || seen[id] {
			t.Fatalf("cluster id %q: want 22 characters, no leading dash, never twice", id)
		}
		seen[id] = true
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		engine string
		cfg    engine.Config
		want   string
	}{
		"unknown engine": {"cassandra", engine.Config{Dir: dir}, `unknown engine "cassandra"`},
		"no folder":      {"redis", engine.Config{}, "folder is empty"},
		"high base":      {"redis", engine.Config{Dir: dir, PortBase: 70000}, "port base 70000"},
	} {
		if _, err := engine.Open(c.engine, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Open says %v, want %q", name, err, c.want)
		}
	}
	e, err := engine.Open("redis_cluster", engine.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Nodes) != 4 || e.Running() || e.Addr() != "" {
		t.Errorf("new cluster has %d nodes, running %t, address %q; want 4, false, none", len(e.Nodes), e.Running(), e.Addr())
	}
	if want := filepath.Join(dir, "data", "redis_cluster-2"); e.Nodes[2].Dir != want {
		t.Errorf("third node works in %s, want %s", e.Nodes[2].Dir, want)
	}
}

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

// TestUpdateStateConcurrently starts engines concurrently: each must be recorded.
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

func TestWantPorts(t *testing.T) {
	for name, c := range map[string]struct {
		base          int
		last, offsets []int
		want          []int
	}{
		"first start":          {0, nil, []int{20, 21}, []int{17020, 17021}},
		"recorded":             {0, []int{5, 6}, []int{20, 21}, []int{5, 6}},
		"explicit base wins":   {18000, []int{5, 6}, []int{20, 21}, []int{18020, 18021}},
		"recorded by another":  {0, []int{5}, []int{20, 21}, []int{17020, 17021}},
		"explicit, never held": {18000, nil, []int{0}, []int{18000}},
	} {
		if got := engine.WantPorts(c.base, c.last, c.offsets); !slices.Equal(got, c.want) {
			t.Errorf("%s: WantPorts(%d, %v, %v) = %v, want %v", name, c.base, c.last, c.offsets, got, c.want)
		}
	}
}

func TestPlaceMovesHeldPort(t *testing.T) {
	held := listen(t).Addr().(*net.TCPAddr).Port
	got, err := engine.Place(t.Context(), []int{held})
	if err != nil {
		t.Fatal(err)
	}
	if got[0] <= held || (got[0]-held)%100 != 0 {
		t.Errorf("Place(%d) = %d, want a later port a multiple of 100 away", held, got[0])
	}
}

func TestPlaceEndsAtLastPort(t *testing.T) {
	if got, err := engine.Place(t.Context(), []int{65536}); err == nil {
		t.Errorf("Place(65536) = %v, want an error", got)
	}
}

// TestPortsDifferModulo100 checks the offsets that keep concurrent starts from sharing a port.
func TestPortsDifferModulo100(t *testing.T) {
	seen := map[int]bool{}
	for _, o := range engine.PortOffsets() {
		if o < 0 || o >= 100 || seen[o] {
			t.Errorf("port offset %d is taken twice or not within 100", o)
		}
		seen[o] = true
	}
}

// TestPostgresKeepsWhatItAcknowledges checks that the comparison server flushes every commit, and that its folder
// identifies it.
func TestPostgresKeepsWhatItAcknowledges(t *testing.T) {
	n := engine.Node{Ports: []int{40}, Dir: "/d/postgres"}
	argv := engine.PostgresArgv(engine.Config{}, n)
	for _, want := range []string{"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=1GB", "listen_addresses=127.0.0.1"} {
		if !slices.Contains(argv, want) {
			t.Errorf("no %s in %v", want, argv)
		}
	}
	if line := strings.Join(argv, "\x00") + "\x00"; !engine.Belongs(line, n.Dir) || engine.Belongs(line, "/d/post") {
		t.Errorf("%q is not known by its folder", line)
	}
}
