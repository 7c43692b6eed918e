// SPDX-License-Identifier: Apache-2.0

// Package client reports a player's heartbeats to Playhead's edge. It keeps each heartbeat until the edge
// answers, and retries after a lost connection or an outage. A retried heartbeat counts once.
//
// The outbox chooses what to send and interprets responses; it is independent of network and time. [Client.Run]
// maintains the connection: a WebSocket, or requests where a proxy blocks WebSockets.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Config configures a [Client]. URL and Token are required; zero values of other fields select the defaults.
// Callbacks may call the client's methods, except Run.
type Config struct {
	// URL is the edge's address, such as https://edge.example.com.
	URL string
	// Token returns a currently valid token within Patience ([StaticToken] for a fixed one). Each connection and
	// each read calls it; the calls of connections are serial.
	Token func(context.Context) (string, error)
	// Unauthorized, if set, receives each refusal of a token once, on Run's goroutine. After a backoff of at
	// least 5 s the client calls Token again, which may return the same token.
	Unauthorized func(error)
	// Answered receives each heartbeat's outcome once, on the goroutine of Run, or of Report if the queue is full.
	Answered func(Answer)
	// Changed, if set, receives changes made elsewhere to the user's history, on a goroutine of Run that also
	// reads responses. The first change of a connection is a resync: records read before it may be stale.
	// Without Changed all reports are guarded.
	Changed func(*messagev1.Change)
	// Day, if set, receives each change of the user's date, such as 20261121, and whether it is the user's
	// first report of that day.
	Day func(*messagev1.DaySeen)
	// Device is the default device name of reports: at most 128 bytes of UTF-8 (default random per client).
	// Clients with the same name count as one device and never conflict.
	Device string
	// Zone is the user's time zone, of the IANA database such as Europe/Berlin, or an offset such as +02:00
	// (default the device's offset).
	Zone string
	// NoRecords omits records from responses, which makes them smaller. Reports are then guarded only through
	// IfMatch or Seen.
	NoRecords bool
	// Recorded marks heartbeats imported from a file or another history: their times are exact and sent
	// unchanged. So a repeated import is a duplicate. Without it, times are corrected from the device's clock
	// to the history's.
	Recorded bool
	// Queue is the heartbeat limit of the queue (default 1,000, at least 200).
	Queue int
	// Patience bounds a connection attempt or a response (default 10 s). A message of one heartbeat gets extra
	// time for a link of 1 KB/s.
	Patience time.Duration
	// MinWait and MaxWait bound the retry backoff, which doubles with each failure and is jittered (defaults
	// 500 ms and 30 s). A retry time from the edge takes precedence, up to an hour. An edge that is away is tried
	// every 1.5 s at least.
	MinWait, MaxWait time.Duration
	// Clock, if set, replaces the device's clocks. It returns the displayed time, and the time since some
	// moment: that includes sleep and ignores changes of the displayed time.
	Clock func() (shown time.Time, elapsed time.Duration)
	// HTTP makes the connections (default [http.DefaultClient]). Without its own redirect policy it follows no
	// redirect to another host, and none that changes the method.
	HTTP   *http.Client
	Logger *slog.Logger
}

var (
	// ErrRefused means that the edge permanently refuses the client's connections.
	ErrRefused = errors.New("refused for good")
	// ErrUnauthorized means that the edge refused a token.
	ErrUnauthorized = errors.New("token refused")
)

// Client sends heartbeats in the order of their reports. Heartbeats that the edge fails on go last. It is safe
// for concurrent use.
type Client struct {
	cfg     Config
	wake    chan struct{} // capacity 1: something to send
	running chan struct{} // capacity 1: full during Run
	hurry   chan struct{} // ends the wait before the next connection

	// Owned by Run's goroutine.
	token   chan tokenAnswer // result of a pending call of Token; nil without one.
	refused string           // last token that the edge refused.
	mute    int              // consecutive WebSockets without a sign of the edge or an expected response.
	rest    time.Time        // nothing is sent before, on any connection.
	idle    int              // consecutive messages without an outcome.
	day     uint32           // today in the user's zone, such as 20261121; 0 if unknown.

	mu     sync.Mutex
	outbox *outbox
	empty  chan struct{} // closed while the outbox is empty
	tick   time.Duration // elapsed time at the last check for sleep
	clock  serviceClock
}

type tokenAnswer struct {
	token string
	err   error
}

// StaticToken is a [Config.Token] that does not change.
func StaticToken(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}

// New returns a client that queues reports until [Client.Run] sends them.
func New(cfg Config) (*Client, error) {
	if cfg.URL == "" || cfg.Token == nil {
		return nil, errors.New("client: URL and token are needed")
	}
	if u, err := url.Parse(cfg.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("client: URL %q: want one such as https://edge.example.com", cfg.URL)
	}
	if len(cfg.Zone) > maxZone || strings.Trim(cfg.Zone, zoneLetters) != "" {
		return nil, fmt.Errorf("client: zone %.64q: want one such as Europe/Berlin, or an offset such as +02:00", cfg.Zone)
	}
	if len(cfg.Device) > maxDevice || !utf8.ValidString(cfg.Device) {
		return nil, fmt.Errorf("client: device %.64q: want at most %d bytes of UTF-8", cfg.Device, maxDevice)
	}
	cfg.defaults()
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), running: make(chan struct{}, 1), hurry: make(chan struct{}), empty: make(chan struct{})}
	close(c.empty)
	c.outbox = newOutbox(max(cfg.Queue, 2*maxBatch), cfg.Patience, !cfg.NoRecords)
	return c, nil
}

