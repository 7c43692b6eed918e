package stores

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/playhead/playhead/history"
)

// slowCache is a cache of three nodes, one of them slow.
type slowCache struct {
	history.Cache

	slow string
	let  chan struct{}
}

func (c slowCache) Load(_ context.Context, keys []history.Key) []history.Entry {
	if c.Node(history.BucketOf(keys[0].UID)) == c.slow {
		<-c.let
	}
	return make([]history.Entry, len(keys))
}

func (slowCache) Node(b history.Bucket) string { return string('a' + rune(b%3)) }

// A node has at most 256 concurrent calls. Further calls fail at once, and other nodes are not affected.
func TestCallsOfANodeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := slowCache{slow: "a", let: make(chan struct{})}
		n := NewNodes(cache, cache, slog.New(slog.DiscardHandler), nil)
		load := func(node string) error {
			for k := 0; ; k++ {
				if uid := fmt.Sprint("user", k); n.Of(uid) == node {
					return n.Load(t.Context(), []history.Key{history.UserKey(uid)})[0].Err
				}
			}
		}
		var wg sync.WaitGroup
		for range maxCalls {
			wg.Go(func() {
				if err := load("a"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		more := make(chan error, 1)
		go func() { more <- load("a") }()
		synctest.Wait()
		select {
		case err := <-more:
			if err == nil || !strings.Contains(err.Error(), "too many calls") {
				t.Errorf("one more: %v", err)
			}
		default:
			t.Error("one more waits")
		}
		if err := load("b"); err != nil {
			t.Errorf("another node: %v", err)
		}
		close(cache.let)
		wg.Wait()
		if err := load("a"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
