package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/kafka"
)

// TestRights uses every call with the rights that docs/operate.md grants: the topics exist, or the user may create them.
func TestRights(t *testing.T) {
	on := func(what kmsg.ACLResourceType, name string, operations ...kmsg.ACLOperation) (all []kfake.ACL) {
		for _, o := range operations {
			all = append(all, kfake.ACL{Resource: what, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: o, Allow: true})
		}
		return all
	}
	granted := append(
		on(kmsg.ACLResourceTypeTopic, "history.", kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs),
		on(kmsg.ACLResourceTypeGroup, "history-", kmsg.ACLOperationRead, kmsg.ACLOperationDescribe)...,
	)
	create := on(kmsg.ACLResourceTypeTopic, "history.", kmsg.ACLOperationCreate)
	for _, tt := range []struct {
		name   string
		exist  bool
		rights []kfake.ACL
	}{{"topics exist", true, granted}, {"topics are created", false, append(create, granted...)}} {
		t.Run(tt.name, func(t *testing.T) {
			opts := []kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), kfake.User("PLAIN", "playhead", "secret", tt.rights...)}
			if tt.exist {
				opts = append(opts, kfake.SeedTopics(2, "history.flush", "history.dead"))
			}
			cfg := kafka.Config{Brokers: cluster(t, opts...).ListenAddrs(), Partitions: 2, Username: "playhead", Password: "secret"}
			q := open(t, cfg)
			publish(t, q, announced(4))
			receive(t, q, 4)
			if err := q.Fit(t.Context()); err != nil {
				t.Errorf("settings: %v", err)
			}
			if _, err := q.CommitMetadata(t.Context()); err != nil {
				t.Errorf("commits: %v", err)
			}
			if err := q.Reread(t.Context(), history.AllBuckets(), time.Now().Add(-time.Hour), func(context.Context, []history.Announcement) error { return nil }); err != nil {
				t.Errorf("read again: %v", err)
			}
			dead, err := kafka.OpenDead(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer dead.Close()
			if err := dead.Add(t.Context(), []history.Dead{{Key: history.UserKey("ann"), Origin: "archive", At: 1}}); err != nil {
				t.Fatal(err)
			}
			if got := redriven(t, dead, nil); len(got) != 1 {
				t.Errorf("driven again: %v", got)
			}
		})
	}
}