// Limits of the edge for names of devices and time zones.
const (
	maxDevice   = 128 // bytes
	maxZone     = 64  // bytes
	zoneLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_/+-:"
)

func (cfg *Config) defaults() {
	if cfg.Answered == nil {
		cfg.Answered = func(Answer) {}
	}
	if cfg.Unauthorized == nil {
		cfg.Unauthorized = func(error) {}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Clock == nil {
		cfg.Clock = deviceClock()
	}
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	if cfg.HTTP.CheckRedirect == nil {
		staying := *cfg.HTTP
		staying.CheckRedirect = stay
		cfg.HTTP = &staying
	}
	if cfg.Device == "" {
		cfg.Device = "device-" + strconv.FormatUint(rand.Uint64(), 36)
	}
	if cfg.Queue == 0 {
		cfg.Queue = 1000
	}
	cfg.URL = strings.TrimSuffix(cfg.URL, "/")
	cfg.Patience = positive(cfg.Patience, 10*time.Second)
	cfg.MinWait = positive(cfg.MinWait, 500*time.Millisecond)
	cfg.MaxWait = positive(cfg.MaxWait, 30*time.Second)
}

// stay follows redirects within the host: the token and reports are for the edge alone. It follows none that
// changes the method, which would lose the report.
func stay(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if r.Method != via[0].Method || r.URL.Hostname() != first.Hostname() || first.Scheme == "https" && r.URL.Scheme != "https" || len(via) == 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

func positive(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// maxHeartbeat bounds a heartbeat, in bytes; the service's limit is lower.
const maxHeartbeat = 4 << 10

// Report queues a heartbeat with its event time by the device's clock; its uid is ignored. It fails for more
// than 4 KiB and for invalid UTF-8 outside of metadata, where it is replaced. A full queue drops the oldest
// progress superseded by a later report of its viewing, else the oldest report.
//
// A report is guarded while the device may have missed changes of the record by others:
//   - after a lost connection, a resync or sleep, until a later message is answered;
//   - after a conflict, until [Client.Seen];
//   - always without Changed, or when sending by requests.
//
// A guarded report meets a conflict if the record is not the known one.
func (c *Client) Report(h *messagev1.Heartbeat) error {
	h = proto.CloneOf(h)
	h.Uid, h.SentAtMs, h.ReceivedAtMs, h.Origin, h.Day = "", 0, 0, 0, nil
	h.Device = cmp.Or(h.Device, c.cfg.Device)
	for key, text := range h.Meta {
		h.Meta[key] = strings.ToValidUTF8(text, "\uFFFD")
	}
	text, err := proto.Marshal(h)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if len(text) > maxHeartbeat {
		return fmt.Errorf("report: %d bytes, want at most %d", len(text), maxHeartbeat)
	}
	c.tell(c.push(h, len(text)))
	wake(c.wake)
	return nil
}

// push adds a heartbeat to the outbox and returns a dropped one's outcome.
func (c *Client) push(h *messagev1.Heartbeat, size int) []Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown, elapsed := c.cfg.Clock()
	c.slept(elapsed)
	if isClosed(c.empty) {
		c.empty = make(chan struct{})
	}
	it := &item{Heartbeat: h, size: size + overhead}
	if !c.cfg.Recorded {
		it.zero = shown.Add(-elapsed)
		c.outbox.restate(it)
	}
	if c.clock.known && !it.dated() {
		c.clock.date(it)
	}
	return c.outbox.report(it)
}

// maxTick exceeds the interval between two checks of an awake device.
const maxTick = 90 * time.Second

// slept reports whether the device slept since the last check. It may then have missed changes. The caller
// holds the lock.
func (c *Client) slept(elapsed time.Duration) bool {
	passed := elapsed - c.tick
	c.tick = elapsed
	if passed > maxTick {
		c.outbox.loseSight()
		c.clock.doubt(elapsed)
	}
	return passed > maxTick
}

func (c *Client) tell(answers []Answer) {
	for _, a := range answers {
		c.cfg.Answered(a)
	}
}

// Seen sets the record that the player continues from: one read before the first report, or a conflict's after
// the user's decision. It guards later reports of the object. The client tracks records of its own viewings
// itself. Until Seen, a conflict repeats for every report of the object.
func (c *Client) Seen(record *messagev1.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox.seen(record)
}

// Flush waits until every heartbeat is answered.
func (c *Client) Flush(ctx context.Context) error {
	c.mu.Lock()
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush: %d heartbeats wait: %w", c.Waiting(), ctx.Err())
	}
}

// Waiting returns the number of unanswered heartbeats.
func (c *Client) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outbox.items)
}

// Dropped returns the number of heartbeats lost to a full queue, excluding superseded ones.
func (c *Client) Dropped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outbox.dropped
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
