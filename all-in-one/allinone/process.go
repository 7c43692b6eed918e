package allinone

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/job"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/clock"
	"github.com/playhead/playhead/internal/trust"
)

// Config says where a process keeps its data and listens. Zero values take the
// defaults.
type Config struct {
	// Dir is the data directory, created when missing.
	Dir string
	// HTTP, RPC and Admin are the addresses of the API, the gRPC server, and of health,
	// metrics and profiles (defaults 127.0.0.1:8080, :7070 and :7071).
	HTTP, RPC, Admin string
	// Secret signs tokens. Without one the process makes its own and keeps it in the
	// data directory.
	Secret []byte
	// Audience is what tokens must be made out to; any by default.
	Audience string
	// Hosts are the names under which it may be asked, besides addresses and names without a dot.
	Hosts trust.Hosts
	// Origins are the sites whose pages may use the edge, besides its own.
	Origins []string
	// Images are the sites that the history page takes pictures from.
	Images []string
	// UserRate is how many requests, messages and connections a user may come with in a
	// second (default 10), UserBurst how many at once (default 60).
	UserRate, UserBurst float64
	// Memory is how many bytes the process may take (default 2 GiB or more), Files how many file descriptors it may have
	// open (default 16,384). Stores, buffers and connections are sized by them.
	Memory int64
	Files  int
	// Hold is how long a key of a running viewing is held (default 120 s).
	Hold time.Duration
	// Keep is how many records of a user the cache keeps (default 1,000).
	Keep int
	// CompactAbove is from how many records of a user on the archive moves what is older than a day into
	// parts (default 0: nobody's).
	CompactAbove int
	// Summary is for how long summaries of expired records are kept; 0 keeps to the time that was set before, or keeps none.
	Summary time.Duration
	// Breakable lets those who look at the page "/flow" stop the job, the archive and the queue.
	// It is for demonstrations.
	Breakable bool
	// Watched is called when somebody begins to look at that page. Its context ends when
	// nobody does any more, and then it returns.
	Watched func(context.Context)
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules *history.Rulebook
	// Webhook tells a backend what was begun, completed and removed. Nil tells nobody.
	Webhook *webhook.Sender
	// MaxClockGap is how far the clock may be from the trusted time (default [clock.DefaultBound]).
	MaxClockGap time.Duration
	// Wall is the clock of the machine, without a monotonic part; nil means [time.Now].
	Wall func() time.Time
	// Drain bounds the stop (default 20 s).
	Drain    time.Duration
	Logger   *slog.Logger
	Registry *prometheus.Registry
}

func (c Config) withDefaults() Config {
	c.HTTP = cmp.Or(c.HTTP, "127.0.0.1:8080")
	c.RPC = cmp.Or(c.RPC, "127.0.0.1:7070")
	c.Admin = cmp.Or(c.Admin, "127.0.0.1:7071")
	c.Files = cmp.Or(c.Files, 16<<10)
	c.Hold = cmp.Or(c.Hold, 120*time.Second)
	c.Drain = cmp.Or(c.Drain, 20*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Registry = cmp.Or(c.Registry, prometheus.NewRegistry())
	if c.Wall == nil {
		c.Wall = func() time.Time { return time.Now().Round(0) }
	}
	return c
}

// Process is an opened all-in-one. [Process.Run] serves.
type Process struct {
	cfg       Config
	clock     *clock.Trusted
	secret    []byte
	db        *pebble.DB
	queue     *memqueue.Queue
	listeners map[string]net.Listener
	service   *rpc.Server
	held      *aggregate.Aggregator
	job       *job.Job
	up        *uplink.Client
	faults    map[string]*flow.Fault // of the parts that may be stopped, by name
}

// HTTP returns the address of the API, RPC that of the gRPC server.
func (p *Process) HTTP() string { return p.listeners["listen"].Addr().String() }

// RPC returns the address of the gRPC server.
func (p *Process) RPC() string { return p.listeners["rpc"].Addr().String() }

// Admin returns the address of health and metrics.
func (p *Process) Admin() string { return p.listeners["admin"].Addr().String() }

// Cache returns the embedded cache.
func (p *Process) Cache() history.Cache { return p.db.Cache() }

// Archive returns the embedded archive.
func (p *Process) Archive() history.Archive { return p.db.Archive() }

// Queued returns what the queue has promoted: messages and their bytes.
func (p *Process) Queued() (messages, bytes int64) { return p.queue.Stats() }

// epochsFile has, in the data directory, a name for each start. A copy of the directory that is put back does not know those
// that came after it, and so not what apps were told then: see [rpc.Config].
const epochsFile = "epochs"

// maxEpochs bounds how many starts a directory knows.
const maxEpochs = 1000

// beginEpoch adds another epoch to those that the directory knows, and returns them.
func beginEpoch(dir string) ([]string, error) {
	path := filepath.Join(dir, epochsFile)
	text, err := os.ReadFile(path) //nolint:gosec // the operator's directory
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lives of the data: %w", err)
	}
	epochs := append(strings.Fields(string(text)), rand.Text())
	epochs = epochs[max(0, len(epochs)-maxEpochs):]
	err = errors.Join(os.WriteFile(path+".new", []byte(strings.Join(epochs, "\n")+"\n"), 0o600), os.Rename(path+".new", path))
	if err != nil {
		return nil, fmt.Errorf("lives of the data: %w", err)
	}
	return epochs, nil
}

