package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
)

// Announce implements [history.Feed] in one exchange per node.
func (c *Cache) Announce(ctx context.Context, changes []history.Change) error {
	most := min(len(changes), history.Buckets)
	t := newTexts(most, 30*most+40*len(changes), 3*most)
	sorted, ends := grouped(changes)
	begin := 0
	for b, end := range ends {
		if begin < end {
			t.next()
			t.end(append(t.buf, "spublish"...))
			t.end(appendChannel(t.buf, history.Bucket(b))) //nolint:gosec // there are as many
			t.end(wire.AppendChanges(t.buf, sorted[begin:end]))
		}
		begin = end
	}
	cmds := t.commands(ctx)
	if len(cmds) > 0 {
		pipeline(ctx, c, cmds)
	}
	return unavailable("announce changes", firstErr(cmds))
}

// Interrupt implements [history.Feed] in one exchange per node.
func (c *Cache) Interrupt(ctx context.Context, buckets []history.Bucket) error {
	cmds := make([]*goredis.IntCmd, len(buckets))
	for i, b := range buckets {
		cmds[i] = goredis.NewIntCmd(ctx, "spublish", channel(b), wire.AppendMissed(nil))
	}
	if len(cmds) > 0 {
		pipeline(ctx, c, cmds)
	}
	return unavailable("announce an interruption", firstErr(cmds))
}

// grouped sorts the changes by bucket and user, and returns the end of each bucket.
func grouped(changes []history.Change) (sorted []history.Change, ends []int) {
	ends = make([]int, history.Buckets)
	for _, c := range changes {
		ends[history.BucketOf(c.Key.UID)]++
	}
	next, end := make([]int, history.Buckets), 0
	for b, n := range ends {
		next[b], end = end, end+n
		ends[b] = end
	}
	sorted = make([]history.Change, len(changes))
	for _, c := range changes {
		b := history.BucketOf(c.Key.UID)
		sorted[next[b]] = c
		next[b]++
	}
	begin := 0
	for _, end := range ends {
		slices.SortFunc(sorted[begin:end], byUser)
		begin = end
	}
	return sorted, ends
}

func byUser(a, b history.Change) int {
	return cmp.Or(strings.Compare(a.Key.UID, b.Key.UID), cmp.Compare(a.Origin, b.Origin))
}

