package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/internal/run"
)

// Config says where history-service is and how to share its attention. Zero values
// take the defaults; Services has none.
type Config struct {
	// Services are the instances: host:port each, or dns:///name:port for all the
	// addresses that the name has at the time.
	Services []string
	// Batch is how many waiting heartbeats make a batch leave at once (default 100),
	// Linger how long one waits for others at most (default 2 ms).
	Batch  int
	Linger time.Duration
	// Queue bounds the heartbeats that wait for one instance (default 10,000). What
	// comes beyond is answered with Unavailable at once.
	Queue int
	// Patience is how long an instance may answer nothing while there is another one
	// (default 1 s). Then that one is asked as well, unless it takes long, too; and an
	// instance that is overtaken so is left.
	Patience time.Duration
	// Refresh is how often names are looked up (default 5 s), and Lookup does it (by
	// default the system's resolver).
	Refresh time.Duration
	Lookup  func(ctx context.Context, host string) ([]string, error)
	// TLS is spoken with the instances, nil means plain text.
	TLS *tls.Config
	// Dial connects to an instance (by default by TCP).
	Dial     func(ctx context.Context, addr string) (net.Conn, error)
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

const (
	// maxBatch and maxBytes bound a batch, by half of what the service takes in bytes. A
	// single call that is larger does not travel on the stream, which the service would end.
	maxBatch = 1000
	maxBytes = 512 << 10
)

func (c Config) withDefaults() Config {
	c.Batch = min(run.Default(c.Batch, 100), maxBatch)
	c.Linger = run.Default(c.Linger, 2*time.Millisecond)
	c.Queue = run.Default(c.Queue, 10_000)
	c.Patience = run.Default(c.Patience, time.Second)
	c.Refresh = run.Default(c.Refresh, 5*time.Second)
	if c.Lookup == nil {
		c.Lookup = net.DefaultResolver.LookupHost
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// parse tells addresses from names that must be looked up.
func parse(services []string) (addrs, names []string, err error) {
	for _, s := range services {
		name, isName := strings.CutPrefix(s, "dns:///")
		if _, _, err := net.SplitHostPort(name); err != nil {
			return nil, nil, fmt.Errorf("service %q: want host:port or dns:///name:port", s)
		}
		if isName {
			names = append(names, name)
		} else {
			addrs = append(addrs, s)
		}
	}
	return addrs, names, nil
}
