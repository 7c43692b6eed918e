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
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/test/bufconn"

	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/clock"
	"github.com/playhead/playhead/internal/durable"
	"github.com/playhead/playhead/internal/trace"
	"github.com/playhead/playhead/internal/trust"
)

// Config configures a [Process]. Zero values select the defaults.
type Config struct {
	// Dir is the data directory; Open creates it if missing.
	Dir string
	// HTTP, RPC and Admin are the addresses of the API, the gRPC server and the admin port (defaults
	// 127.0.0.1:8080, :7070 and :7071).
	HTTP, RPC, Admin string
	// SecretFile has the secrets of tokens. The default is one that is generated and kept in the data directory.
	SecretFile string
	// KeysFile and Issuer verify further tokens, see [token.Config].
	KeysFile, Issuer string
	// InsecureRPC lets other machines call the gRPC server without a token of the scope admin.
	InsecureRPC bool
	// Audience is the required audience of tokens (default any).
	Audience string
	// Hosts are accepted Host names; IP addresses and names without a dot are always accepted.
	Hosts trust.Hosts
	// Origins are other sites whose pages may use the edge.
	Origins []string
	// Images are the sites of pictures on the history page.
	Images []string
	// UserRate limits a user's requests, messages and connections per second (default 10), UserBurst those at
	// once (default 60).
	UserRate, UserBurst float64
	// Memory is the process's memory in bytes (default 2 GiB or more), Files its file descriptors (default
	// 16,384). They scale stores, buffers and connections.
	Memory int64
	Files  int
	// Hold is the longest hold of a running viewing's key (default 120 s).
	Hold time.Duration
	// Keep is the number of cached records per user (default 1,000).
	Keep int
	// CompactAbove is the number of a user's records above which the archive compacts those older than a day
	// into segments (default 0: never).
	CompactAbove int
	// Summary is the retention of expired records' summaries. 0 keeps the stored setting, by default none.
	Summary time.Duration
	// Counted are the types whose records are counted (default none).
	Counted count.Types
	// Plays keeps the stream of plays, which GET /v1/plays reads.
	Plays bool
	// Breakable lets viewers of /flow stop the job, the archive and the queue, for demonstrations.
	Breakable bool
	// Watched is called when the first viewer opens /flow. It must return once its context is done, after the
	// last viewer leaves.
	Watched func(context.Context)
	// Rules are the rules of object types (default the standard ones).
	Rules *history.Rulebook
	// Webhook reports starts, completions and removals to a backend; nil disables it.
	Webhook *webhook.Sender
	// MaxClockGap is the tolerated distance of the clock from the trusted time (default [clock.DefaultBound]).
	MaxClockGap time.Duration
	// Wall is the machine's clock, without a monotonic part (default [time.Now]).
	Wall func() time.Time
	// LameDuck delays the stop after SIGTERM; see [run.Group]. Drain bounds the shutdown after it (default 20 s).
	LameDuck, Drain time.Duration
	// Terminate handles a request to stop at the admin port; nil refuses it.
	Terminate func()
	// Reload handles SIGHUP; see [run.Reloading]. Nil ignores the signal.
	Reload func(setUserRate func(rate, burst float64)) (restart []string, err error)
	// Tracer traces a sample of the requests; nil traces none.
	Tracer   *trace.Tracer
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
	tokens    *token.Verifier
	db        *pebble.DB
	queue     *memqueue.Queue
	listeners map[string]net.Listener
	service   *rpc.Server
	held      *aggregate.Aggregator
	archiver  *archive.Archiver
	counter   *counts.Counter
	dead      *deadLetterFile
	backups   sync.Mutex // held while a backup is made
	up        *uplink.Client
	inner     *bufconn.Listener      // the edge's way to the service; sockets would cost system calls
	faults    map[string]*flow.Fault // of the breakable parts, by name
}

// HTTP returns the address of the API.
func (p *Process) HTTP() string { return p.listeners["listen"].Addr().String() }

// RPC returns the address of the gRPC server.
func (p *Process) RPC() string { return p.listeners["rpc"].Addr().String() }

// Admin returns the address of health and metrics.
func (p *Process) Admin() string { return p.listeners["admin"].Addr().String() }

