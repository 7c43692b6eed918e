package kafka

import (
	"context"
	"fmt"
	"maps"

	"github.com/playhead/playhead/history"
)

// A delivery ends at so many keys or bytes, give or take a message.
const (
	maxFetchKeys  = 32_768
	maxFetchBytes = 4 << 20
)

// message is what a reader hands over: decoded keys, or poison.
type message struct {
	partition int
	offset    int64
	payload   []byte
	keys      []history.Announcement
	err       error
}

// Fetch implements [history.Claim].
func (c *claim) Fetch(ctx context.Context) (history.Delivery, error) {
	c.fetching.Lock()
	defer c.fetching.Unlock()
	var d history.Delivery
	select {
	case m := <-c.arrived:
		c.add(&d, m)
	case <-c.over:
		return d, fmt.Errorf("fetch: %w", errOver)
	case <-ctx.Done():
		return d, fmt.Errorf("fetch: %w", ctx.Err())
	}
	for c.addMore(&d) {
	}
	d.Offsets = maps.Clone(c.next)
	return d, nil
}

// addMore adds what is at hand, up to the bound.
func (c *claim) addMore(d *history.Delivery) bool {
	if len(d.Keys) >= maxFetchKeys || d.Bytes >= maxFetchBytes {
		return false
	}
	select {
	case m := <-c.arrived:
		c.add(d, m)
		return true
	default:
		return false
	}
}

func (c *claim) add(d *history.Delivery, m message) {
	d.Messages++
	d.Bytes += len(m.payload)
	d.Keys = append(d.Keys, m.keys...)
	if m.err != nil {
		d.Poison = append(d.Poison, history.Poison{Payload: m.payload, Partition: m.partition, Offset: m.offset, Err: m.err})
	}
	c.next[m.partition] = m.offset + 1
}
