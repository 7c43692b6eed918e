package engine_test

import (
	"encoding/xml"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// The check that a process is ours reads its command line, so each engine's
// own must pass it.
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
