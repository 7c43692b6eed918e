package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/internal/trace"
)

// Open is [New] followed by [Queue.Prepare]. The caller closes the queue.
func Open(ctx context.Context, cfg Config) (*Queue, error) {
	q, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := q.Prepare(ctx); err != nil {
		q.transport.CloseIdleConnections()
		return nil, err
	}
	return q, nil
}

// Prepare checks that the brokers answer, and creates a missing topic. It fails with [history.ErrUnavailable] if a
// retry may succeed, and otherwise if brokers refuse this user or the topic.
func (q *Queue) Prepare(ctx context.Context) error {
	err := q.prepare(ctx)
	switch e := kafka.Error(0); {
	case err == nil:
		return nil
	case errors.Is(err, errUnusable), errors.As(err, &e) && slices.Contains(refusals, e):
		return fmt.Errorf("open kafka: %w", err)
	default:
		return fmt.Errorf("open kafka: %w: %w", history.ErrUnavailable, err)
	}
}

// refusals are errors that persist until somebody changes a setting. All others are transient, such as a missing
// controller or leader, a loading coordinator, a topic in creation, or brokers still starting.
var refusals = []kafka.Error{
	kafka.SASLAuthenticationFailed, kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.SecurityDisabled,
	kafka.ClusterAuthorizationFailed, kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed,
	kafka.UnsupportedVersion, kafka.InvalidTopic, kafka.InvalidPartitionNumber, kafka.InvalidConfiguration,
	kafka.InvalidRequest, kafka.PolicyViolation,
}

// openTimeout bounds Open's wait for brokers and a new topic.
const openTimeout = 30 * time.Second

// prepare checks that the brokers answer and that the topic exists.
func (q *Queue) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	n, err := q.partitions(ctx)
	switch {
	case errors.Is(err, kafka.UnknownTopicOrPartition):
		if _, err = q.create(ctx); err == nil {
			q.cfg.Logger.Info("topic created", "topic", q.cfg.Topic, "partitions", q.cfg.Partitions)
		}
	case err == nil && n != q.cfg.Partitions:
		q.cfg.Logger.Info("existing topic keeps its partitions", "topic", q.cfg.Topic, "partitions", n, "configured", q.cfg.Partitions)
	}
	if err != nil {
		return err
	}
	return q.checkUsable(ctx)
}

// topicMissing reports whether the brokers do not know the topic. That may be transient while partitions move.
func topicMissing(err error) bool {
	return errors.Is(err, kafka.UnknownTopicOrPartition) || errors.Is(err, protocol.ErrNoTopic)
}

// recreatePause is the minimum interval between attempts to recreate a topic.
const recreatePause = time.Second

