package kafka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	driver "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/historytest"
	"github.com/playhead/playhead/history/kafka"
)

func TestContract(t *testing.T) { historytest.Queue(t, topics(cluster(t).ListenAddrs())) }

func TestRereadContract(t *testing.T) { historytest.QueueReread(t, topics(cluster(t).ListenAddrs())) }

func TestGroupContract(t *testing.T) { historytest.QueueGroup(t, topics(cluster(t).ListenAddrs())) }

// cluster starts brokers in this process.
func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestProgress follows a consumer that reads all and commits late.
func TestProgress(t *testing.T) {
	cfg := fresh(t, cluster(t).ListenAddrs())
	cfg.Partitions = 1
	q := open(t, cfg)
	for range 3 {
		publish(t, q, announced(2))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) error {
		d, err := fetch(ctx, assignment, 6)
		if err != nil {
			return err
		}
		if p := q.Progress(); p.Generation < 1 || p.Generations != 1 || p.Lag != 3 || p.Oldest <= 0 || p.Oldest > time.Minute {
			t.Errorf("before the commit: %+v, want 3 messages of now", p)
		}
		if err := assignment.Commit(ctx, d); err != nil {
			return err
		}
		if p := q.Progress(); p.Lag != 0 || p.Oldest != 0 {
			t.Errorf("after the commit: %+v, want no lag", p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if p := q.Progress(); p != (kafka.Progress{Generations: 1}) {
		t.Errorf("without an assignment: %+v", p)
	}
}

// topics opens a fresh topic and group for each test.
func topics(brokers []string) historytest.OpenQueue {
	return func(t *testing.T) (history.Publisher, func(*testing.T) history.Consumer) {
		cfg := fresh(t, brokers)
		return open(t, cfg), func(t *testing.T) history.Consumer { return open(t, cfg) }
	}
}

// fresh returns an unused topic and group. The topic is deleted after the test.
func fresh(tb testing.TB, brokers []string) kafka.Config {
	tb.Helper()
	topic := "flush-" + rand.Text()
	tb.Cleanup(func() {
		client := driver.Client{Addr: driver.TCP(brokers...)}
		_, _ = client.DeleteTopics(context.WithoutCancel(tb.Context()), &driver.DeleteTopicsRequest{Topics: []string{topic}})
	})
	return kafka.Config{
		Brokers: brokers, Topic: topic, Group: "job-" + topic, SessionTimeout: 6 * time.Second,
		Logger: slog.New(slog.NewTextHandler(tb.Output(), nil)),
	}
}

// open opens a queue and closes it after the test.
func open(tb testing.TB, cfg kafka.Config) *kafka.Queue {
	tb.Helper()
	q, err := kafka.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = q.Close() })
	return q
}

// announced returns n keys, two per user.
func announced(n int) []history.Announcement {
	keys := make([]history.Announcement, n)
	for i := range keys {
		keys[i].Key = history.Key{UID: fmt.Sprintf("user%d", i/2), Object: history.Object{ID: fmt.Sprint(i), Type: 1}}
	}
	return keys
}

// fetch fetches until n keys and poisoned messages have come.
func fetch(ctx context.Context, assignment history.Assignment, n int) (history.Delivery, error) {
	var all history.Delivery
	for len(all.Keys)+len(all.Poison) < n {
		d, err := assignment.Fetch(ctx)
		if err != nil {
			return all, err
		}
		all.Keys, all.Poison = append(all.Keys, d.Keys...), append(all.Poison, d.Poison...)
		all.Messages, all.Bytes, all.Offsets = all.Messages+d.Messages, all.Bytes+d.Bytes, d.Offsets
	}
	return all, nil
}

// receive returns and commits the next n keys and poisoned messages.
func receive(t *testing.T, q *kafka.Queue, n int) history.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got history.Delivery
	err := q.Consume(ctx, func(ctx context.Context, assignment history.Assignment) (err error) {
		if got, err = fetch(ctx, assignment, n); err != nil {
			return err
		}
		return assignment.Commit(ctx, got)
	})
	if err != nil || ctx.Err() != nil {
		t.Fatalf("consume: %v, %v", err, ctx.Err())
	}
	return got
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOpenUnreachable(t *testing.T) {
	l := listen(t)
	addr := l.Addr().String()
	_ = l.Close() // nobody listens
	_, err := kafka.Open(t.Context(), kafka.Config{Brokers: []string{addr}})
	if !errors.Is(err, history.ErrUnavailable) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "is Kafka running") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with %s and what to look at", err, addr)
	}
}

