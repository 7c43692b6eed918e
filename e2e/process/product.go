package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// Partitions is how many partitions the topics of a [Product] have.
const Partitions = 8

// Product is the commands of the product on one set of engines, with topics, a consumer
// group and a table of their own.
type Product struct {
	Bin  string // folder of the built commands
	Name string // of the group, the table and the topic of keys; the other topics' begin with it

	Redis        string // addresses with commas between
	Cluster      bool   // Redis is one
	Kafka, HBase string
}

// Command returns the command line of a history-service or a history-job, with the address
// of its admin port.
func (p Product) Command(name, admin string, more ...string) []string {
	argv := []string{
		filepath.Join(p.Bin, name), "--admin", admin, "--kafka", p.Kafka, "--hbase", p.HBase,
		"--kafka-topic", p.Name, "--kafka-group", p.Name, "--kafka-partitions", fmt.Sprint(Partitions),
		"--kafka-dead-topic", p.DeadTopic(), "--kafka-first-of-day-topic", p.FirstTopic(), "--hbase-table", p.Name,
	}
	if p.Redis != "" {
		argv = append(argv, "--redis", p.Redis)
	}
	if p.Cluster {
		argv = append(argv, "--redis-cluster")
	}
	return append(argv, more...)
}

// Edge returns the command line of an edge in front of services, which limits no user.
func (p Product) Edge(listen, admin, secretFile string, services []string) []string {
	return []string{
		filepath.Join(p.Bin, "bff"), "--listen", listen, "--admin", admin, "--service", strings.Join(services, ","),
		"--token-secret-file", secretFile, "--user-rate", "1e6", "--user-burst", "1e6",
	}
}

// DeadTopic is the topic of keys that could not be archived.
func (p Product) DeadTopic() string { return p.Name + ".dead" }

// FirstTopic is the topic of users who were seen for the first time on a day.
func (p Product) FirstTopic() string { return p.Name + ".first" }

// Flush empties Redis servers, which are the tests' own.
func Flush(ctx context.Context, addrs ...string) error {
	for _, addr := range addrs {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		if err := errors.Join(c.FlushAll(ctx).Err(), c.Close()); err != nil {
			return fmt.Errorf("empty redis %s: %w", addr, err)
		}
	}
	return nil
}

// Marked returns all keys with a dirty mark, whose records may be newer than the archive.
func Marked(ctx context.Context, c history.Ledger) ([]history.Key, error) {
	all := make([]history.Bucket, history.Buckets)
	for b := range all {
		all[b] = history.Bucket(b) //nolint:gosec // 1,024 of them
	}
	return c.Overdue(ctx, all, 0, 1_000_000)
}

// Settled fails while a key has a dirty mark.
func Settled(ctx context.Context, c history.Ledger) error {
	left, err := Marked(ctx, c)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d keys are marked, such as %s", len(left), left[0])
	}
	return err
}
