package kafka

import (
	"sync"
	"time"
)

// lags are the lags of an assignment's partitions.
type lags struct {
	mu sync.Mutex
	by map[int]*lag
}

// lag is how far behind the consumer of a partition is.
type lag struct {
	next, end int64     // next offset to commit, and to be written
	oldest    time.Time // of the messages that were read and are not committed
}

// of returns a partition's lag. The caller holds the mutex.
func (l *lags) of(partition int) *lag {
	if l.by[partition] == nil {
		l.by[partition] = &lag{next: -1}
	}
	return l.by[partition]
}

// ends notes the end of a partition that is read from an offset on.
func (l *lags) ends(partition int, offset, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.of(partition)
	if p.end = end; p.next < 0 {
		p.next = max(offset, 0)
	}
}

// read notes a message that is handed over.
func (l *lags) read(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.of(m.partition); p.oldest.IsZero() {
		p.oldest = m.at
	}
}

// commit notes the offsets after which the messages are not committed.
func (l *lags) commit(offsets map[int]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for partition, next := range offsets {
		p := l.of(partition)
		p.next, p.oldest = next, time.Time{}
	}
}

// lag returns the messages that are not committed, and the age of the oldest one that was read.
func (c *assignment) lag() (messages int64, age time.Duration) {
	c.lags.mu.Lock()
	defer c.lags.mu.Unlock()
	for _, p := range c.lags.by {
		messages += max(p.end-p.next, 0)
		if !p.oldest.IsZero() {
			age = max(age, time.Since(p.oldest))
		}
	}
	return messages, age
}
