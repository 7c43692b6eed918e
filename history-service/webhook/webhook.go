// Package webhook tells a backend what becomes of users' histories: what they have begun,
// completed and removed.
//
// Events wait in memory and are posted in batches, one after the other, signed as
// https://www.standardwebhooks.com describes. A batch that is not taken is posted again, later
// and later, and given up after a while. Events that wait when the process dies are lost, so this is
// a help for backends that want to know soon, and not the place where they keep count.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

// Kind is what has happened.
type Kind string

// The kinds of events.
const (
	Started   Kind = "started"   // the history had no record of the object
	Completed Kind = "completed" // one viewing more has reached the end, or a mark says so
	Removed   Kind = "removed"   // by the user: the object, or everything up to a time
)

// Event is one thing that a backend is told.
type Event struct {
	Kind   Kind    `json:"kind"`
	User   string  `json:"user"`
	Object *Object `json:"object,omitempty"` // nil for everything up to the time
	Type   uint32  `json:"type,omitempty"`   // without an object: only objects of this type
	Time   string  `json:"time"`             // RFC 3339
}

// Object is what it is about.
type Object struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

// Config configures a [Sender]. Zero values take the defaults; URL and Secret have none.
type Config struct {
	// URL is where events are posted, by http or https.
	URL string
	// Secret is the key of the signatures, [MinSecret] bytes or more.
	Secret []byte
	// Timeout bounds one request (default 10 s), Patience all that are made for one batch
	// (default 1 h).
	Timeout, Patience time.Duration
	// Max is how many events wait at most (default 65,536). Those that find no room are dropped.
	Max int
	// Transport sends the requests (default [http.DefaultTransport]).
	Transport http.RoundTripper
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// Endpoint has the flags that say where events are posted, to be embedded in those of a command.
type Endpoint struct {
	WebhookURL        string `name:"webhook-url" help:"Where a backend is told what users have begun, completed and removed; nowhere by default."`
	WebhookSecretFile string `name:"webhook-secret-file" help:"File with the secret that this is signed with, 32 bytes or more."`
}

// Open returns a sender as the flags say, nil for none.
func (f *Endpoint) Open(log *slog.Logger, reg prometheus.Registerer) (*Sender, error) {
	if f.WebhookURL == "" {
		return nil, nil
	}
	if f.WebhookSecretFile == "" {
		return nil, errors.New("--webhook-url needs --webhook-secret-file")
	}
	secret, err := trust.Secret(f.WebhookSecretFile)
	if err != nil {
		return nil, fmt.Errorf("--webhook-secret-file: %w", err)
	}
	return New(Config{URL: f.WebhookURL, Secret: secret, Logger: log, Registry: reg})
}

const (
	// MinSecret is how many bytes a secret has at least.
	MinSecret = 32
	maxBatch  = 100
	// LastTries bounds how long the process goes on posting when it stops.
	LastTries = 2 * time.Second
)

// Sender posts events. Its methods may be called from many goroutines; a nil one is told
// nothing.
type Sender struct {
	cfg     Config
	client  http.Client
	metrics *metrics
	wake    chan struct{} // of capacity 1: something waits
	failing bool          // the last request was not taken; only Run knows

	mu       sync.Mutex
	waiting  []Event
	underway int // events of the batch that is being posted
}

// New checks the configuration. [Sender.Run] posts.
func New(cfg Config) (*Sender, error) {
	switch address, err := url.Parse(cfg.URL); {
	case err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https":
		return nil, errors.New("--webhook-url: want an address of http or https")
	case len(cfg.Secret) < MinSecret:
		return nil, fmt.Errorf("--webhook-secret-file: a secret of %d bytes; want at least %d", len(cfg.Secret), MinSecret)
	}
	cfg.Timeout = run.Default(cfg.Timeout, 10*time.Second)
	cfg.Patience = run.Default(cfg.Patience, time.Hour)
	if cfg.Max == 0 {
		cfg.Max = 1 << 16
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Sender{cfg: cfg, metrics: newMetrics(cfg.Registry), wake: make(chan struct{}, 1)}
	s.client = http.Client{Transport: cfg.Transport, Timeout: cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // whoever moves it says so in the configuration
	}}
	return s, nil
}

// Tell has events posted soon. It never blocks.
func (s *Sender) Tell(events ...Event) {
	if s == nil || len(events) == 0 {
		return
	}
	s.mu.Lock()
	room := min(len(events), s.cfg.Max-len(s.waiting))
	s.waiting = append(s.waiting, events[:room]...)
	s.count()
	s.mu.Unlock()
	s.metrics.dropped.Add(float64(len(events) - room))
	run.Wake(s.wake)
}

// Run posts events until ctx is done, and then for [LastTries] more, once each, what still waits.
func (s *Sender) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	posting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // so that no request is broken off and made again
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(LastTries, cancel) })()
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
		for batch := s.next(); len(batch) > 0; batch = s.next() {
			s.deliver(ctx, posting, batch)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// next takes the oldest events that wait.
func (s *Sender) next() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxBatch)
	batch := s.waiting[:n:n]
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	s.underway = n
	s.count()
	return batch
}