// Subscribe implements [history.Feed]. It does no I/O until a bucket is followed.
func (c *Cache) Subscribe(handle func(history.Notice)) history.Subscription {
	s := &subscription{
		cache: c, handler: handle, wake: make(chan struct{}, 1),
		want: make(map[history.Bucket]bool), pending: make(map[history.Bucket]struct{}),
		channels: make(map[history.Bucket]*channelState), conns: make(map[string]*nodeConn),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// subscription follows channels over one connection per server. The client's own resubscription is unusable: it
// subscribes to all channels in one command, which a cluster refuses. It also does not report gaps.
type subscription struct {
	cache   *Cache
	handler func(history.Notice)
	wake    chan struct{} // capacity 1: some buckets are pending
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	started  bool
	want     map[history.Bucket]bool
	pending  map[history.Bucket]struct{} // to be reconciled
	channels map[history.Bucket]*channelState
	conns    map[string]*nodeConn // by the server's address
	moved    bool                 // a bucket moved to a server not yet known
}

// channelState is a channel's state on its connection.
type channelState struct {
	conn  *nodeConn
	phase phase
}

type phase uint8

const (
	joining phase = iota
	subscribed
	leaving
)

// Follow implements [history.Subscription].
func (s *subscription) Follow(b history.Bucket) { s.setWanted(b, true) }

// Unfollow implements [history.Subscription].
func (s *subscription) Unfollow(b history.Bucket) { s.setWanted(b, false) }

func (s *subscription) setWanted(b history.Bucket, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	s.want[b] = on
	s.schedule(b)
	if !s.started {
		s.started = true
		s.running.Go(s.run)
	}
}

// schedule marks a bucket as pending. The caller holds s.mu.
func (s *subscription) schedule(b history.Bucket) {
	s.pending[b] = struct{}{}
	run.Wake(s.wake)
}

// Close implements [history.Subscription]. It never fails.
func (s *subscription) Close() error {
	s.mu.Lock()
	s.stop()
	for _, l := range s.conns {
		l.close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// run reconciles pending buckets until the subscription is closed, with backoff while servers fail.
func (s *subscription) run() {
	for backoff := (run.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}); ; {
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
		pending, moved := s.takePending()
		if !moved && s.reconcile(pending) {
			backoff.Reset()
			continue
		}
		s.cache.forget(s.ctx)
		backoff.Sleep(s.ctx)
	}
}

// takePending returns the pending buckets. If a bucket has moved, all stay pending.
func (s *subscription) takePending() (pending map[history.Bucket]struct{}, moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moved {
		s.moved = false
		run.Wake(s.wake)
		return nil, true
	}
	pending = s.pending
	s.pending = make(map[history.Bucket]struct{})
	return pending, false
}

// reconcile brings each bucket closer to its wanted state. It returns false if a server failed; that server's
// buckets stay pending.
func (s *subscription) reconcile(pending map[history.Bucket]struct{}) (ok bool) {
	ok = true
	var joined []history.Bucket
	down := make(map[string]error)
	for b := range pending {
		joinedAll, err := s.reconcileBucket(b, down)
		if joinedAll {
			joined = append(joined, b)
		}
		if err != nil {
			ok = false
			s.mu.Lock()
			s.schedule(b)
			s.mu.Unlock()
		}
	}
	if len(joined) > 0 {
		s.handler(history.Notice{Joined: joined})
	}
	return ok
}

// reconcileBucket takes the next step for a bucket, unless its server just failed. It reports whether an already
// subscribed bucket is wanted again: no server will confirm that.
func (s *subscription) reconcileBucket(b history.Bucket, down map[string]error) (joined bool, err error) {
	s.mu.Lock()
	at, want := s.channels[b], s.want[b]
	inside := at != nil && at.phase == subscribed
	if inside && !want {
		at.phase = leaving
	}
	if !want {
		delete(s.want, b)
	}
	s.mu.Unlock()
	switch {
	case at == nil && want:
		return false, s.join(b, down)
	case inside && !want:
		return false, s.leave(b, at.conn)
	}
	return inside, nil // other states change with the server's reply
}

// nodeConn is a connection to one server. After any error it is closed and its buckets are followed again.
type nodeConn struct {
	subscription *subscription
	addr         string
	pubsub       *goredis.PubSub
	close        func() // idempotent
}

// silence is how long a server may be silent before a ping, and then before the connection is given up.
const silence = 3 * time.Second

// join subscribes to a bucket at its server, unless that server is down.
func (s *subscription) join(b history.Bucket, down map[string]error) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cache.config.Timeout)
	defer cancel()
	node, err := s.cache.master(ctx, b)
	if err != nil {
		return err
	}
	if err := down[node.Options().Addr]; err != nil {
		return err
	}
	l, listening := s.conn(node)
	s.setChannel(b, &channelState{conn: l, phase: joining})
	if err := l.pubsub.SSubscribe(ctx, channel(b)); err != nil {
		s.lost(l, err)
		down[l.addr] = err
		return err
	}
	if !listening {
		s.running.Go(l.listen)
	}
	return nil
}

// conn returns the connection to a server, and whether its listener runs.
func (s *subscription) conn(node *goredis.Client) (l *nodeConn, listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := node.Options().Addr
	if l := s.conns[addr]; l != nil {
		return l, true
	}
	l = &nodeConn{subscription: s, addr: addr, pubsub: node.SSubscribe(s.ctx)}
	l.close = sync.OnceFunc(func() { _ = l.pubsub.Close() }) // given up
	s.conns[addr] = l
	return l, false
}

func (s *subscription) setChannel(b history.Bucket, at *channelState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channels[b] = at
}

// leave unsubscribes from a bucket.
func (s *subscription) leave(b history.Bucket, l *nodeConn) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cache.config.Timeout)
	defer cancel()
	err := l.pubsub.SUnsubscribe(ctx, channel(b))
	if err != nil {
		s.lost(l, err)
	}
	return err
}

