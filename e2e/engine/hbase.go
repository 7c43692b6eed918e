package engine

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func hbaseKind() kind {
	return kind{
		name:    "hbase",
		ports:   [][]int{{30, 31, 32}}, // ZooKeeper, master, region server
		limit:   3 * time.Minute,
		grace:   time.Minute, // a clean stop flushes and closes every region
		install: hbaseInstall,
		prepare: hbasePrepare,
		argv:    hbaseArgv,
		ready:   hbaseReady,
	}
}

// hbaseInstall also checks the name localhost: HBase cannot give clients an address instead.
func hbaseInstall(ctx context.Context, c Config) error {
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", "localhost")
	if err != nil {
		return fmt.Errorf("localhost must resolve to 127.0.0.1: %w", err)
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Unmap() == loopback }) {
		return fmt.Errorf("localhost must resolve to 127.0.0.1, not to %v", ips)
	}
	return installJars(ctx, c, "hbase")
}

func hbaseArgv(c Config, n Node) []string {
	conf := filepath.Join(n.Dir, "conf")
	return javaArgv(n, 512,
		"@"+filepath.Join(conf, "java.options"), "-cp", conf+":"+filepath.Join(c.Lib, "hbase", "*"),
		"org.apache.hadoop.hbase.master.HMaster", "start")
}

// hbasePrepare writes the files that HBase reads from its class path.
func hbasePrepare(_ context.Context, c Config, n Node) error {
	conf := filepath.Join(n.Dir, "conf")
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(conf, "hbase-site.xml"), hbaseSite(n, c.HBase...), 0o644),
		os.WriteFile(filepath.Join(conf, "log4j.properties"), []byte(hbaseLogging), 0o644),
		os.WriteFile(filepath.Join(conf, "java.options"), []byte(hbaseJavaOptions()), 0o644),
	)
}

// hbaseReady relies on the log: the ports open long before tables work.
func hbaseReady(_ context.Context, n Node) error {
	ready, err := n.logged("Master has completed initialization")
	if err == nil && !ready {
		err = errors.New("master is still initializing")
	}
	return err
}

const hbaseLogging = `log4j.rootLogger=INFO,console
log4j.logger.org.apache.zookeeper=WARN
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
`

// hbaseJavaOptions opens the packages that HBase and Netty access by reflection, closed since Java 17.
func hbaseJavaOptions() string {
	var b strings.Builder
	for _, pkg := range []string{
		"java.lang", "java.lang.reflect", "java.io", "java.nio", "sun.nio.ch",
		"java.util", "java.util.concurrent", "jdk.internal.ref",
	} {
		fmt.Fprintf(&b, "--add-opens=java.base/%s=ALL-UNNAMED\n", pkg)
	}
	b.WriteString(`--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED
--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED
-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true
-Djava.net.preferIPv4Stack=true
`)
	return b.String()
}

// hbaseSite renders hbase-site.xml with extra properties.
func hbaseSite(n Node, more ...[2]string) []byte {
	var b bytes.Buffer
	b.WriteString("<configuration>\n")
	for _, p := range append(hbaseProperties(n), more...) {
		fmt.Fprintf(&b, "  <property><name>%s</name><value>", p[0])
		_ = xml.EscapeText(&b, []byte(p[1])) // a Buffer never fails
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return b.Bytes()
}

// hbaseProperties configures one Java process as ZooKeeper, master and region server on local files. Memstore
// chunks are off: 256 regions of 2 MB would fill the heap. The last three properties halve the start time.
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
