// Package client reports what a player does over the edge's WebSocket. It keeps every
// heartbeat until the edge has answered it, and so survives connections that break and
// an edge that is away: what was not answered is sent again, which counts once.
package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Config configures a [Client]. Zero values take the defaults; URL and Token have none.
type Config struct {
	// URL is the edge's, such as https://edge.example.com.
	URL string
	// Token returns a token that is valid now. It is asked for every connection.
	Token func(context.Context) (string, error)
	// Answered is told what became of a heartbeat, once, from the goroutine of Run. Its
	// status is never unavailable: those are sent again.
	Answered func(*historyv1.Heartbeat, historyv1.Status)
	// Changed, when set, is told what others change in the user's history, from a
	// goroutine of Run that reads answers too. On each connection the first change says
	// resync, as soon as nothing can be missed any more: what was read before may be old.
	Changed func(*historyv1.Change)
	// Queue is how many heartbeats are kept at most (default 1,000, never less than 200).
	Queue int
	// Patience is how long the edge may take to connect or to answer (default 10 s).
	Patience time.Duration
	// MinWait and MaxWait bound the time until the next attempt, which doubles with every
	// one that fails and of which a random part is waited (defaults 500 ms and 30 s).
	MinWait, MaxWait time.Duration
	HTTP             *http.Client
	Logger           *slog.Logger
}

// ErrRefused means that the edge will never take this client's connections.
var ErrRefused = errors.New("refused for good")

// Client sends heartbeats in the order of their reports. Its methods may be called from
// many goroutines.
type Client struct {
	cfg   Config
	queue *queue
}

// New returns a client that keeps what is reported until [Client.Run] sends it.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" || cfg.Token == nil {
		return nil, errors.New("client: URL and token are needed")
	}
	if cfg.Answered == nil {
		cfg.Answered = func(*historyv1.Heartbeat, historyv1.Status) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Queue == 0 {
		cfg.Queue = 1000
	}
	cfg.Patience = positive(cfg.Patience, 10*time.Second)
	cfg.MinWait = positive(cfg.MinWait, 500*time.Millisecond)
	cfg.MaxWait = positive(cfg.MaxWait, 30*time.Second)
	return &Client{cfg: cfg, queue: newQueue(max(cfg.Queue, 2*maxBatch))}, nil
}

func positive(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// maxHeartbeat bounds a heartbeat, in bytes. It is more than any that the service takes.
const maxHeartbeat = 4 << 10

// Report puts a heartbeat into the queue; the caller does not change it any more. Its
// uid is the token's, and what it says of one is not sent. It fails for what cannot be
// sent at all. A full queue drops the oldest report that a later one of the same viewing
// makes superfluous, or else the oldest.
func (c *Client) Report(h *historyv1.Heartbeat) error {
	h = proto.CloneOf(h)
	h.Uid, h.SentAtMs = "", 0
	text, err := proto.Marshal(h)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if len(text) > maxHeartbeat {
		return fmt.Errorf("report: %d bytes, want at most %d", len(text), maxHeartbeat)
	}
	c.queue.push(item{h, len(text)})
	return nil
}

// Flush waits until every heartbeat is answered.
func (c *Client) Flush(ctx context.Context) error {
	select {
	case <-c.queue.emptied():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush: %d heartbeats wait: %w", c.Waiting(), ctx.Err())
	}
}

// Waiting is how many heartbeats are not answered yet.
func (c *Client) Waiting() int { return c.queue.len() }

// Dropped is how many the queue had no room for.
func (c *Client) Dropped() int { return c.queue.lost() }