// Cache returns the embedded cache.
func (p *Process) Cache() *pebble.Cache { return p.db.Cache() }

// Archive returns the embedded archive.
func (p *Process) Archive() *pebble.Archive { return p.db.Archive() }

// Counters returns the totals of objects.
func (p *Process) Counters() *pebble.Counters { return p.db.Counters() }

// Queued returns the number of messages that the queue accepted, and their bytes.
func (p *Process) Queued() (messages, bytes int64) { return p.queue.Stats() }

// epochsFile, in the data directory, has a name for each start. A restored copy lacks later epochs, and thus
// the changes that apps have seen in them: see [rpc.Config].
const epochsFile = "epochs"

const maxEpochs = 1000

// beginEpoch adds an epoch to the directory and returns all epochs.
func beginEpoch(dir string) ([]string, error) {
	path := filepath.Join(dir, epochsFile)
	text, err := os.ReadFile(path) //nolint:gosec // the operator's directory
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("epochs of the data: %w", err)
	}
	epochs := append(strings.Fields(string(text)), rand.Text())
	epochs = epochs[max(0, len(epochs)-maxEpochs):]
	if err := durable.WriteFile(path, []byte(strings.Join(epochs, "\n")+"\n")); err != nil {
		return nil, fmt.Errorf("epochs of the data: %w", err)
	}
	return epochs, nil
}

// movedFile, in the data directory, has the address of the services that took its place. No process starts on it.
const movedFile = "moved"

// Moved marks a data directory as moved to other services, for good.
func Moved(dir, service string) error {
	return durable.WriteFile(filepath.Join(dir, movedFile), []byte(service+"\n"))
}

// IsMoved reports whether a data directory was marked by [Moved].
func IsMoved(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, movedFile))
	return err == nil
}

// clockFile, in the data directory, has the latest trusted time. It dates a restored copy.
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
			return durable.WriteFile(path, []byte(at.UTC().Format(time.RFC3339Nano)+"\n"))
		},
		Bound: p.cfg.MaxClockGap, Wall: p.cfg.Wall, Logger: p.cfg.Logger, Registry: p.cfg.Registry,
	})
	return p.clock.Begin(ctx)
}

// secretFile, in the data directory, holds the generated secret.
const secretFile = "token-secret"

// signingSecret returns the first secret of the file, or the generated one. The first start generates it, readable
// only by its user.
func signingSecret(cfg Config) ([]byte, error) {
	if cfg.SecretFile != "" {
		return token.ReadSecret(cfg.SecretFile)
	}
	text, err := ReadSecret(cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return makeSecret(filepath.Join(cfg.Dir, secretFile))
	}
	return text, err
}

// ReadSecret returns the secret that a process without [Config.SecretFile] generated in its data directory.
func ReadSecret(dir string) ([]byte, error) {
	path := filepath.Join(dir, secretFile)
	text, err := token.ReadSecret(path)
	if err == nil && !bytes.Equal(text, checked(text[:min(len(text), 2*token.MinSecret)])) {
		return nil, fmt.Errorf("token secret %s is damaged: restore it from a backup; without it, which ends all tokens, a start makes another", path)
	}
	return text, err
}

// checked appends the secret's checksum: a damaged secret would silently refuse all tokens.
func checked(secret []byte) []byte {
	return fmt.Appendf(slices.Clip(secret), "%08x", crc32.ChecksumIEEE(secret))
}

// makeSecret makes a secret: a crash leaves a whole one or none.
func makeSecret(path string) ([]byte, error) {
	raw := make([]byte, token.MinSecret)
	_, _ = rand.Read(raw) // never fails
	text := checked([]byte(hex.EncodeToString(raw)))
	if err := durable.WriteFile(path, append(text, '\n')); err != nil {
		return nil, fmt.Errorf("token secret: %w", err)
	}
	return text, nil
}

// Token returns a token for a user, for trials, signed with the secret of the start.
func (p *Process) Token(uid string, ttl time.Duration) (string, error) {
	return token.Mint(p.secret, uid, p.cfg.Audience, ttl)
}

const tokenTTL = 30 * 24 * time.Hour

// Greet prints all addresses and a token for trials.
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
