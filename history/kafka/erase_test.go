package kafka_test

import (
	"strings"
	"testing"

	"github.com/playhead/playhead/history/kafka"
)

// TestTopicsRemain reports retention, also of a missing topic.
func TestTopicsRemain(t *testing.T) { topicsRemain(t, fresh(t, cluster(t).ListenAddrs())) }

func topicsRemain(t *testing.T, cfg kafka.Config) {
	q, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	topics := q.Topics(cfg.Topic, "no-such-topic")
	got := topics.Remains(t.Context())
	if len(got) != 2 || !strings.Contains(got[0], cfg.Topic) || !strings.HasSuffix(got[0], "for 168h0m0s") || !strings.Contains(got[1], "is not known") {
		t.Errorf("got %q, want a week for the first, and that nobody knows of the second", got)
	}
}