// count tells how many events are not clean. The caller holds s.mu.
func (s *Sender) count() { s.metrics.waiting.Set(float64(len(s.waiting) + s.underway)) }

// deliver posts a batch until it is taken or patience ends. Once the process stops it is tried once more.
func (s *Sender) deliver(ctx, posting context.Context, batch []Event) {
	d, end := newDelivery(batch), time.Now().Add(s.cfg.Patience)
	backoff := run.Backoff{First: time.Second, Longest: 5 * time.Minute}
	for {
		last := ctx.Err() != nil
		err := s.post(posting, d)
		s.logFailure(err)
		pause := backoff.Next(ctx)
		if err == nil || last || posting.Err() != nil || time.Now().Add(pause).After(end) {
			s.countDelivered(batch, err)
			return
		}
		s.metrics.failed.Inc()
		run.Sleep(ctx, pause)
	}
}

// logFailure logs when the webhook goes away and when it is back, and no more than that.
func (s *Sender) logFailure(err error) {
	switch failing := err != nil; {
	case failing && !s.failing:
		s.cfg.Logger.Warn("the webhook does not take events: they are posted again", "error", err)
	case !failing && s.failing:
		s.cfg.Logger.Info("the webhook takes events again")
	}
	s.failing = err != nil
}

// countDelivered counts a batch as delivered or, with an error, as dead. The log names no user.
func (s *Sender) countDelivered(batch []Event, err error) {
	s.mu.Lock()
	s.underway = 0
	s.count()
	s.mu.Unlock()
	if err != nil {
		s.metrics.dead.Add(float64(len(batch)))
		s.cfg.Logger.Warn("events are given up, the webhook does not take them", "events", len(batch), "error", err)
		return
	}
	s.metrics.delivered.Add(float64(len(batch)))
}

// delivery is a batch as it is posted: under one id, however often.
type delivery struct {
	id   string
	body []byte
}

func newDelivery(batch []Event) delivery {
	body, err := json.Marshal(struct {
		Events []Event `json:"events"`
	}{batch})
	if err != nil {
		panic(err) // texts and numbers always are JSON
	}
	return delivery{"msg_" + rand.Text(), body}
}

func (s *Sender) post(ctx context.Context, d delivery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(d.body))
	if err != nil {
		return errors.New("not a request")
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", d.id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", Sign(s.cfg.Secret, d.id, at, d.body))
	answer, err := s.client.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the address, which may hold a password
		}
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 4096) // so that the connection is used again
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// Sign returns the signature of a request: "v1," and the HMAC-SHA256 of its id, its time in Unix
// seconds and its body, with dots between them, in base64.
func Sign(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

type metrics struct {
	delivered, dead, dropped, failed prometheus.Counter
	waiting                          prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	events := auto.NewCounterVec(prometheus.CounterOpts{
		Name: "playhead_webhook_events_total", Help: "Events for the webhook: delivered, dead because it did not take them, or dropped because too many waited.",
	}, []string{"outcome"})
	return &metrics{
		delivered: events.WithLabelValues("delivered"), dead: events.WithLabelValues("dead"), dropped: events.WithLabelValues("dropped"),
		failed:  auto.NewCounter(prometheus.CounterOpts{Name: "playhead_webhook_failed_requests_total", Help: "Requests that the webhook did not take, and that were made again."}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{Name: "playhead_webhook_waiting_events", Help: "Events that no request has taken yet."}),
	}
}
