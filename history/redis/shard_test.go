package redis_test

import (
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// shard adds to a fake what it lacks: sharded channels.
type shard struct {
	mu    sync.Mutex
	peers map[string][]*server.Peer // by channel
	moved bool                      // it has no channels any more
}

// sharded adds them to a fake whose other commands next may take.
func sharded(fake *miniredis.Miniredis, next server.Hook) *shard {
	s := &shard{peers: make(map[string][]*server.Peer)}
	fake.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		return s.command(c, cmd, args) || next != nil && next(c, cmd, args...)
	})
	return s
}

func (s *shard) command(c *server.Peer, cmd string, args []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd {
	case "SSUBSCRIBE":
		switch {
		case len(args) > 1:
			c.WriteError("CROSSSLOT Keys in request don't hash to the same slot")
			return true
		case s.moved:
			c.WriteError("MOVED 1 127.0.0.1:1")
			return true
		}
		s.peers[args[0]] = append(s.peers[args[0]], c)
		tell(c, "ssubscribe", args[0], "")
	case "SUNSUBSCRIBE":
		s.peers[args[0]] = slices.DeleteFunc(s.peers[args[0]], func(p *server.Peer) bool { return p == c })
		tell(c, "sunsubscribe", args[0], "")
	case "SPUBLISH":
		for _, p := range s.peers[args[0]] {
			tell(p, "smessage", args[0], args[1])
		}
		c.WriteInt(len(s.peers[args[0]]))
	default:
		return false
	}
	return true
}

// tell writes a message, or without a payload the word that a subscription has changed.
func tell(c *server.Peer, kind, channel, payload string) {
	c.Block(func(w *server.Writer) {
		w.WriteLen(3)
		w.WriteBulk(kind)
		w.WriteBulk(channel)
		if strings.HasPrefix(kind, "smess") {
			w.WriteBulk(payload)
		} else {
			w.WriteInt(1)
		}
		w.Flush()
	})
}

// every calls fn with everyone who listens, once.
func (s *shard) every(fn func(channel string, c *server.Peer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, peers := range s.peers {
		for _, p := range peers {
			fn(channel, p)
		}
	}
}

// move has the channels leave, as when their slots are another server's, or come back: all
// in one step, so that nobody who comes back at once is forgotten.
func (s *shard) move(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel, peers := range s.peers {
		for _, p := range peers {
			tell(p, "sunsubscribe", channel, "")
		}
	}
	s.peers, s.moved = make(map[string][]*server.Peer), away
}