func TestOpenSilent(t *testing.T) {
	l := listen(t) // accepts, but never answers
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := kafka.Open(ctx, kafka.Config{Brokers: []string{l.Addr().String()}}); err == nil || ctx.Err() == nil {
		t.Errorf("got %v, want an error when the context is done", err)
	}
}

func TestOpenRefusesConfig(t *testing.T) {
	brokers := []string{"127.0.0.1:1"}
	tests := map[string]struct {
		cfg  kafka.Config
		want string
	}{
		"no brokers":        {kafka.Config{}, "no broker"},
		"partitions":        {kafka.Config{Brokers: brokers, Partitions: 1025}, "1025 partitions"},
		"small messages":    {kafka.Config{Brokers: brokers, MaxBytes: 10}, "10 bytes"},
		"large messages":    {kafka.Config{Brokers: brokers, MaxBytes: 2 << 20}, "2097152 bytes"},
		"session timeout":   {kafka.Config{Brokers: brokers, SessionTimeout: 1}, "session timeout 1ns"},
		"unknown mechanism": {kafka.Config{Brokers: brokers, Username: "u", Mechanism: "gssapi"}, `"gssapi"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := kafka.Open(t.Context(), tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s in it", err, tt.want)
			}
		})
	}
}

func TestOpenCreatesTheTopic(t *testing.T) {
	c := cluster(t)
	open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 5})
	if got := len(c.PartitionInfos("history.flush")); got != 5 {
		t.Errorf("%d partitions, want 5", got)
	}
}

func TestOpenTakesTheTopicAsItIs(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(3, "history.flush"))
	var log bytes.Buffer
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), Partitions: 5, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if want := "partitions=3 configured=5"; !strings.Contains(log.String(), want) {
		t.Errorf("log %q, want %q in it", &log, want)
	}
	keys := announced(1000)
	if _, err := q.Publish(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	if messages, bytes := q.Stats(); messages != 3 || bytes < 8*1000 {
		t.Errorf("%d messages of %d bytes, want 3 of more than 8,000", messages, bytes)
	}
	if got := receive(t, q, len(keys)); got.Messages != 3 {
		t.Errorf("%d messages came, want 3", got.Messages)
	}
}

func TestOpenMayNotCreate(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "job", "secret"))
	_, err := kafka.Open(t.Context(), kafka.Config{Brokers: c.ListenAddrs(), Username: "job", Password: "secret"})
	if err == nil || !strings.Contains(err.Error(), "history.flush") {
		t.Errorf("got %v, want the topic in it", err)
	}
}

// TestAnswersAtStart checks which errors are final.
func TestAnswersAtStart(t *testing.T) {
	for _, test := range []struct {
		to      kmsg.Key
		answer  *kerr.Error
		refused bool
	}{
		{to: kmsg.Metadata, answer: kerr.LeaderNotAvailable},
		{to: kmsg.Metadata, answer: kerr.BrokerNotAvailable},
		{to: kmsg.Metadata, answer: kerr.UnknownServerError},
		{to: kmsg.CreateTopics, answer: kerr.NotController},
		{to: kmsg.CreateTopics, answer: kerr.RequestTimedOut},
		{to: kmsg.CreateTopics, answer: kerr.StaleControllerEpoch},
		{to: kmsg.CreateTopics, answer: kerr.UnknownServerError},
		{to: kmsg.CreateTopics, answer: kerr.InvalidReplicationFactor}, // other brokers may still start
		{to: kmsg.CreateTopics, answer: kerr.ThrottlingQuotaExceeded},
		{to: kmsg.ListOffsets, answer: kerr.NotLeaderForPartition},
		{to: kmsg.ListOffsets, answer: kerr.ReplicaNotAvailable},
		{to: kmsg.ListOffsets, answer: kerr.OffsetNotAvailable},
		{to: kmsg.SASLHandshake, answer: kerr.UnsupportedSaslMechanism, refused: true},
		{to: kmsg.SASLAuthenticate, answer: kerr.SaslAuthenticationFailed, refused: true},
		{to: kmsg.Metadata, answer: kerr.TopicAuthorizationFailed, refused: true},
		{to: kmsg.Metadata, answer: kerr.InvalidTopicException, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.ClusterAuthorizationFailed, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.TopicAuthorizationFailed, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.InvalidPartitions, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.InvalidConfig, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.PolicyViolation, refused: true},
		{to: kmsg.CreateTopics, answer: kerr.UnsupportedVersion, refused: true},
	} {
		c := cluster(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "job", "secret"))
		q, err := kafka.New(kafka.Config{Brokers: c.ListenAddrs(), Username: "job", Password: "secret"})
		if err != nil {
			t.Fatal(err)
		}
		fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{test.to}, Err: test.answer, Count: -1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err = q.Prepare(ctx)
		cancel()
		if err == nil || errors.Is(err, history.ErrUnavailable) == test.refused || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v: Prepare = %v, want one line, refused %v", test.to, test.answer, err, test.refused)
		}
		if fault.Hits() == 0 {
			t.Errorf("%v: %v: was not asked", test.to, test.answer)
		}
		fault.Remove()
		if !test.refused {
			for err = q.Prepare(t.Context()); errors.Is(err, history.ErrUnavailable) && t.Context().Err() == nil; err = q.Prepare(t.Context()) {
				time.Sleep(50 * time.Millisecond) // metadata is cached briefly
			}
			if err != nil {
				t.Errorf("after %v: %v: Prepare = %v", test.to, test.answer, err)
			}
		}
		_ = q.Close()
	}
}

func TestOpenAuthenticates(t *testing.T) {
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		t.Run(mechanism, func(t *testing.T) {
			c := cluster(t, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "job", "secret"))
			cfg := kafka.Config{Brokers: c.ListenAddrs(), Username: "job", Password: "secret", Mechanism: mechanism}
			q := open(t, cfg)
			if _, err := q.Publish(t.Context(), announced(10)); err != nil {
				t.Error(err)
			}
			receive(t, q, 10)
			password := "guess"
			cfg.Secret = func() (string, error) { return password, nil }
			if _, err := kafka.Open(t.Context(), cfg); err == nil {
				t.Error("a wrong password of a file was accepted")
			}
			password = "secret"
			if q, err := kafka.Open(t.Context(), cfg); err != nil || q.Close() != nil {
				t.Errorf("a changed password of a file: %v", err)
			}
			cfg.Secret, cfg.Password = nil, "guess"
			if _, err := kafka.Open(t.Context(), cfg); err == nil {
				t.Error("a wrong password was accepted")
			}
		})
	}
}

func TestOpenOverTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS() // for its certificate
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := cluster(t, kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	q := open(t, kafka.Config{Brokers: c.ListenAddrs(), TLS: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}})
	if _, err := q.Publish(t.Context(), announced(10)); err != nil {
		t.Error(err)
	}
	receive(t, q, 10)
}

func TestPing(t *testing.T) {
	c := cluster(t)
	q, err := kafka.Open(t.Context(), kafka.Config{Brokers: c.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Ping(t.Context()); err != nil {
		t.Errorf("Ping = %v", err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := q.Ping(ctx); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("Ping of a broker that is gone = %v, want %v", err, history.ErrUnavailable)
	}
}
