// Package client reports what a player does to Playhead's edge. It keeps every heartbeat
// until the edge has answered it, and so survives connections that break and an edge that
// is away: it sends again the heartbeats without an answer, and each counts once.
//
// The outbox decides what to send and what an answer means; it knows no network and no
// time. Around it [Client.Run] keeps a connection: a WebSocket, or requests where a proxy
// lets none through.
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

	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Config configures a [Client]. Zero values take the defaults; URL and Token have none.
// The functions may call the client's methods, except Run.
type Config struct {
	// URL is the edge's, such as https://edge.example.com.
	URL string
	// Token returns a token that is valid now. It is asked for every connection, one call
	// at a time, and may take as long as Patience; and by each call of Viewings.
	Token func(context.Context) (string, error)
	// Unauthorized, when set, is told that the edge refused a token, once for each, from the
	// goroutine of Run. The client asks for another one, which may be the same, after 5 s and
	// later and later.
	Unauthorized func(error)
	// Answered is told what became of a heartbeat, once: from the goroutine of Run, or from
	// that of Report where the queue is full.
	Answered func(Answer)
	// Changed, when set, is told what others change in the user's history, from a
	// goroutine of Run that reads answers too. On each connection the first change says
	// resync, as soon as nothing can be missed any more: records that were read before may be old.
	// Without it reports are guarded all the time.
	Changed func(*historyv1.Change)
	// Day, when set, is told what day it is for the user, as 20261121, whenever that is
	// another one than before, and whether the user is seen for the first time on it.
	Day func(*historyv1.DaySeen)
	// Device names the device in reports that do not: at most 128 bytes of UTF-8 (default a
	// random name, another one for each client). Clients with one name pass for one
	// device, and what one of them does is no conflict for another.
	Device string
	// Zone is the user's time zone: of the IANA database, such as Europe/Berlin, or an
	// offset, such as +02:00 (default the device's offset).
	Zone string
	// NoRecords leaves the records out of the answers, which are then smaller. Reports are
	// guarded then only where the caller says what it knows, with IfMatch or Seen.
	NoRecords bool
	// Recorded says that heartbeats come from a file or another history, whose times are right:
	// they are sent as they are. So what is sent again is known already. Without it they are
	// those of this device's clock, which may be wrong, and are sent as those of the history.
	Recorded bool
	// Queue is how many heartbeats are kept at most (default 1,000, never less than 200).
	Queue int
	// Patience is how long the edge may take to connect or to answer (default 10 s). A call that
	// cannot be made smaller has as much longer as it takes at 1 KB/s.
	Patience time.Duration
	// MinWait and MaxWait bound the time until the next attempt, which doubles with every
	// one that fails and of which a random part is waited (defaults 500 ms and 30 s). Where
	// the edge says when to come back, that holds, up to an hour.
	MinWait, MaxWait time.Duration
	// Clock, when set, replaces the device's clocks. It returns the time that the device
	// shows, and the time since some moment, which goes on while the device sleeps and
	// does not change when somebody sets the clock.
	Clock func() (shown time.Time, elapsed time.Duration)
	// HTTP makes the connections (default [http.DefaultClient]). Unless it says what to do with
	// redirects, those to other hosts are not followed, nor those that make a GET of a POST.
	HTTP   *http.Client
	Logger *slog.Logger
}

var (
	// ErrRefused means that the edge will never take this client's connections.
	ErrRefused = errors.New("refused for good")
	// ErrUnauthorized means that the edge refused a token.
	ErrUnauthorized = errors.New("token refused")
)

// Client sends heartbeats in the order of their reports; one that the edge fails on goes
// after the others. Its methods may be called from many goroutines.
type Client struct {
	cfg     Config
	wake    chan struct{} // capacity 1: there is something to send
	running chan struct{} // capacity 1: full while Run does

	// Of the goroutine of Run.
	token   chan tokenAnswer // the answer of a call of Token that is under way, nil for none
	refused string           // the token that the edge refused last
	mute    int              // WebSockets in a row on which nothing was heard, or that were asked and did not answer
	rest    time.Time        // until then nothing is sent, whatever the connection
	idle    int              // messages in a row of which nothing was answered
	day     uint32           // today in the user's zone, as 20261121, 0 when not known

	mu     sync.Mutex
	outbox *outbox
	empty  chan struct{} // closed while the outbox is
	tick   time.Duration // elapsed when the client last looked whether the device slept
	clock  serviceClock
}

// tokenAnswer is the answer of a call of Token.
type tokenAnswer struct {
	token string
	err   error
}

// New returns a client that keeps what is reported until [Client.Run] sends it.
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
	c := &Client{cfg: cfg, wake: make(chan struct{}, 1), running: make(chan struct{}, 1), empty: make(chan struct{})}
	close(c.empty)
	c.outbox = newOutbox(max(cfg.Queue, 2*maxBatch), cfg.Patience, !cfg.NoRecords)
	return c, nil
}

// Bounds of the edge on the names of devices and of time zones.
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

// stay follows a redirect that does not leave the host: the token and what is reported are for the edge alone. Nor does it follow one
// after which nothing would be reported.
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

// maxHeartbeat bounds a heartbeat, in bytes. It is more than any that the service takes.
const maxHeartbeat = 4 << 10

// Report puts a heartbeat into the queue, with its event time as the device's clock shows
// it. Its uid is the token's, and what it says of one is not sent. Report fails for what
// cannot be sent at all: more than 4 KiB, or texts that are not UTF-8, other than those of
// the metadata, which are mended. A full queue drops the oldest progress that a later
// report of the same viewing makes superfluous, or else the oldest report.
//
// A report is guarded when others may have changed the record since the device last knew
// it: after a lost connection, a resync or a sleep, until the answer to a report that is
// sent later; after a conflict, until the record is seen; and always where the device is
// not told of others, without Changed or by requests. A guarded report is not stored over a record that is not the known one; it is
// answered with a conflict.
func (c *Client) Report(h *historyv1.Heartbeat) error {
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
	run.Wake(c.wake)
	return nil
}

// push puts a heartbeat into the outbox and returns what it had to drop.
func (c *Client) push(h *historyv1.Heartbeat, size int) []Answer {
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

// maxTick is how much time passes at most between two looks of a device that is awake.
const maxTick = 90 * time.Second

// slept looks whether the device slept since the last look, and may have missed changes.
// The caller holds the lock.
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

// Seen takes note of the record that the player goes on from, such as one that was read
// before the first report, or the one of a conflict after the user has decided. Later
// reports of its object are guarded by it. Records of the player's own viewings are noted
// by themselves. After a conflict all reports of the object are in conflict until the
// record is seen.
func (c *Client) Seen(record *historyv1.Item) {
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

// Waiting is how many heartbeats are not answered yet.
func (c *Client) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outbox.items)
}

// Dropped is how many heartbeats the queue had no room for, without those that a later one
// made superfluous.
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
