package uplink

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

// discover keeps the instances of a name up to date until the client is closed. A failed or empty look-up
// changes nothing: dead instances show by themselves, and a resolver's failure must not remove live ones.
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
			c.cfg.Logger.Warn("lookup failed; kept the last result", "name", name, "error", err)
		}
		if failed = err != nil; failed {
			c.known(name)
		}
		c.letGo()
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

// known marks a name as looked up, even after a failure, so that calls stop waiting for its instances.
func (c *Client) known(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown[name] {
		delete(c.unknown, name)
		c.rebuild()
	}
}

// assign makes addrs the instances of a source.
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
		switch {
		case named[addr]:
			p.unnamed = time.Time{}
		case p.unnamed.IsZero():
			p.unnamed = time.Now()
		}
	}
	c.rebuild()
	return nil
}

// stays is how long an instance is kept after no source lists it, while it is up. Some resolvers return only a
// part of many addresses each time.
const stays = time.Minute

// letGo removes instances that no source lists: immediately if down, otherwise after stays. While no listed
// instance is up, the resolver is more likely wrong, and all are kept.
func (c *Client) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := make(map[string]*peer)
	named := false
	for addr, p := range c.peers {
		switch {
		case p.unnamed.IsZero():
			named = named || p.link != nil
		case p.link == nil, time.Since(p.unnamed) >= stays:
			gone[addr] = p
		}
	}
	if !named || len(gone) == 0 {
		return
	}
	for addr, p := range gone {
		p.leave()
		delete(c.peers, addr)
	}
	c.rebuild()
}
