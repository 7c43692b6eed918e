package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
)

// ErrVolatile means that a topic's settings may lose acknowledged messages.
var ErrVolatile = errors.New("kafka may lose acknowledged messages")

var errUnusable = errors.New("unusable topic")

// Settings of a topic that matter.
const (
	minInSync  = "min.insync.replicas"
	retention  = "retention.ms"
	cleanup    = "cleanup.policy"
	maxMessage = "max.message.bytes"
	unclean    = "unclean.leader.election.enable"
)

const (
	// wantedReplicas is the replication factor of a topic, if there are as many brokers.
	wantedReplicas = 3
	// leastRetention exceeds the day for which a job holds a commit back, see package recovery.
	leastRetention = 2 * 24 * time.Hour
)

// Fit checks that the topic takes and keeps acknowledged messages: its replication, its in-sync replicas and its retention.
// Settings can change at runtime, so call it regularly. Brokers that hide a setting pass. It fails with an
// [ErrVolatile] that names each setting, or with [history.ErrUnavailable].
func (q *Queue) Fit(ctx context.Context) error {
	t, err := q.describe(ctx)
	if err != nil {
		return fmt.Errorf("describe topic %s: %w: %w", q.cfg.Topic, history.ErrUnavailable, err)
	}
	if err := q.usable(t); err != nil {
		return err
	}
	if faults := t.volatile(); len(faults) > 0 {
		return fmt.Errorf("%w: topic %s has %s", ErrVolatile, q.cfg.Topic, strings.Join(faults, "; "))
	}
	return nil
}

// checkUsable fails for settings under which the topic is of no use. A retry cannot mend them.
func (q *Queue) checkUsable(ctx context.Context) error {
	t, err := q.describe(ctx)
	if err != nil {
		return err
	}
	return q.usable(t)
}

func (q *Queue) usable(t topic) error {
	if fault := t.unusable(q.cfg.MaxBytes); fault != "" {
		return fmt.Errorf("%w: %s has %s", errUnusable, q.cfg.Topic, fault)
	}
	return nil
}

// topic is what the brokers say of a topic.
type topic struct {
	brokers  int
	replicas int               // of the partition with the fewest
	settings map[string]string // without those that the brokers hide
}

func (q *Queue) describe(ctx context.Context) (t topic, err error) {
	res, err := q.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{q.cfg.Topic}})
	if err != nil {
		return t, err
	}
	t = topic{brokers: len(res.Brokers), settings: map[string]string{}}
	for _, found := range res.Topics {
		if found.Error != nil {
			return t, found.Error
		}
		for i, p := range found.Partitions {
			if n := len(p.Replicas); i == 0 || n < t.replicas {
				t.replicas = n
			}
		}
	}
	configs, err := q.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: q.cfg.Topic,
		ConfigNames: []string{minInSync, retention, cleanup, maxMessage, unclean},
	}}})
	if err != nil {
		return t, err
	}
	for _, r := range configs.Resources { // an error means that this user may not ask
		for _, c := range r.ConfigEntries {
			t.settings[c.ConfigName] = c.ConfigValue
		}
	}
	return t, nil
}

// number returns a setting that is a number, or -1.
func (t topic) number(name string) int64 {
	n, err := strconv.ParseInt(t.settings[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// volatile returns the settings that may lose messages, with what they should be.
func (t topic) volatile() (faults []string) {
	add := func(name string, got, want any) {
		faults = append(faults, fmt.Sprintf("%s %v, want %v", name, got, want))
	}
	if want := min(wantedReplicas, t.brokers); t.replicas > 0 && t.replicas < want {
		add("replication factor", t.replicas, want)
	}
	if n := t.number(minInSync); t.replicas >= wantedReplicas && n >= 0 && n < 2 {
		add(minInSync, n, 2)
	}
	if ms := t.number(retention); ms >= 0 && ms < leastRetention.Milliseconds() {
		add(retention, ms, fmt.Sprint(leastRetention.Milliseconds(), " or more"))
	}
	if t.settings[unclean] == "true" {
		add(unclean, true, false)
	}
	return faults
}

// unusable returns the setting that makes the topic useless, with what it should be, or nothing.
func (t topic) unusable(maxBytes int) string {
	switch in, size := t.number(minInSync), t.number(maxMessage); {
	case t.replicas > 0 && in > int64(t.replicas):
		return fmt.Sprintf("%s %d with replication factor %d, so that it takes no message: want %d", minInSync, in, t.replicas, max(1, t.replicas-1))
	case size >= 0 && size < int64(maxBytes):
		return fmt.Sprintf("%s %d, want %d or more", maxMessage, size, maxBytes)
	case strings.Contains(t.settings[cleanup], "compact"): // keys of messages repeat
		return cleanup + " " + t.settings[cleanup] + ", which drops unread messages: want delete"
	}
	return ""
}
