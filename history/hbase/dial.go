package hbase

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tsuna/gohbase"
)

// dialer makes the connections of one client. It remembers why the last one did not
// come about, which the client only logs, and it ends the client's efforts.
type dialer struct {
	net net.Dialer

	mu     sync.Mutex
	closed bool
	err    error
}

// patience is how long a server that owes an answer may be silent.
const patience = 10 * time.Second

// options of a client that uses d. Nothing waits to be sent together with later
// calls: whoever has many calls sends them as a batch.
func (d *dialer) options() []gohbase.Option {
	return []gohbase.Option{
		gohbase.FlushInterval(0),
		gohbase.ZookeeperTimeout(patience),
		gohbase.RegionReadTimeout(patience),
		gohbase.ZooKeeperDialer(d.dial),
		gohbase.RegionDialer(d.dialRegion),
	}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, addr)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.err = err
	}
	return conn, err
}

// dialRegion runs in a goroutine of the client that goes on trying until it has a
// connection, even when the client was closed. There is no other way to end it.
func (d *dialer) dialRegion(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		runtime.Goexit()
	}
	c, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &conn{TCPConn: c.(*net.TCPConn), patience: patience}, nil
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// reason says in a few words which connection last did not come about, and why.
func (d *dialer) reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return ""
	}
	return fmt.Sprintf(" (last failed connection: %v)", d.err)
}

// reach fails when none of the ZooKeeper hosts takes a connection. The client
// itself would go on trying in silence.
func (d *dialer) reach(ctx context.Context, quorum string) error {
	for host := range strings.SplitSeq(quorum, ",") {
		conn, err := d.dial(ctx, "tcp", strings.TrimSpace(host))
		if err == nil {
			return conn.Close()
		}
	}
	return d.err
}

// silence quiets the log that the client shares with the whole process: a line per
// row of a failed batch says nothing that the errors do not say. What it calls fatal
// ends a goroutine of the client, not the process; its callers have their deadlines.
var silence = sync.OnceFunc(func() {
	logrus.SetLevel(logrus.PanicLevel)
	logrus.StandardLogger().ExitFunc = func(int) { runtime.Goexit() }
})
