// Package kafka is the queue between services and jobs: one topic of batches of announced keys, consumed by one
// group of jobs.
//
// A flush becomes one message per partition, never one per key. Keys are hints and may repeat. Any doubt ends in
// a retry: a publish that timed out counts as unsent, and an uncommitted delivery is delivered again.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/breaker"
	"github.com/playhead/playhead/internal/trace"
)

// Queue is a [history.Publisher] and a [history.Consumer]. Its methods may be called from many goroutines; each
// Consume is one member of the group.
type Queue struct {
	cfg       Config
	mechanism sasl.Mechanism
	transport *kafka.Transport
	client    *kafka.Client
	brokers   map[kafka.Broker]*broker // used so far
	leading   []kafka.Broker           // by partition, of the last metadata
	brokersMu sync.Mutex               // guards brokers and leading
	decode    func([]byte) ([]history.Announcement, error)

	messages, bytes atomic.Int64 // published
	skipped         atomic.Int64 // gone before they could be read
	current         atomic.Pointer[assignment]
	generations     atomic.Int64 // begun

	seen        atomic.Bool   // The topic has existed.
	recreating  chan struct{} // Holds a token while the topic is recreated.
	recreatedAt time.Time     // Time of the last attempt; guarded by recreating.
	missing     bool          // The last attempt failed; guarded by recreating.
}

// clientID identifies this client in brokers' logs and quotas.
const clientID = "playhead"

// dialTimeout bounds one connection attempt, with TLS and authentication.
const dialTimeout = 5 * time.Second

// metadataTTL is the maximum age of the transport's partition metadata, and the timeout of its refresh.
const metadataTTL = 3 * time.Second

// maxInFlight limits concurrent produce requests per broker, and hence connections: each request occupies one.
const maxInFlight = 16

// New returns a queue without any I/O. The caller closes it.
func New(cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open kafka: %w", err)
	}
	mechanism, err := cfg.mechanism()
	if err != nil {
		return nil, fmt.Errorf("open kafka: %w", err)
	}
	return newQueue(cfg, mechanism), nil
}