// lost closes a connection and schedules its buckets.
func (s *subscription) lost(l *nodeConn, err error) {
	l.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[l.addr] != l || s.ctx.Err() != nil {
		return
	}
	delete(s.conns, l.addr)
	buckets := 0
	for b, at := range s.channels {
		if at.conn != l {
			continue
		}
		delete(s.channels, b)
		s.schedule(b)
		if at.phase == subscribed {
			buckets++
		}
	}
	if buckets > 0 {
		s.cache.config.Log.Warn("feed interrupted", "addr", l.addr, "buckets", buckets, "error", err)
	}
}

// listen handles the server's messages until the connection is lost.
func (l *nodeConn) listen() {
	for asked := false; ; {
		message, err := l.pubsub.ReceiveTimeout(l.subscription.ctx, silence)
		if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() && !asked {
			asked, err = true, l.pubsub.Ping(l.subscription.ctx)
			if err == nil {
				continue
			}
		}
		if goredis.HasErrorPrefix(err, "MOVED") {
			l.subscription.refused(l)
			continue
		}
		if err == nil {
			asked = false
			err = l.subscription.handle(l, message)
		}
		if err != nil {
			l.subscription.lost(l, err)
			return
		}
	}
}

// refused handles a MOVED error, which does not name the bucket. All unconfirmed buckets of the connection join
// again; that is harmless for those the server has.
func (s *subscription) refused(l *nodeConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
	for b, at := range s.channels {
		if at.conn == l && at.phase == joining {
			delete(s.channels, b)
			s.schedule(b)
		}
	}
}

// handle handles a message of a server.
func (s *subscription) handle(l *nodeConn, message any) error {
	switch what := message.(type) {
	case *goredis.Message:
		if b, ok := bucketOf(what.Channel); ok && wire.Missed([]byte(what.Payload)) {
			s.handler(history.Notice{Joined: []history.Bucket{b}})
			return nil
		}
		changes, err := wire.Changes([]byte(what.Payload))
		if err != nil {
			s.cache.config.Log.Warn("changes not decoded", "channel", what.Channel, "error", err)
			return nil
		}
		s.handler(history.Notice{Changes: changes})
	case *goredis.Subscription:
		b, ok := bucketOf(what.Channel)
		if !ok {
			return fmt.Errorf("%s of %q", what.Kind, what.Channel)
		}
		if what.Kind == "ssubscribe" {
			s.joined(b, l)
		} else {
			s.left(b, l)
		}
	}
	return nil
}

// joined handles a confirmation: from now on no message of the bucket is missed.
func (s *subscription) joined(b history.Bucket, l *nodeConn) {
	s.mu.Lock()
	at, want := s.channels[b], s.want[b]
	mine := at != nil && at.conn == l && at.phase != leaving
	if mine {
		at.phase = subscribed
	}
	if mine && !want {
		s.schedule(b)
	}
	s.mu.Unlock()
	if mine && want {
		s.handler(history.Notice{Joined: []history.Bucket{b}})
	}
}

// left handles the end of a bucket's messages: it was unsubscribed, or moved to another server.
func (s *subscription) left(b history.Bucket, l *nodeConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.channels[b]
	if at == nil || at.conn != l {
		return
	}
	delete(s.channels, b)
	s.moved = s.moved || at.phase != leaving
	if s.want[b] {
		s.schedule(b)
	}
}
