package limit

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/playhead/playhead/history"
)

// Memory limits the memory of pending requests by the size of their bodies. It is safe for concurrent use.
type Memory struct {
	most  int64
	bytes *semaphore.Weighted
}

const (
	// expansion is the memory per byte of a body: decoded, sent to the service, and in the response.
	expansion = 16
	// leastMemory admits two of the largest bodies. usualMemory is the limit for a process without one.
	leastMemory, usualMemory = 32 << 20, 1 << 30
	// memoryPatience limits a request's wait for memory. memoryStep is the granularity, in bytes of body.
	memoryPatience = time.Second
	memoryStep     = 16 << 10
)

// NewMemory returns a limit of an eighth of the process's memory, in bytes; 0 means no process limit.
func NewMemory(process int64) *Memory {
	most := int64(usualMemory)
	if process > 0 {
		most = min(max(process/8, leastMemory), most)
	}
	return &Memory{most, semaphore.NewWeighted(most)}
}

// Held is the memory of one request.
type Held struct {
	memory *Memory
	bytes  int64 // of the body
	taken  int64
}

// Hold starts a request without memory. The caller releases it after the response.
func (m *Memory) Hold() *Held { return &Held{memory: m} }

// Grow reserves memory for more bytes of a body. It fails with [history.ErrUnavailable] after a second without
// room: requests may deadlock on each other.
func (h *Held) Grow(ctx context.Context, bytes int) error {
	h.bytes += int64(bytes)
	want := min((h.bytes+memoryStep-1)/memoryStep*memoryStep*expansion, h.memory.most) - h.taken
	if want <= 0 {
		return nil
	}
	if !h.memory.bytes.TryAcquire(want) {
		ctx, cancel := context.WithTimeout(ctx, memoryPatience)
		defer cancel()
		if h.memory.bytes.Acquire(ctx, want) != nil {
			return fmt.Errorf("memory for a body: %w: others under way take all", history.ErrUnavailable)
		}
	}
	h.taken += want
	return nil
}

// Release returns the request's memory.
func (h *Held) Release() {
	h.memory.bytes.Release(h.taken)
	h.bytes, h.taken = 0, 0
}

// Reader reserves memory as the body is read, so a slow sender holds only what has arrived.
func (h *Held) Reader(ctx context.Context, body io.Reader) io.Reader {
	return &heldReader{ctx, h, body}
}

type heldReader struct {
	ctx  context.Context //nolint:containedctx // of one request
	held *Held
	body io.Reader
}

func (r *heldReader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	if short := r.held.Grow(r.ctx, n); short != nil {
		return n, short
	}
	return n, err
}
