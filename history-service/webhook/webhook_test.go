package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history-service/webhook"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// backend answers with the statuses in turn, then repeats the last. Status 0 is a failed connection.
type backend struct {
	statuses []int
	takes    time.Duration
	asked    []request
}

type request struct {
	at     time.Time
	header http.Header
	body   string
}

func (b *backend) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	b.asked = append(b.asked, request{time.Now(), r.Header, string(body)})
	status := b.statuses[min(len(b.asked), len(b.statuses))-1]
	select {
	case <-time.After(b.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"/elsewhere"}}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
}

// world runs a sender in virtual time and stops it after fn.
func world(t *testing.T, cfg webhook.Config, b *backend, fn func(*webhook.Sender)) (counts map[string]float64, log string) {
	var text strings.Builder
	reg := prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		cfg.URL, cfg.Transport, cfg.Registry = "https://user:password@backend.example.com/hook", b, reg
		if cfg.Secrets == nil {
			cfg.Secrets = func() ([][]byte, error) { return [][]byte{secret}, nil }
		}
		cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
		s, err := webhook.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		fn(s)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	counts = make(map[string]float64)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "playhead_webhook_")
			for _, l := range m.GetLabel() {
				name = l.GetValue()
			}
			counts[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return counts, text.String()
}

func events(n int) (list []webhook.Event) {
	for i := range n {
		list = append(list, webhook.Event{Kind: webhook.Started, User: "ann", Object: &webhook.Object{ID: fmt.Sprint(i), Type: 1}, Time: "2026-03-01T20:15:00.000Z"})
	}
	return list
}

// TestDelivery: events are posted in order, in signed batches.
func TestDelivery(t *testing.T) {
	b := &backend{statuses: []int{204}}
	counts, _ := world(t, webhook.Config{}, b, func(s *webhook.Sender) {
		s.Tell(events(250)...)
		time.Sleep(time.Second)
	})
	if len(b.asked) != 3 || counts["delivered"] != 250 || counts["waiting_events"] != 0 {
		t.Fatalf("%d requests, %v", len(b.asked), counts)
	}
	next := 0
	for _, r := range b.asked {
		id, at := r.header.Get("Webhook-Id"), r.header.Get("Webhook-Timestamp")
		if got, want := r.header.Get("Webhook-Signature"), webhook.Sign(secret, id, at, []byte(r.body)); got != want || id == "" {
			t.Errorf("signature %q of %q, want %q", got, id, want)
		}
		var body struct{ Events []webhook.Event }
		if err := json.Unmarshal([]byte(r.body), &body); err != nil || len(body.Events) > 100 {
			t.Fatalf("%d events, %v", len(body.Events), err)
		}
		for _, e := range body.Events {
			if e.Object.ID != fmt.Sprint(next) {
				t.Fatalf("event %s, want %d", e.Object.ID, next)
			}
			next++
		}
	}
	if want := `{"events":[{"kind":"started","user":"ann","object":{"id":"0","type":1},"time":"2026-03-01T20:15:00.000Z"},`; !strings.HasPrefix(b.asked[0].body, want) {
		t.Errorf("body %s, want it to begin with %s", b.asked[0].body, want)
	}
}

// TestSecretsChange: a request has a signature of each secret of that moment. Without one it is retried.
func TestSecretsChange(t *testing.T) {
	b := &backend{statuses: []int{204}}
	var secrets atomic.Pointer[[][]byte]
	cfg := webhook.Config{Secrets: func() ([][]byte, error) {
		if all := secrets.Load(); all != nil {
			return *all, nil
		}
		return nil, fs.ErrNotExist
	}}
	other := []byte(strings.Repeat("o", 32))
	counts, _ := world(t, cfg, b, func(s *webhook.Sender) {
		s.Tell(events(1)...)
		time.Sleep(100 * time.Millisecond)
		secrets.Store(&[][]byte{secret, other})
		time.Sleep(10 * time.Second)
		secrets.Store(&[][]byte{other})
		s.Tell(events(1)...)
		time.Sleep(time.Second)
	})
	if len(b.asked) != 2 || counts["delivered"] != 2 {
		t.Fatalf("%d requests, %v, want 2 with an event each", len(b.asked), counts)
	}
	for i, keys := range [][][]byte{{secret, other}, {other}} {
		r, want := b.asked[i], []string(nil)
		for _, key := range keys {
			want = append(want, webhook.Sign(key, r.header.Get("Webhook-Id"), r.header.Get("Webhook-Timestamp"), []byte(r.body)))
		}
		if got := r.header.Get("Webhook-Signature"); got != strings.Join(want, " ") {
			t.Errorf("request %d: signature %q, want %q", i, got, want)
		}
	}
}

