// Package kafka is the queue between services and jobs over Kafka: one topic whose
// messages are batches of announced keys, and one group of jobs that divide its
// partitions.
//
// A message is never one key: a flush becomes one message per partition. Keys are
// hints that may come twice, so that every doubt ends in sending again: a publish
// that timed out is unsent, a delivery that was not committed is delivered anew.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// clientID is the name under which brokers log and throttle.
const clientID = "playhead"

// dialTimeout bounds one attempt to connect, with TLS and authentication.
const dialTimeout = 5 * time.Second

// metadataTTL is after how long at most the transport asks who leads the partitions,
// and within what time it wants the answer.
const metadataTTL = 3 * time.Second

// maxInFlight bounds the produce requests that wait for one broker, and with them the
// connections: each waits on a connection of its own.
const maxInFlight = 16

// Queue is a [history.Publisher] and a [history.Consumer]. Its methods may be
// called from many goroutines; each Consume is one member of the group.
type Queue struct {
	cfg       Config
	mechanism sasl.Mechanism
	transport *kafka.Transport
	client    *kafka.Client
	lanes     map[int]*lane // by broker
	laning    sync.Mutex    // guards lanes
	decode    func([]byte) ([]history.Announcement, error)

	messages, bytes atomic.Int64 // published
	skipped         atomic.Int64 // messages that were gone before they could be read

	restoring chan struct{} // holds a token while the topic is made again
	restored  time.Time     // when that was last tried, guarded by restoring
}

// Open is [New] and [Queue.Prepare]. The caller closes the queue.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := q.Prepare(ctx); err != nil {
		q.transport.CloseIdleConnections()
		return nil, err
	}
	return q, nil
}

// New returns a queue over brokers that nobody has asked anything yet. The caller
// closes it.
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

// Prepare makes sure that the brokers answer, and creates the topic when it is
// missing. It fails with [history.ErrUnavailable] when another try may succeed: not
// for brokers that refuse this user or the topic.
func (q *Queue) Prepare(ctx context.Context) error {
	err := q.prepare(ctx)
	switch e := kafka.Error(0); {
	case err == nil:
		return nil
	case errors.As(err, &e) && !e.Temporary():
		return fmt.Errorf("open kafka: %w", err)
	default:
		return fmt.Errorf("open kafka: %w: %w", history.ErrUnavailable, err)
	}
}

// Ping asks one broker for a sign of life. It fails with [history.ErrUnavailable].
func (q *Queue) Ping(ctx context.Context) error {
	// What the topic looks like is answered from memory, this is not.
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
		cfg:       cfg,
		mechanism: mechanism,
		transport: t,
		client:    &kafka.Client{Addr: kafka.TCP(cfg.Brokers...), Transport: t},
		lanes:     map[int]*lane{},
		restoring: make(chan struct{}, 1),
		decode:    wire.Batch,
	}
}

// Close gives the connections back. No other method may be running or called.
func (q *Queue) Close() error {
	q.transport.CloseIdleConnections()
	return nil
}

// Stats returns how many messages were published and acknowledged, and their bytes
// before compression.
func (q *Queue) Stats() (messages, bytes int64) {
	return q.messages.Load(), q.bytes.Load()
}

// Skipped returns how many messages this process was to read and could not, because
// retention or a loss of the brokers had taken them. Their keys are still marked dirty.
func (q *Queue) Skipped() int64 { return q.skipped.Load() }

func (q *Queue) brokers() string { return strings.Join(q.cfg.Brokers, ",") }