// Ping reports whether a broker answers. It fails with [history.ErrUnavailable].
func (q *Queue) Ping(ctx context.Context) error {
	// A metadata request would be served from the transport's cache.
	if _, err := q.client.ApiVersions(ctx, &kafka.ApiVersionsRequest{}); err != nil {
		return fmt.Errorf("ping: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}

func newQueue(cfg Config, mechanism sasl.Mechanism) *Queue {
	t := &kafka.Transport{
		ClientID:       clientID,
		DialTimeout:    dialTimeout,
		MetadataTTL:    metadataTTL,
		MetadataTopics: []string{cfg.Topic},
		TLS:            cfg.TLS,
		SASL:           mechanism,
	}
	return &Queue{
		cfg:        cfg,
		mechanism:  mechanism,
		transport:  t,
		client:     &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Transport: t},
		brokers:    map[kafka.Broker]*broker{},
		recreating: make(chan struct{}, 1),
		decode:     wire.Batch,
	}
}

// Close closes idle connections. No other method may be running or called.
func (q *Queue) Close() error {
	q.transport.CloseIdleConnections()
	return nil
}

// Stats returns the number of acknowledged messages, and their bytes before compression.
func (q *Queue) Stats() (messages, bytes int64) {
	return q.messages.Load(), q.bytes.Load()
}

// Skipped returns how many messages were lost to retention or brokers before this process read them. Their keys are
// still dirty.
func (q *Queue) Skipped() int64 { return q.skipped.Load() }

// Progress is how far a consumer is. Without an assignment only Generations is set.
type Progress struct {
	Generation  int32         // Of the group.
	Generations int64         // Begun by this process.
	Lag         int64         // Messages of its partitions that are not committed.
	Oldest      time.Duration // Age of the oldest message that was read and is not committed.
}

// Progress returns how far this process is.
func (q *Queue) Progress() Progress {
	p := Progress{Generations: q.generations.Load()}
	if c := q.current.Load(); c != nil {
		p.Generation = c.gen.ID
		p.Lag, p.Oldest = c.lag()
	}
	return p
}

func (q *Queue) addrs() string { return strings.Join(q.cfg.Brokers, ",") }

// Config locates and names the queue. Only Brokers is required.
type Config struct {
	Brokers []string // host:port of some brokers
	Topic   string   // default history.flush
	Group   string   // default history-job
	// Partitions and Replication apply to a topic that Open creates. Defaults: 16 partitions; three replicas, or
	// one on each broker.
	Partitions  int
	Replication int
	// MaxBytes bounds a message before compression; default [wire.MaxMessage].
	MaxBytes int
	// SessionTimeout is how long a job may be silent before others take over its partitions; default 10 s.
	SessionTimeout time.Duration

	TLS *tls.Config // nil for plain text
	// Username and Password authenticate with Mechanism: plain (default; use it with TLS), scram-sha-256 or
	// scram-sha-512. Without Username there is no authentication.
	Username, Password, Mechanism string
	// Secret returns the password for a new connection, instead of Password, when it may change.
	Secret func() (string, error)

	Tracer *trace.Tracer // nil traces nothing
	Logger *slog.Logger  // nil discards
}

func (c Config) withDefaults() Config {
	c.Topic = cmp.Or(c.Topic, "history.flush")
	c.Group = cmp.Or(c.Group, "history-job")
	c.Partitions = cmp.Or(c.Partitions, 16)
	c.MaxBytes = cmp.Or(c.MaxBytes, wire.MaxMessage)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 10*time.Second)
	c.Mechanism = cmp.Or(c.Mechanism, "plain")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	switch {
	case len(c.Brokers) == 0:
		return errors.New("no broker given, want host:port")
	case c.Partitions < 1 || c.Partitions > 1024:
		return fmt.Errorf("%d partitions, want 1 to 1024", c.Partitions)
	case c.Replication < 0:
		return fmt.Errorf("replication factor %d, want 0 or more", c.Replication)
	case c.MaxBytes < 1024 || c.MaxBytes > 1_000_000:
		return fmt.Errorf("messages of %d bytes, want 1024 to 1000000", c.MaxBytes)
	case c.SessionTimeout < 10*time.Millisecond:
		return fmt.Errorf("session timeout %v, want at least 10ms", c.SessionTimeout)
	}
	return nil
}

// mechanism returns nil without a username.
func (c Config) mechanism() (sasl.Mechanism, error) {
	if c.Username == "" {
		return nil, nil
	}
	if c.Secret != nil {
		fixed := c
		fixed.Secret = nil
		m, err := fixed.mechanism()
		return rotated{m, c}, err
	}
	switch c.Mechanism {
	case "plain":
		return plain.Mechanism{Username: c.Username, Password: c.Password}, nil
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, c.Username, c.Password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, c.Username, c.Password)
	default:
		return nil, fmt.Errorf("SASL mechanism %q, want plain, scram-sha-256 or scram-sha-512", c.Mechanism)
	}
}

// broker limits the requests to one broker. A silent broker takes no slots from others, and its requests soon fail
// fast.
type broker struct {
	slots   chan struct{} // one token per produce request in flight
	breaker *breaker.Breaker
}

// broker returns the limits of a broker.
func (q *Queue) broker(of kafka.Broker) *broker {
	q.brokersMu.Lock()
	defer q.brokersMu.Unlock()
	if q.brokers[of] == nil {
		q.brokers[of] = &broker{make(chan struct{}, maxInFlight), breaker.New(breaker.Config{Name: "kafka " + addr(of), Log: q.cfg.Logger, Patience: slowAfter})}
	}
	return q.brokers[of]
}

func addr(b kafka.Broker) string { return net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) }

// Silent returns by address whether requests to a broker that leads partitions fail because it answers none.
func (q *Queue) Silent() map[string]bool {
	q.brokersMu.Lock()
	defer q.brokersMu.Unlock()
	silent := make(map[string]bool)
	for _, leader := range q.leading {
		if b := q.brokers[leader]; b != nil {
			silent[addr(leader)] = b.breaker.Open()
		}
	}
	return silent
}

// slowAfter is the least duration of an unanswered request that counts as a failure of its broker.
const slowAfter = time.Second

// publishTimeout bounds calls with a longer deadline.
const publishTimeout = 10 * time.Second

// rotated authenticates each connection with the password of that moment.
type rotated struct {
	sasl.Mechanism
	cfg Config
}

// Start begins an authentication.
func (r rotated) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	password, err := r.cfg.Secret()
	if err != nil {
		return nil, nil, err
	}
	fixed := r.cfg
	fixed.Secret, fixed.Password = nil, password
	m, err := fixed.mechanism()
	if err != nil {
		return nil, nil, err
	}
	return m.Start(ctx)
}
