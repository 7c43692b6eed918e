package uplink

import (
	"context"
	"hash/fnv"
	"slices"

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
