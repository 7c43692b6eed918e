package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// line is a connection to one server. When anything goes wrong with it, it is given up,
// and what it had is followed anew.
type line struct {
	subscription *subscription
	addr         string
	pubsub       *goredis.PubSub
	hangUp       func() // closes the connection, once
}

// silence is how long a server may say nothing before it is asked for a sign of life, and
// how long it may then take.
const silence = 3 * time.Second

// join subscribes to a bucket at the server that has it, unless that one is down.
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
	l, listening := s.line(node)
	s.set(b, &seat{line: l, state: joining})
	if err := l.pubsub.SSubscribe(ctx, channel(b)); err != nil {
		s.lost(l, err)
		down[l.addr] = err
		return err
	}
	if !listening {
		s.parts.Go(l.listen)
	}
	return nil
}

// line returns the line to a server, and whether somebody listens on it.
func (s *subscription) line(node *goredis.Client) (l *line, listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := node.Options().Addr
	if l := s.lines[addr]; l != nil {
		return l, true
	}
	l = &line{subscription: s, addr: addr, pubsub: node.SSubscribe(s.ctx)}
	l.hangUp = sync.OnceFunc(func() { _ = l.pubsub.Close() }) // it is given up
	s.lines[addr] = l
	return l, false
}

func (s *subscription) set(b history.Bucket, at *seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seats[b] = at
}

// part ends the subscription to a bucket.
func (s *subscription) part(b history.Bucket, l *line) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cache.config.Timeout)
	defer cancel()
	err := l.pubsub.SUnsubscribe(ctx, channel(b))
	if err != nil {
		s.lost(l, err)
	}
	return err
}

// lost gives a line up.
func (s *subscription) lost(l *line, err error) {
	l.hangUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines[l.addr] != l || s.ctx.Err() != nil {
		return
	}
	delete(s.lines, l.addr)
	buckets := 0
	for b, at := range s.seats {
		if at.line != l {
			continue
		}
		delete(s.seats, b)
		s.look(b)
		if at.state == in {
			buckets++
		}
	}
	if buckets > 0 {
		s.cache.config.Log.Warn("feed interrupted", "addr", l.addr, "buckets", buckets, "err", err)
	}
}

// listen hears what the server says until the line is lost.
func (l *line) listen() {
	for asked := false; ; {
		said, err := l.pubsub.ReceiveTimeout(l.subscription.ctx, silence)
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
			err = l.subscription.said(l, said)
		}
		if err != nil {
			l.subscription.lost(l, err)
			return
		}
	}
}

// refused is a server's word that it does not have a bucket, without saying which. Those
// that it did have and had not confirmed are joined once more, which does no harm.
func (s *subscription) refused(l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
	for b, at := range s.seats {
		if at.line == l && at.state == joining {
			delete(s.seats, b)
			s.look(b)
		}
	}
}

// said takes what a server says.
func (s *subscription) said(l *line, what any) error {
	switch what := what.(type) {
	case *goredis.Message:
		if b, ok := bucketOf(what.Channel); ok && wire.Missed([]byte(what.Payload)) {
			s.hear(history.Notice{Joined: []history.Bucket{b}})
			return nil
		}
		changes, err := wire.Changes([]byte(what.Payload))
		if err != nil {
			s.cache.config.Log.Warn("unreadable changes", "channel", what.Channel, "err", err)
			return nil
		}
		s.hear(history.Notice{Changes: changes})
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

// joined is a server's word that nothing of a bucket is missed from here on.
func (s *subscription) joined(b history.Bucket, l *line) {
	s.mu.Lock()
	at, want := s.seats[b], s.want[b]
	mine := at != nil && at.line == l && at.state != leaving
	if mine {
		at.state = in
	}
	if mine && !want {
		s.look(b)
	}
	s.mu.Unlock()
	if mine && want {
		s.hear(history.Notice{Joined: []history.Bucket{b}})
	}
}

// left is a server's word that nothing of a bucket comes any more: as it was asked to, or
// because the bucket is another server's now.
func (s *subscription) left(b history.Bucket, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.seats[b]
	if at == nil || at.line != l {
		return
	}
	delete(s.seats, b)
	s.moved = s.moved || at.state != leaving
	if s.want[b] {
		s.look(b)
	}
}
