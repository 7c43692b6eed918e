package engine

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed hazelcast/WriteBehind.java
var writeBehind []byte

// writeDelay is the time, in seconds, that an entry waits for later ones of its key.
const writeDelay = 5

// Table is an HBase table.
type Table struct{ ZooKeeper, Name string }

// WriteBehind returns the command of a service that keeps entries in a Hazelcast map. The map writes them to an
// HBase table some seconds later. Only benchmarks use it, so [Names] omits it. The service listens on the first
// of two ports; its source documents the protocol.
func WriteBehind(ctx context.Context, c Config, ports [2]int, to Table) (argv []string, err error) {
	if c, err = c.complete(); err != nil {
		return nil, err
	}
	if err := installJars(ctx, c, "hazelcast"); err != nil {
		return nil, err
	}
	source := filepath.Join(c.Dir, "WriteBehind.java")
	if err := os.WriteFile(source, writeBehind, 0o644); err != nil {
		return nil, err
	}
	options := append(strings.Fields(hbaseJavaOptions()),
		"-cp", filepath.Join(c.Lib, "hazelcast", "*")+":"+filepath.Join(c.Lib, "hbase", "*"),
		source, strconv.Itoa(ports[0]), strconv.Itoa(ports[1]), to.ZooKeeper, to.Name, strconv.Itoa(writeDelay))
	return javaArgv(Node{Dir: c.Dir}, 1024, options...), nil
}
