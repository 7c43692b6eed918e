package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/playhead/playhead/history/wire"
)

// Config says where the queue is and what it is called. Only Brokers is required.
type Config struct {
	Brokers []string // host:port of some brokers; the others are found through them
	Topic   string   // default history.flush
	Group   string   // default history-job
	// Partitions and Replication are those of a topic that Open creates; default 16
	// partitions and the brokers' own replication.
	Partitions  int
	Replication int
	// MaxBytes bounds a message before compression; default [wire.MaxMessage].
	MaxBytes int
	// SessionTimeout is how long the group waits for a job that has gone silent
	// before others take over its partitions; default 10 s.
	SessionTimeout time.Duration

	TLS *tls.Config // nil is plain text
	// Username and Password authenticate with Mechanism: plain, which is the
	// default and wants TLS, scram-sha-256 or scram-sha-512. Without a username
	// nothing is authenticated.
	Username, Password, Mechanism string

	Logger *slog.Logger // nil is silent
}

func (c Config) withDefaults() Config {
	c.Topic = cmp.Or(c.Topic, "history.flush")
	c.Group = cmp.Or(c.Group, "history-job")
	c.Partitions = cmp.Or(c.Partitions, 16)
	c.Replication = cmp.Or(c.Replication, -1)
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
	case c.MaxBytes < 1024 || c.MaxBytes > 1_000_000:
		return fmt.Errorf("messages of %d bytes, want 1024 to 1000000", c.MaxBytes)
	case c.SessionTimeout < 10*time.Millisecond:
		return fmt.Errorf("session timeout %v, want at least 10ms", c.SessionTimeout)
	}
	return nil
}

// mechanism returns nil when nothing is to be authenticated.
func (c Config) mechanism() (sasl.Mechanism, error) {
	if c.Username == "" {
		return nil, nil
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
