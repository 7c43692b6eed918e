package process

import (
	"bytes"
	"sync"
)

// tail keeps the end of a log.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailBytes = 64 << 10

// Write keeps p, and lets the oldest go.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > tailBytes {
		t.buf.Next(t.buf.Len() - tailBytes/2)
	}
	return t.buf.Write(p)
}

// String returns what was kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
