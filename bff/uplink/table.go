package uplink

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
)

var errNoInstance = status.Error(codes.Unavailable, "no instance of history-service is ready")

// table is who is up at a moment, and whose each bucket is. It never changes.
type table struct {
	up      []*link
	owners  [history.Buckets]*link
	pending bool          // somebody may come up soon
	changed chan struct{} // closed when there is another table
}

// rebuild makes the table of what is known now. The caller holds c.mu.
func (c *Client) rebuild() {
	t := &table{pending: len(c.unknown) > 0, changed: make(chan struct{})}
	for _, p := range c.peers {
		if p.link != nil {
			t.up = append(t.up, p.link)
		}
		t.pending = t.pending || p.state == connecting
	}
	for b := range t.owners {
		t.owners[b] = t.next(history.Bucket(b), nil)
	}
	close(c.table.Swap(t).changed)
}

// next returns the instance that is up, was not tried, and has the highest score for
// a bucket, nil when there is none.
func (t *table) next(b history.Bucket, tried []*peer) (best *link) {
	var top uint64
	for _, l := range t.up {
		if s := score(l.peer.hash, b); (best == nil || s > top) && !slices.Contains(tried, l.peer) {
			best, top = l, s
		}
	}
	return best
}

// score is the weight of an instance for a bucket in the rendezvous: whoever has the
// highest one owns it, so that when an instance comes or goes no bucket moves between
// the others, and all edges agree without talking.
func score(instance uint64, b history.Bucket) uint64 {
	x := instance ^ uint64(b)*0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashOf(addr string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(addr)) // never fails, as hash.Hash documents
	return h.Sum64()
}

// pick returns the instance for a bucket: its owner, or the next one when that was
// tried; one that was tried only when there is no other. It waits while the answer
// may change soon.
func (c *Client) pick(ctx context.Context, b history.Bucket, tried []*peer) (*link, error) {
	for {
		t := c.table.Load()
		l := t.owners[b]
		if l != nil && slices.Contains(tried, l.peer) {
			if other := t.next(b, tried); other != nil {
				l = other
			}
		}
		switch {
		case l != nil:
			return l, nil
		case !t.pending:
			return nil, errNoInstance
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		case <-c.ctx.Done():
			return nil, errClosed
		}
	}
}

// alone reports whether there is no instance but p to send anything to.
func (c *Client) alone(p *peer) bool {
	for _, l := range c.table.Load().up {
		if l.peer != p {
			return false
		}
	}
	return true
}

// discover keeps the instances of one name up to date until the client is closed.
// A look-up that fails or finds none changes nothing: instances that are gone show
// that by themselves, and a resolver's trouble must not take away those that are not.
func (c *Client) discover(name string) {
	t := time.NewTicker(c.cfg.Refresh)
	defer t.Stop()
	var last []string
	for failed := false; ; {
		addrs, err := c.lookup(name)
		if err == nil && !slices.Equal(addrs, last) {
			err = c.assign(name, addrs)
			c.cfg.Logger.Info("instances looked up", "name", name, "addrs", addrs)
			last = addrs
		}
		if err != nil && !failed {
			c.cfg.Logger.Warn("look-up failed, keeping what is known", "name", name, "err", err)
		}
		if failed = err != nil; failed {
			c.known(name)
		}
		select {
		case <-t.C:
		case <-c.ctx.Done():
			return
		}
	}
}

// lookup returns the addresses of a name, sorted.
func (c *Client) lookup(name string) ([]string, error) {
	host, port, err := net.SplitHostPort(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Refresh)
	defer cancel()
	hosts, err := c.cfg.Lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("look up %s: no address", host)
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = net.JoinHostPort(h, port)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), nil
}

// known says that a name was looked up, if in vain: nobody waits for its instances.
func (c *Client) known(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown[name] {
		delete(c.unknown, name)
		c.rebuild()
	}
}

// assign makes addrs the instances of a source, and lets go of those that no source
// names any more.
func (c *Client) assign(source string, addrs []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources[source] = addrs
	delete(c.unknown, source)
	named := make(map[string]bool)
	for _, addrs := range c.sources {
		for _, addr := range addrs {
			named[addr] = true
			if err := c.join(addr); err != nil {
				return err
			}
		}
	}
	for addr, p := range c.peers {
		if !named[addr] {
			p.leave()
			delete(c.peers, addr)
		}
	}
	c.rebuild()
	return nil
}