// TestSignature compares the signature with the standard's example.
func TestSignature(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := webhook.Sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSentAgain: a failed batch is retried under its id, with backoff.
func TestSentAgain(t *testing.T) {
	b := &backend{statuses: []int{0, 500, 302, 429, 200}}
	counts, log := world(t, webhook.Config{}, b, func(s *webhook.Sender) {
		s.Tell(events(1)...)
		time.Sleep(time.Minute)
	})
	if len(b.asked) != 5 || counts["delivered"] != 1 || counts["failed_requests_total"] != 4 || strings.Count(log, "\n") != 2 || !strings.Contains(log, "will retry") || !strings.Contains(log, "webhook recovered") {
		t.Fatalf("%d requests, %v, log %q", len(b.asked), counts, log)
	}
	for i, longest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if pause := b.asked[i+1].at.Sub(b.asked[i].at); pause < longest/2 || pause > longest {
			t.Errorf("pause %d took %v, want %v to %v", i, pause, longest/2, longest)
		}
		if b.asked[i].header.Get("Webhook-Id") != b.asked[0].header.Get("Webhook-Id") || b.asked[i].body != b.asked[0].body {
			t.Errorf("request %d is another one", i)
		}
	}
}

// TestGivenUp: events are given up after Patience and later ones are tried. The log has neither users nor the URL.
func TestGivenUp(t *testing.T) {
	b := &backend{statuses: []int{503}}
	counts, log := world(t, webhook.Config{Patience: 10 * time.Minute}, b, func(s *webhook.Sender) {
		s.Tell(events(150)...)
		time.Sleep(25 * time.Minute)
	})
	if counts["dead"] != 150 || counts["waiting_events"] != 0 || strings.Count(log, "events dropped") != 2 || strings.Count(log, "will retry") != 1 {
		t.Errorf("%v, log %s", counts, log)
	}
	for _, secret := range []string{"ann", "password", "backend.example.com"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has %q: %s", secret, log)
		}
	}
}

// TestFull: events above Max are dropped and counted, without blocking.
func TestFull(t *testing.T) {
	b := &backend{statuses: []int{503}}
	counts, _ := world(t, webhook.Config{Max: 200}, b, func(s *webhook.Sender) {
		s.Tell(events(100)...)
		time.Sleep(100 * time.Millisecond) // the first hundred are in progress
		s.Tell(events(150)...)
		s.Tell(events(100)...)
	})
	if counts["dropped"] != 50 || counts["dead"] != 300 {
		t.Errorf("%v, want 50 dropped, and the others tried at the end", counts)
	}
}

// TestLastTry: waiting events are tried once after a stop.
func TestLastTry(t *testing.T) {
	b := &backend{statuses: []int{503, 200}}
	counts, _ := world(t, webhook.Config{}, b, func(s *webhook.Sender) {
		s.Tell(events(100)...)
		time.Sleep(100 * time.Millisecond)
		s.Tell(events(100)...)
	})
	if counts["delivered"] != 200 || len(b.asked) != 3 {
		t.Errorf("%v after %d requests, want all delivered", counts, len(b.asked))
	}
}

// TestStop: a stop tries each waiting batch once, within LastTries, and logs the events that it gives up. No batch
// is sent twice.
func TestStop(t *testing.T) {
	for takes, want := range map[time.Duration]int{0: 2000, 400 * time.Millisecond: 500, time.Hour: 0} {
		b := &backend{statuses: []int{200}, takes: takes}
		var stopped time.Time
		counts, log := world(t, webhook.Config{}, b, func(s *webhook.Sender) {
			s.Tell(events(2000)...)
			time.Sleep(100 * time.Millisecond)
			stopped = time.Now()
		})
		if counts["delivered"] != float64(want) || counts["dead"] != float64(2000-want) || counts["waiting_events"] != 0 {
			t.Errorf("requests of %v: %v, want %d delivered", takes, counts, want)
		}
		if want < 2000 && !strings.Contains(log, "events dropped") {
			t.Errorf("requests of %v: the log says nothing", takes)
		}
		sent := make(map[string]bool)
		for _, r := range b.asked {
			if id := r.header.Get("Webhook-Id"); sent[id] || r.at.Sub(stopped) > 2*time.Second {
				t.Errorf("requests of %v: one was sent twice, or %v after the stop", takes, r.at.Sub(stopped))
			}
			sent[r.header.Get("Webhook-Id")] = true
		}
	}
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]webhook.Config{
		"no address":     {},
		"no host":        {URL: "https://"},
		"another scheme": {URL: "ftp://example.com"},
	} {
		if s, err := webhook.New(cfg); err == nil {
			t.Errorf("%s: got %v", name, s)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"long": string(secret) + "\n", "short": "secret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct{ url, file, flag string }{
		{"", "", ""},
		{"https://example.com", "long", ""},
		{"https://example.com", "short", "--webhook-secret-file"},
		{"https://example.com", "missing", "--webhook-secret-file"},
		{"example.com", "long", "--webhook-url"},
	} {
		f := webhook.Endpoint{WebhookURL: tt.url, WebhookSecretFile: filepath.Join(dir, tt.file)}
		s, err := f.Open(nil, nil)
		if tt.flag == "" && (err != nil || (s == nil) != (tt.url == "")) || tt.flag != "" && (err == nil || !strings.Contains(err.Error(), tt.flag)) {
			t.Errorf("%+v: %v, %v", tt, s, err)
		}
	}
	if _, err := (&webhook.Endpoint{WebhookURL: "https://example.com"}).Open(nil, nil); err == nil || !strings.Contains(err.Error(), "needs --webhook-secret-file") {
		t.Errorf("without a secret: %v", err)
	}
	var none *webhook.Sender
	none.Tell(events(1)...)
	if err := none.Run(t.Context()); err != nil {
		t.Error(err)
	}
}
