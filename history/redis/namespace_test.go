package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/redis"
)

// TestNamespaces writes records of a user and its namespaces in one call. A class's records live an hour longer
// than it keeps them. They have their own list and change log. An erasure finds all, even of unknown classes.
func TestNamespaces(t *testing.T) {
	rules, err := history.ParseRules("", []string{"a: types=7 keep=2h list=1", "b: types=8 keep=90d"})
	if err != nil {
		t.Fatal(err)
	}
	everywhere(t, func(t *testing.T, config redis.Config) {
		config.TTL, config.Keep, config.Rules = 24*time.Hour, 2, rules
		c, client, ctx := open(t, config), raw(t, config), t.Context()
		uid := user(t, c)
		namespaces := []string{uid, history.NamespaceUID(uid, "a"), history.NamespaceUID(uid, "b"), history.NamespaceUID(uid, "gone")}
		want := []time.Duration{24 * time.Hour, 3 * time.Hour, 24 * time.Hour, 24 * time.Hour}
		var writes []history.Write
		for _, id := range []string{"1", "2", "3"} {
			for i, namespace := range namespaces {
				writes = append(writes, history.Write{Key: key(namespace, id), Record: record(hourAgo()+int64(10*i+len(writes)), uint64(len(writes)+1)), BeginsHold: i%2 == 0})
			}
		}
		for _, namespace := range namespaces {
			if _, err := c.Changes(ctx, namespace, 0, 9); err != nil { // begins a log
				t.Fatal(err)
			}
		}
		put(t, c, writes...)
		tag := "{" + bucket(uid) + "}:"
		for i, namespace := range namespaces {
			if err := c.Warm(ctx, namespace, history.WarmSet{}); err != nil {
				t.Fatal(err)
			}
			wantTTL(t, client.TTL(ctx, tag+"h:"+namespace).Val(), want[i]+24*time.Hour)
			wantTTL(t, client.TTL(ctx, tag+"u:"+namespace).Val(), want[i]+24*time.Hour)
		}
		var clean []history.Content
		for _, w := range writes {
			clean = append(clean, history.Content{Key: w.Key, Revision: w.Record.Revision})
		}
		if err := c.MarkClean(ctx, clean); err != nil {
			t.Fatal(err)
		}
		for i, namespace := range namespaces {
			wantTTL(t, client.TTL(ctx, tag+"c:"+namespace+":1_1").Val(), want[i])
		}
		if err := c.Trim(ctx, namespaces); err != nil {
			t.Fatal(err)
		}
		for i, n := range []int{2, 1, 2, 2} {
			page, err := c.List(ctx, namespaces[i], history.Query{Limit: 9})
			if err != nil || len(page.Items) != n {
				t.Errorf("namespace %q: a list of %d, %v; want %d", namespaces[i], len(page.Items), err, n)
			}
			if log, err := c.Changes(ctx, namespaces[i], 0, 9); err != nil || len(log.Entries) != 2 {
				t.Errorf("namespace %q: a log of %d, %v; want 2", namespaces[i], len(log.Entries), err)
			}
		}
		found, err := c.Namespaces(ctx, uid)
		slices.Sort(found)
		if err != nil || !slices.Equal(found, namespaces[1:]) {
			t.Errorf("namespaces: got %q, %v", found, err)
		}
	})
}
