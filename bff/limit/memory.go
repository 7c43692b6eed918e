package limit

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/playhead/playhead/history"
)

// Memory bounds the memory of requests under way, by the bytes of their bodies. Its methods may be called from many
// goroutines.
type Memory struct {
	most  int64
	bytes *semaphore.Weighted
}

const (
	// expansion is how many bytes of memory a byte of a body takes: decoded, on its way to the service, and in its answer.
	expansion = 16
	// leastMemory admits two of the largest bodies, and usualMemory bounds bodies where memory has no limit.
	leastMemory, usualMemory = 32 << 20, 1 << 30
	// memoryPatience is how long a request waits for memory, and memoryStep how many bytes it asks for at once.
	memoryPatience = time.Second
	memoryStep     = 16 << 10
)

// NewMemory returns a bound of an eighth of what the process may take, in bytes; 0 is no limit.
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

// Hold begins a request, which holds nothing so far. The caller releases it once the request is answered.
func (m *Memory) Hold() *Held { return &Held{memory: m} }

// Grow takes more bytes of a body. It fails with [history.ErrUnavailable] where there is no room for a second: two requests
// may wait for each other.
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

// Release gives back what the request holds.
func (h *Held) Release() {
	h.memory.bytes.Release(h.taken)
	h.bytes, h.taken = 0, 0
}

// Reader returns a body whose bytes are taken as they are read, so that a slow sender holds only what came.
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