// recreateTopic recreates a deleted topic, one caller at a time, so no restart is needed. An existing topic is
// unchanged. It logs an error that names the topic, and another one, once, if the brokers refuse to create it.
func (q *Queue) recreateTopic(ctx context.Context) error {
	select {
	case q.recreating <- struct{}{}:
		defer func() { <-q.recreating }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if time.Since(q.recreatedAt) < recreatePause {
		return nil
	}
	defer func() { q.recreatedAt = time.Now() }()
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	seen := q.seen.Load()
	created, err := q.create(ctx)
	switch log := q.cfg.Logger.With("topic", q.cfg.Topic); {
	case err != nil && !q.missing:
		log.Error("topic is missing and was not created; will retry", "error", err)
	case created && !seen:
		log.Info("topic created", "partitions", q.cfg.Partitions)
	case created:
		log.Error("topic was deleted; created again", "partitions", q.cfg.Partitions, "effect", "its unread messages are lost; the sweep archives keys by their marks")
	}
	q.missing = err != nil
	return err
}

// ensuredLeaders is leaders, but recreates a missing topic.
func (q *Queue) ensuredLeaders(ctx context.Context) (leaders []kafka.Broker, err error) {
	leaders, err = q.leaders(ctx)
	if !topicMissing(err) {
		return leaders, err
	}
	if err := q.recreateTopic(ctx); err != nil {
		return nil, err
	}
	return q.leaders(ctx)
}

// partitions returns how many partitions the topic has.
func (q *Queue) partitions(ctx context.Context) (int, error) {
	leaders, err := q.leaders(ctx)
	return len(leaders), err
}

// leaders returns the partitions' leaders. The transport answers from metadata a few seconds old, so calls are
// cheap and follow a growing topic.
func (q *Queue) leaders(ctx context.Context) ([]kafka.Broker, error) {
	res, err := q.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{q.cfg.Topic}})
	if err != nil {
		return nil, fmt.Errorf("no broker answers at %s: %w; is Kafka running there, and are address, TLS and credentials right?", q.addrs(), err)
	}
	err = kafka.UnknownTopicOrPartition
	var leaders []kafka.Broker
	for _, t := range res.Topics {
		if t.Name == q.cfg.Topic {
			leaders, err = make([]kafka.Broker, len(t.Partitions)), t.Error
			for _, p := range t.Partitions {
				if p.ID >= 0 && p.ID < len(leaders) {
					leaders[p.ID] = p.Leader
				}
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", q.cfg.Topic, err)
	}
	q.seen.Store(true)
	q.brokersMu.Lock()
	defer q.brokersMu.Unlock()
	q.leading = leaders
	return leaders, nil
}

// countPartitions asks a broker over a connection of its own, without cached metadata.
func (q *Queue) countPartitions(ctx context.Context) (n int, err error) {
	for _, broker := range q.cfg.Brokers {
		var all []kafka.Partition
		if all, err = q.dialer().LookupPartitions(ctx, "tcp", broker, q.cfg.Topic); err == nil {
			return len(all), nil
		}
	}
	return 0, fmt.Errorf("count partitions of %s: %w", q.cfg.Topic, err)
}

func (q *Queue) dialer() *kafka.Dialer {
	return &kafka.Dialer{ClientID: clientID, Timeout: dialTimeout, DualStack: true, TLS: q.cfg.TLS, SASLMechanism: q.mechanism}
}

// create reports whether the topic was missing.
func (q *Queue) create(ctx context.Context) (created bool, err error) {
	found, err := q.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{q.cfg.Topic}})
	if err != nil {
		return false, err
	}
	replicas := cmp.Or(q.cfg.Replication, min(wantedReplicas, len(found.Brokers)))
	res, err := q.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{q.topic(replicas)}})
	if err == nil {
		err = res.Errors[q.cfg.Topic]
	}
	if created = err == nil; !created && !errors.Is(err, kafka.TopicAlreadyExists) { // another process was quicker
		return false, fmt.Errorf("create topic %s with %d partitions: %w; if this user may not, create it by hand", q.cfg.Topic, q.cfg.Partitions, err)
	}
	return created, retry(ctx, func() error { return q.checkLeaders(ctx) })
}

// checkLeaders reports whether all partitions' leaders answer; metadata names them slightly earlier.
func (q *Queue) checkLeaders(ctx context.Context) error {
	n, err := q.partitions(ctx)
	if err != nil {
		return err
	}
	requests := make([]kafka.OffsetRequest, n)
	for p := range requests {
		requests[p] = kafka.LastOffsetOf(p)
	}
	res, err := q.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{q.cfg.Topic: requests}})
	if err != nil {
		return fmt.Errorf("topic %s: %w", q.cfg.Topic, err)
	}
	for _, p := range res.Topics[q.cfg.Topic] {
		err = cmp.Or(err, p.Error)
	}
	return err
}

// topic returns the configuration for a new topic. With three replicas an acknowledged message is on at least two.
func (q *Queue) topic(replicas int) kafka.TopicConfig {
	t := kafka.TopicConfig{Topic: q.cfg.Topic, NumPartitions: q.cfg.Partitions, ReplicationFactor: replicas}
	if replicas >= wantedReplicas {
		t.ConfigEntries = []kafka.ConfigEntry{{ConfigName: minInSync, ConfigValue: "2"}}
	}
	return t
}

const (
	// pollWait is how long a broker waits for messages before an empty answer.
	pollWait = 2 * time.Second
	// pollTimeout is when an unanswered poll fails.
	pollTimeout = pollWait + 10*time.Second
	// pollBytes bounds the answer, unless a single batch is larger.
	pollBytes = 1 << 20
)

// fetch fetches messages of a partition from an offset on, once. end is the partition's end.
func (q *Queue) fetch(ctx context.Context, partition int, offset int64) (records kafka.RecordReader, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	res, err := q.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: q.cfg.Topic, Partition: partition, Offset: offset,
		MinBytes: 1, MaxBytes: pollBytes, MaxWait: pollWait,
	})
	if err != nil {
		return nil, 0, err
	}
	return res.Records, res.HighWatermark, res.Error
}

