package uplink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/playhead/playhead/internal/run"
)

// discover keeps the instances of a name up to date until the client is closed. A failed or empty look-up
// changes nothing: dead instances show by themselves, and a resolver's failure must not remove live ones.
func (c *Client) discover(name string) {
	var last []string
	told := false
	for first := true; first || run.Sleep(c.ctx, c.cfg.Refresh); first = false {
		addrs, err := c.lookup(name)
		if err == nil && !slices.Equal(addrs, last) {
			c.cfg.Logger.Info("instances looked up", "name", name, "addrs", addrs)
			last = addrs
		}
		if err = errors.Join(err, c.listed(name, addrs, first)); err != nil && !told {
			c.cfg.Logger.Warn("lookup failed; kept the last result", "name", name, "error", err)
		}
		told = err != nil
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

// stays is how long an instance is kept after its name no longer lists it, while it is up. Some resolvers return only a
// part of many addresses each time. Calls under way get as long to end.
const stays = time.Minute

// listed takes the instances that a look-up of a name returned, none after a failure. Callers wait for the first
// look-up.
func (c *Client) listed(name string, addrs []string, first bool) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first {
		c.unknown--
	}
	for _, addr := range addrs {
		err = errors.Join(err, c.join(addr, name))
	}
	for addr, p := range c.peers {
		switch {
		case p.name != name || len(addrs) == 0:
		case slices.Contains(addrs, addr):
			p.unlisted = time.Time{}
		case p.unlisted.IsZero():
			p.unlisted = time.Now()
		}
	}
	gone := c.letGo()
	if first || gone {
		c.rebuild()
	}
	return err
}

// letGo removes unlisted instances: immediately if down, otherwise after stays. While no listed instance is up, the
// resolver is more likely wrong, and all are kept. The caller holds c.mu.
func (c *Client) letGo() (gone bool) {
	wellListed := func(p *peer) bool { return p.unlisted.IsZero() && p.link != nil }
	if !slices.ContainsFunc(slices.Collect(maps.Values(c.peers)), wellListed) {
		return false
	}
	maps.DeleteFunc(c.peers, func(_ string, p *peer) bool {
		if p.unlisted.IsZero() || p.link != nil && time.Since(p.unlisted) < stays {
			return false
		}
		gone = true
		p.leave()
		return true
	})
	return gone
}