// clockFile has, in the data directory, the latest time that was trusted. A copy of the directory that is put back is as old as its
// time says.
const clockFile = "clock"

func (p *Process) openClock(ctx context.Context) error {
	path := filepath.Join(p.cfg.Dir, clockFile)
	p.clock = clock.NewTrusted(clock.TrustedConfig{
		Load: func(context.Context) (at time.Time, err error) {
			text, err := os.ReadFile(path) //nolint:gosec // the operator's directory
			if errors.Is(err, fs.ErrNotExist) {
				return at, nil
			}
			if err == nil {
				at, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
			}
			return at, err
		},
		Save: func(_ context.Context, at time.Time, _ bool) error {
			return writeDurably(path, at.UTC().Format(time.RFC3339Nano)+"\n")
		},
		Bound: p.cfg.MaxClockGap, Wall: p.cfg.Wall, Logger: p.cfg.Logger, Registry: p.cfg.Registry,
	})
	return p.clock.Begin(ctx)
}

// writeDurably leaves the former content or the new one, whatever fails.
func writeDurably(path, text string) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // the operator's directory
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// secretFile holds, in the data directory, the secret that the process made.
const secretFile = "token-secret"

// signingSecret returns the secret that was given, or the process's own, which is made at
// the first start and readable by its user alone.
func signingSecret(cfg Config) ([]byte, error) {
	if len(cfg.Secret) > 0 {
		return cfg.Secret, nil
	}
	path := filepath.Join(cfg.Dir, secretFile)
	text, err := token.ReadSecret(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return makeSecret(path)
	case err == nil && !bytes.Equal(text, checked(text[:min(len(text), 2*token.MinSecret)])):
		return nil, fmt.Errorf("token secret %s is damaged: restore it from a backup; without it, which ends all tokens, a start makes another", path)
	}
	return text, err
}

// checked adds its checksum to a secret: a damaged one would refuse all tokens.
func checked(secret []byte) []byte {
	return fmt.Appendf(slices.Clip(secret), "%08x", crc32.ChecksumIEEE(secret))
}

// makeSecret writes the file under another name first: a crash leaves a whole
// signingSecret or none.
func makeSecret(path string) ([]byte, error) {
	raw := make([]byte, token.MinSecret)
	_, _ = rand.Read(raw) // never fails
	text := checked([]byte(hex.EncodeToString(raw)))
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return nil, fmt.Errorf("token secret: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, fmt.Errorf("token secret: %w", err)
	}
	return text, nil
}

// Token returns a token for a user, for trying things.
func (p *Process) Token(uid string, ttl time.Duration) (string, error) {
	return token.Mint(p.secret, uid, p.cfg.Audience, ttl)
}

// tokenTTL is how long the printed token is good for.
const tokenTTL = 30 * 24 * time.Hour

// Greet prints where everything is, and a token for trying things.
func (p *Process) Greet(out io.Writer, uid string) {
	token, err := p.Token(uid, tokenTTL)
	if err != nil {
		token = fmt.Sprintf("(none: %v)", err)
	}
	fmt.Fprintf(out, `Playhead is running, until Ctrl-C.

  your page  http://%s/#token=%s
  HTTP API   http://%[1]s   (http://%[1]s/docs describes it)
  gRPC       %[3]s
  metrics    http://%[4]s/metrics
  data       %[5]s

A token for user %[6]q, good for 30 days:

  export TOKEN=%[2]s

Report where somebody stopped, and read it back:

  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/heartbeats --json '{"heartbeats":[{"object":{"id":"100","type":1},
    "kind":"stop","position_ms":90000,"duration_ms":600000,"event_time":"'$(date -u +%%FT%%TZ)'"}]}'
  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/history
`, p.HTTP(), token, p.RPC(), p.listeners["admin"].Addr(), p.cfg.Dir, uid)
}