// record is a message as brokers return it.
type record struct {
	offset  int64
	at      time.Time
	payload []byte
	trace   string // traceparent, usually empty
}

// parent returns the traceparent among a message's headers.
func parent(headers []kafka.Header) string {
	for _, h := range headers {
		if h.Key == trace.Header {
			return string(h.Value)
		}
	}
	return ""
}

// each calls do for each message from an offset on. Brokers return whole batches, which may begin earlier.
func each(records kafka.RecordReader, from int64, do func(record) error) error {
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record: %w", err)
		}
		if rec.Offset < from {
			continue
		}
		payload, err := kafka.ReadAll(rec.Value)
		if err != nil {
			return fmt.Errorf("read record %d: %w", rec.Offset, err)
		}
		if err := do(record{rec.Offset, rec.Time, payload, parent(rec.Headers)}); err != nil {
			return err
		}
	}
}

// offset returns the requested offset, or a negative one if no message is that recent.
func (q *Queue) offset(ctx context.Context, r kafka.OffsetRequest) (int64, error) {
	res, err := q.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{q.cfg.Topic: {r}}})
	if err != nil {
		return 0, err
	}
	for _, p := range res.Topics[q.cfg.Topic] {
		switch r.Timestamp {
		case kafka.FirstOffset:
			return p.FirstOffset, p.Error
		case kafka.LastOffset:
			return p.LastOffset, p.Error
		}
		for o := range p.Offsets { // the only one
			return o, p.Error
		}
	}
	return 0, protocol.ErrNoPartition
}

// retryPause is the pause between attempts while the cluster changes.
const retryPause = 100 * time.Millisecond

// retry calls try until the error is not temporary or ctx is done, and returns the last error.
func retry(ctx context.Context, try func() error) error {
	err := try()
	for isTemporary(err) && run.Sleep(ctx, retryPause) {
		err = try()
	}
	return err
}

// retryWithTopic is retry, but recreates a missing topic.
func (q *Queue) retryWithTopic(ctx context.Context, try func() error) error {
	return retry(ctx, func() error {
		err := try()
		if topicMissing(err) {
			err = cmp.Or(q.recreateTopic(ctx), err)
		}
		return err
	})
}

// isTemporary reports whether a retry may succeed, such as while a partition changes its leader.
func isTemporary(err error) bool {
	var e kafka.Error
	return errors.As(err, &e) && e.Temporary() ||
		errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) || errors.Is(err, protocol.ErrNoLeader)
}

// Topics are topics that contain uids. Single messages cannot be removed; they expire by the topic's retention.
type Topics struct {
	queue *Queue
	names []string
}

// Topics returns the named topics of the queue's brokers.
func (q *Queue) Topics(names ...string) *Topics { return &Topics{q, names} }

// Held counts a user's stored items by place. Messages cannot be found by user.
func (t *Topics) Held(context.Context, string, int64) (map[string]int, error) { return nil, nil }

// Erase removes a user's data up to a time.
func (t *Topics) Erase(context.Context, string, int64) error { return nil }

// Remains says where erased bytes stay.
func (t *Topics) Remains(ctx context.Context) []string {
	remains := make([]string, len(t.names))
	for i, name := range t.names {
		remains[i] = fmt.Sprintf("Kafka topic %q: in messages of up to now, for %s", name, t.retention(ctx, name))
	}
	return remains
}

// retention describes how long a topic keeps messages.
func (t *Topics) retention(ctx context.Context, topic string) string {
	const setting = retention
	res, err := t.queue.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{setting}},
	}})
	if err != nil {
		return fmt.Sprintf("as long as it keeps them (%v)", err)
	}
	for _, r := range res.Resources {
		err = errors.Join(err, r.Error)
		for _, c := range r.ConfigEntries {
			if ms, err := strconv.ParseInt(c.ConfigValue, 10, 64); c.ConfigName == setting && err == nil && ms >= 0 {
				return (time.Duration(ms) * time.Millisecond).String()
			}
		}
	}
	return fmt.Sprintf("as long as it keeps them (%s is not known: %v)", setting, err)
}
