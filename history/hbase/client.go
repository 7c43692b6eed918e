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

// dialer makes the connections of one client. It remembers the last failure, which the client only logs, and stops
// the client's endless retries on close.
type dialer struct {
	net net.Dialer

	mu     sync.Mutex
	closed bool
	failed failure
}

// failure is a failed connection, until its server accepts one.
type failure struct {
	addr string
	err  error
	at   time.Time
}

// failureAge is how long a failure explains an error: the client tries again sooner.
const failureAge = 30 * time.Second

// patience is how long a server may be silent while calls are pending.
const patience = 10 * time.Second

// user is the name under which calls are made. HBase believes it; its rights guard against mistakes.
const user = "playhead"

// options returns the options of a client that uses d. Flushing is immediate because calls are already batched.
func (d *dialer) options() []gohbase.Option {
	return []gohbase.Option{
		gohbase.EffectiveUser(user),
		gohbase.FlushInterval(0),
		gohbase.ZookeeperTimeout(patience),
		gohbase.RegionReadTimeout(patience),
		gohbase.ZooKeeperDialer(d.dial),
		gohbase.RegionDialer(d.dialRegion),
	}
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.failed = failure{addr, err, time.Now()}
	} else if d.failed.addr == addr {
		d.failed = failure{}
	}
	return conn, err
}

// dialRegion runs in a goroutine of the client that retries forever, even after Close. Only Goexit stops it.
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

// reason describes a failed connection of now, for error texts.
func (d *dialer) reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed.err == nil || time.Since(d.failed.at) > failureAge {
		return ""
	}
	return fmt.Sprintf(" (last failed connection: %v)", d.failed.err)
}

// reach fails if no ZooKeeper host accepts a connection; the client would retry silently.
func (d *dialer) reach(ctx context.Context, quorum string) (err error) {
	for host := range strings.SplitSeq(quorum, ",") {
		var conn net.Conn
		if conn, err = d.dial(ctx, "tcp", strings.TrimSpace(host)); err == nil {
			return conn.Close()
		}
	}
	return err
}

// silence mutes the client's process-wide logger, which prints one line per row of a failed batch. Its fatal
// messages end only a goroutine of the client; callers have deadlines.
var silence = sync.OnceFunc(func() {
	logrus.SetLevel(logrus.PanicLevel)
	logrus.StandardLogger().ExitFunc = func(int) { runtime.Goexit() }
})

// conn times out a server that stays silent while answers are pending. The client's own timeout restarts with each
// call, so it never fires under load. conn embeds the concrete type, which writes a batch with one writev.
type conn struct {
	*net.TCPConn
	patience time.Duration

	mu       sync.Mutex
	awaiting bool
}

// SetReadDeadline starts the wait, or ends it with the zero time. A later call does not extend a running wait.
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

// Read restarts the timeout after each read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.awaiting {
		_ = c.TCPConn.SetReadDeadline(time.Now().Add(c.patience)) // fails only once closed
	}
	return n, err
}

// javaPrefix begins errors that are answers of HBase. They have no Go type; the text names the exception.
const javaPrefix = "HBase Java exception "

const (
	doNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException"
	noAccess   = "org.apache.hadoop.hbase.security.AccessDeniedException"
	noFamily   = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException"
)

// javaClass returns the class of HBase's exception, or "" for other errors.
func javaClass(err error) string {
	_, rest, _ := strings.Cut(err.Error(), javaPrefix)
	class, _, _ := strings.Cut(rest, ":")
	return class
}

// permanent reports whether HBase refused the call for good.
func permanent(err error) bool {
	switch javaClass(err) {
	case noFamily,
		"org.apache.hadoop.hbase.exceptions.FailedSanityCheckException",
		doNotRetry:
		return true
	}
	return false
}

// mayBeOthers reports whether another call of the batch may have caused this failure.
func mayBeOthers(err error) bool { return err != nil && javaClass(err) == doNotRetry }

// classify wraps err in [history.ErrPermanent] or [history.ErrUnavailable].
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

// brief strips the Java stack trace.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n\tat ")
	return strings.ReplaceAll(text, "\n", " ")
}
