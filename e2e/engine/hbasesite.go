package engine

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
)

// hbaseSite renders hbase-site.xml, with more properties than the usual ones.
func hbaseSite(n Node, more ...[2]string) []byte {
	var b bytes.Buffer
	b.WriteString("<configuration>\n")
	for _, p := range append(hbaseProperties(n), more...) {
		fmt.Fprintf(&b, "  <property><name>%s</name><value>", p[0])
		_ = xml.EscapeText(&b, []byte(p[1])) // a Buffer takes every write
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return b.Bytes()
}

// hbaseProperties is one Java process that is ZooKeeper, master and region
// server on local files. Without memstore chunks off, 256 regions of 2 MB
// would fill the heap; the last three properties halve the time to start.
func hbaseProperties(n Node) [][2]string {
	root := url.URL{Scheme: "file", Path: filepath.Join(n.Dir, "root")}
	return [][2]string{
		{"hbase.cluster.distributed", "false"},
		{"hbase.rootdir", root.String()},
		{"hbase.tmp.dir", filepath.Join(n.Dir, "tmp")},
		{"hbase.zookeeper.property.dataDir", filepath.Join(n.Dir, "zk")},
		{"hbase.zookeeper.quorum", "127.0.0.1"},
		{"hbase.zookeeper.property.clientPort", strconv.Itoa(n.Ports[0])},
		{"hbase.unsafe.stream.capability.enforce", "false"},
		{"hbase.wal.provider", "asyncfs"},
		{"hbase.master.hostname", "localhost"},
		{"hbase.unsafe.regionserver.hostname", "localhost"},
		{"hbase.master.ipc.address", "127.0.0.1"},
		{"hbase.regionserver.ipc.address", "127.0.0.1"},
		{"hbase.master.port", strconv.Itoa(n.Ports[1])},
		{"hbase.regionserver.port", strconv.Itoa(n.Ports[2])},
		{"hbase.master.info.port", "-1"},
		{"hbase.regionserver.info.port", "-1"},
		{"hbase.hregion.memstore.mslab.enabled", "false"},
		{"hbase.regionserver.msginterval", "500"},
		{"hbase.master.wait.on.regionservers.interval", "100"},
		{"hbase.master.wait.on.regionservers.timeout", "300"},
	}
}
