package uplink

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"
)

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
