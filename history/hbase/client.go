package hbase

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tsuna/gohbase"

	"github.com/playhead/playhead/history"
)

// dialer makes the connections of one client. It remembers why the last one failed, which the client only logs, and it ends the client's efforts.
type dialer struct {
	net net.Dialer

	mu     sync.Mutex
	closed bool
	err    error
}

// patience is how long a server may be silent before it has answered.
const patience = 10 * time.Second

// options of a client that uses d. Nothing waits to be sent together with later
// calls: many calls are sent as a batch.
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
// row of a failed batch says nothing that the errors do not say. A message that it calls fatal
// ends a goroutine of the client, not the process; its callers have their deadlines.
var silence = sync.OnceFunc(func() {
	logrus.SetLevel(logrus.PanicLevel)
	logrus.StandardLogger().ExitFunc = func(int) { runtime.Goexit() }
})

// conn gives up on a server that is silent for too long while something is awaited.
// The client would: but it begins to count anew with each call that it sends, so
// that under load a server which vanished without a word is never given up. It
// embeds the concrete type because only that writes a whole batch at once.
type conn struct {
	*net.TCPConn
	patience time.Duration

	mu       sync.Mutex
	awaiting bool
}

// SetReadDeadline lets the client say that it waits, and with the zero time that it
// no longer does. While it waits it cannot put the end off.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.awaiting
	c.awaiting = !t.IsZero()
	if was && c.awaiting {
		return nil
	}
	return c.TCPConn.SetReadDeadline(t)
}

// Read counts the silence from what was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.awaiting {
		_ = c.TCPConn.SetReadDeadline(time.Now().Add(c.patience)) // fails only once closed
	}
	return n, err
}

// javaPrefix begins the client's errors that are answers of HBase. There is no type
// for them: the class of the exception is in the text.
const javaPrefix = "HBase Java exception "

const (
	doNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException"
	noFamily   = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"
)

// javaClass returns the class of the exception that HBase answered with, "" for
// any other error.
func javaClass(err error) string {
	_, rest, _ := strings.Cut(err.Error(), javaPrefix)
	class, _, _ := strings.Cut(rest, ":")
	return class
}

// permanent reports whether HBase refused for good what was sent.
func permanent(err error) bool {
	switch javaClass(err) {
	case noFamily,
		"org.apache.hadoop.hbase.exceptions.FailedSanityCheckException",
		doNotRetry:
		return true
	}
	return false
}

// mayBeOthers reports whether a call of a batch may have failed for what another one was.
func mayBeOthers(err error) bool { return err != nil && javaClass(err) == doNotRetry }

// classify wraps err in the sentinel that says whether trying again is of use.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, history.ErrUnavailable):
		return err
	case permanent(err):
		return fmt.Errorf("%w: %s", history.ErrPermanent, brief(err))
	case errors.Is(err, gohbase.ErrClientClosed):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, history.ErrClosed)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %s", history.ErrUnavailable, brief(err))
}

// brief cuts the Java stack off.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n\tat ")
	return strings.ReplaceAll(text, "\n", " ")
}
