package hbase

import (
	"net"
	"sync"
	"time"
)

// conn gives up on a server that is silent for too long while something is awaited.
// The client would: but it begins to count anew with each call that it sends, so
// that under load a server which vanished without a word is never given up. It
// embeds the concrete type because only that writes a whole batch at once.
type conn struct {
	*net.TCPConn
	patience time.Duration

	mu      sync.Mutex
	waiting bool
}

// SetReadDeadline lets the client say that it waits, and with the zero time that it
// no longer does. While it waits it cannot put the end off.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.waiting
	c.waiting = !t.IsZero()
	if was && c.waiting {
		return nil
	}
	return c.TCPConn.SetReadDeadline(t)
}

// Read counts the silence from what was read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.waiting {
		_ = c.TCPConn.SetReadDeadline(time.Now().Add(c.patience)) // fails only once closed
	}
	return n, err
}
