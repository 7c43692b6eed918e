// Package webhook notifies a backend of objects that users start, complete and remove.
//
// Events wait in memory and are posted in batches, one at a time, signed as in https://www.standardwebhooks.com. A
// failed batch is retried with backoff, then given up. Waiting events are lost when the process dies, so use
// webhooks for fast notification, not for accounting.
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
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trust"
)

// Config configures a [Sender]. Zero values take the defaults; URL and Secret are required.
type Config struct {
	// URL is the http or https address of the backend.
	URL string
	// Secrets returns the signing keys. It is called for each request, which gets a signature of each key.
	Secrets func() ([][]byte, error)
	// Timeout limits one request (default 10 s), Patience all attempts for one batch (default 1 h).
	Timeout, Patience time.Duration
	// Max limits the waiting events (default 65,536). Further events are dropped.
	Max int
	// Transport sends the requests (default [http.DefaultTransport]).
	Transport http.RoundTripper
	Logger    *slog.Logger
	Registry  prometheus.Registerer
}

// Endpoint has the webhook flags, to be embedded in a command's flags.
type Endpoint struct {
	WebhookURL        string `name:"webhook-url" help:"URL for events of your backend: what users begin, complete and remove. None by default."`
	WebhookSecretFile string `name:"webhook-secret-file" help:"File with the secrets that this is signed with, one a line, 32 bytes or more each; read for each request."`
}

// Open returns a sender configured by the flags, nil if there is no URL.
func (f *Endpoint) Open(log *slog.Logger, reg prometheus.Registerer) (*Sender, error) {
	if f.WebhookURL == "" {
		return nil, nil
	}
	if f.WebhookSecretFile == "" {
		return nil, errors.New("--webhook-url needs --webhook-secret-file")
	}
	secrets := func() ([][]byte, error) { return trust.Secrets(f.WebhookSecretFile, minSecret) }
	if _, err := secrets(); err != nil {
		return nil, fmt.Errorf("--webhook-secret-file: %w", err)
	}
	return New(Config{URL: f.WebhookURL, Secrets: secrets, Logger: log, Registry: reg})
}

const (
	minSecret = 32 // bytes
	maxBatch  = 100
	// LastTries limits the posting after a stop.
	LastTries = 2 * time.Second
)

// Sender posts events. It is safe for concurrent use; a nil Sender drops all events.
type Sender struct {
	cfg     Config
	client  http.Client
	metrics *metrics
	wake    chan struct{} // capacity 1: events wait
	failing bool          // the last request failed; used only by Run

	mu       sync.Mutex
	waiting  []Event
	underway int // events of the current batch
}

// New validates the configuration. [Sender.Run] posts.
func New(cfg Config) (*Sender, error) {
	if address, err := url.Parse(cfg.URL); err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, errors.New("--webhook-url: want an address of http or https")
	}
	cfg.Timeout = run.Default(cfg.Timeout, 10*time.Second)
	cfg.Patience = run.Default(cfg.Patience, time.Hour)
	if cfg.Max == 0 {
		cfg.Max = 1 << 16
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	s := &Sender{cfg: cfg, metrics: newMetrics(cfg.Registry), wake: make(chan struct{}, 1)}
	s.client = http.Client{Transport: cfg.Transport, Timeout: cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect is a failure: the configured URL must be current
	}}
	return s, nil
}

// Tell queues events. It never blocks.
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

// Run posts events until ctx is done. It then posts each remaining batch once, within [LastTries].
func (s *Sender) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	posting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a stop must not cancel a request, only to repeat it
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

// next takes the oldest waiting events.
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

// count updates the gauge of waiting events. The caller holds s.mu.
func (s *Sender) count() { s.metrics.waiting.Set(float64(len(s.waiting) + s.underway)) }

// deliver posts a batch until it succeeds or Patience ends. After a stop it tries only once more.
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

// logFailure logs only the start and the end of an outage.
func (s *Sender) logFailure(err error) {
	switch failing := err != nil; {
	case failing && !s.failing:
		s.cfg.Logger.Warn("webhook refused events; will retry", "error", err)
	case !failing && s.failing:
		s.cfg.Logger.Info("webhook recovered")
	}
	s.failing = err != nil
}

// countDelivered counts a batch as delivered or, with an error, as dead. The log has no user names.
func (s *Sender) countDelivered(batch []Event, err error) {
	s.mu.Lock()
	s.underway = 0
	s.count()
	s.mu.Unlock()
	if err != nil {
		s.metrics.dead.Add(float64(len(batch)))
		s.cfg.Logger.Warn("events dropped: webhook refused them", "events", len(batch), "error", err)
		return
	}
	s.metrics.delivered.Add(float64(len(batch)))
}

// delivery is an encoded batch. All attempts share one id.
type delivery struct {
	id   string
	body []byte
}

func newDelivery(batch []Event) delivery {
	body, err := json.Marshal(struct {
		Events []Event `json:"events"`
	}{batch})
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return delivery{"msg_" + rand.Text(), body}
}

func (s *Sender) post(ctx context.Context, d delivery) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL, bytes.NewReader(d.body))
	if err != nil {
		return errors.New("not a request")
	}
	secrets, err := s.cfg.Secrets()
	if err != nil {
		return err
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	var signatures []string
	for _, secret := range secrets {
		signatures = append(signatures, Sign(secret, d.id, at, d.body))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", d.id)
	r.Header.Set("Webhook-Timestamp", at)
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	answer, err := s.client.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL, which may contain a password
		}
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 4096) // allows the connection to be reused
	_ = answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// Sign returns the signature of a request: "v1," and the base64 HMAC-SHA256 of id, time and body, joined by dots.
// at is in Unix seconds.
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
		failed:  auto.NewCounter(prometheus.CounterOpts{Name: "playhead_webhook_failed_requests_total", Help: "Requests that the webhook refused; each was retried."}),
		waiting: auto.NewGauge(prometheus.GaugeOpts{Name: "playhead_webhook_waiting_events", Help: "Events that no request has taken yet."}),
	}
}
