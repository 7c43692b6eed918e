package rpc_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memfeed"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// fed is a service with a feed, in virtual time.
type fed struct {
	*testing.T
	*house
	*rpc.Server
	feed *memfeed.Feed
}

func bubble(t *testing.T, fn func(f *fed), wrap ...func(*rpc.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fed{T: t, house: newHouse(t), feed: new(memfeed.Feed)}
		f.Server = f.another(wrap...)
		fn(f)
	})
}

// another starts another service on the same stores and feed.
func (f *fed) another(wrap ...func(*rpc.Config)) *rpc.Server {
	f.Helper()
	with := func(cfg *rpc.Config) { cfg.Feed = f.feed }
	return f.service(f.T, append([]func(*rpc.Config){with}, wrap...)...)
}

// viewer is a Watch stream, like a bff's.
type viewer struct {
	grpc.ServerStream
	*testing.T

	ctx   context.Context
	asks  chan *historyv1.WatchRequest
	ended chan error
	stop  context.CancelFunc

	mu    sync.Mutex
	slow  chan struct{} // if set, Send blocks until it is closed
	heard []string
	most  int // largest message in bytes
}

// watch opens a stream that watches each "user#connection", and discards the first notices.
func watch(t *testing.T, s *rpc.Server, who ...string) *viewer {
	t.Helper()
	v := &viewer{T: t, asks: make(chan *historyv1.WatchRequest), ended: make(chan error, 1)}
	v.ctx, v.stop = context.WithCancel(t.Context())
	go func() {
		err := s.Watch(v)
		v.stop()
		v.ended <- err
	}()
	t.Cleanup(v.stop)
	v.asks <- &historyv1.WatchRequest{Added: watchers(who)}
	v.rest()
	v.take()
	return v
}

func watchers(who []string) (all []*historyv1.Watcher) {
	for _, w := range who {
		uid, id, _ := strings.Cut(w, "#")
		var n uint64
		_, _ = fmt.Sscan(id, &n) // 0 for none
		all = append(all, &historyv1.Watcher{Uid: uid, Id: n})
	}
	return all
}

// rest waits a second of virtual time for everything to arrive.
func (v *viewer) rest() {
	synctest.Wait()
	pass(second)
	synctest.Wait()
}

// take returns the changes since the last call, in order.
func (v *viewer) take() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	heard := v.heard
	v.heard = nil
	return heard
}

func (v *viewer) hears(want ...string) {
	v.Helper()
	v.rest()
	if got := v.take(); !slices.Equal(got, want) {
		v.Errorf("told %q, want %q", got, want)
	}
}

// Context implements [grpc.ServerStream].
func (v *viewer) Context() context.Context { return v.ctx }

// Recv implements [grpc.BidiStreamingServer].
func (v *viewer) Recv() (*historyv1.WatchRequest, error) {
	select {
	case req, ok := <-v.asks:
		if !ok {
			return nil, io.EOF
		}
		return req, nil
	case <-v.ctx.Done():
		return nil, v.ctx.Err()
	}
}

// Send implements [grpc.BidiStreamingServer].
func (v *viewer) Send(resp *historyv1.WatchResponse) error {
	v.mu.Lock()
	slow := v.slow
	v.mu.Unlock()
	if slow != nil {
		<-slow
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most = max(v.most, proto.Size(resp))
	for _, c := range resp.GetChanges() {
		v.heard = append(v.heard, say(c))
	}
	return nil
}

// say formats a change as text: "u: film@30 -book +7 resync by 5".
func say(c *historyv1.Change) string {
	text := c.GetUid() + ":"
	for _, it := range c.GetItems() {
		text += fmt.Sprintf(" %s@%d", it.GetObject().GetId(), it.GetPositionMs()/1000)
	}
	for _, o := range c.GetRemoved() {
		text += " -" + o.GetId()
	}
	for _, id := range c.GetAdded() {
		text += fmt.Sprintf(" +%d", id)
	}
	if c.GetResync() {
		text += " resync"
	}
	if c.GetOrigin() != 0 {
		text += fmt.Sprintf(" by %d", c.GetOrigin())
	}
	return text
}

// by is a heartbeat from a connection.
func by(origin uint64, key string, ago, seconds int64) *historyv1.Heartbeat {
	hb := beat(key, historyv1.Kind_KIND_PROGRESS, ago, seconds)
	hb.Origin = origin
	return hb
}

// failing is a feed whose first announcements fail.
type failing struct {
	history.Feed
	left int
}

func (f *failing) Announce(ctx context.Context, changes []history.Change) error {
	if f.left--; f.left >= 0 {
		return errDown
	}
	return f.Feed.Announce(ctx, changes)
}
