package read

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// shared joins equal reads that are asked for at once. A call that comes while an equal read is under way waits: one more read
// begins when that ends, for all who wait. So each caller sees what was acknowledged before its call. A read for which nobody waits any
// more is broken off: one that hangs must not hold up those who come later.
type shared[T any] struct {
	mu       sync.Mutex
	underWay map[string]*sharedRead[T] // by name of a read that is under way: the one that waits for its end, nil for none
}

// sharedRead is a read that waits for an equal one to end.
type sharedRead[T any] struct {
	read    func(context.Context) (T, error)
	ctx     context.Context // done when nobody waits any more
	cancel  context.CancelFunc
	waiting int // guarded by shared.mu
	done    chan struct{}
	value   T
	err     error // both are set before done is closed
}

// do returns what read returns, or what an equal read returns, which has the same name. Callers must not change the result: others
// may have it, too.
func (s *shared[T]) do(ctx context.Context, name string, read func(context.Context) (T, error)) (T, error) {
	next := s.begin(ctx, name, read)
	if next == nil {
		defer s.end(name)
		return read(ctx)
	}
	select {
	case <-next.done:
		return next.value, next.err
	case <-ctx.Done():
		s.leave(name, next)
		var none T
		return none, fmt.Errorf("%w: an equal read before this one takes too long", history.ErrUnavailable)
	}
}

// begin returns the read to be waited for, nil where none is under way.
func (s *shared[T]) begin(ctx context.Context, name string, read func(context.Context) (T, error)) *sharedRead[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, busy := s.underWay[name]
	switch {
	case !busy && s.underWay == nil:
		s.underWay = map[string]*sharedRead[T]{name: nil}
	case !busy:
		s.underWay[name] = nil
	case next == nil:
		next = &sharedRead[T]{read: read, done: make(chan struct{})}
		next.ctx, next.cancel = context.WithCancel(context.WithoutCancel(ctx)) // whoever asked first may leave first
		s.underWay[name] = next
	}
	if next != nil {
		next.waiting++
	}
	return next
}

// leave takes one off those who wait for a read. When the last one has left, the read is broken off, or does not begin.
func (s *shared[T]) leave(name string, r *sharedRead[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.waiting--; r.waiting > 0 {
		return
	}
	r.cancel()
	if s.underWay[name] == r {
		s.underWay[name] = nil
	}
}

// end begins the read that waits, if there is one.
func (s *shared[T]) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.underWay[name]
	if next == nil {
		delete(s.underWay, name)
		return
	}
	s.underWay[name] = nil
	go func() {
		defer s.end(name)
		next.make()
	}()
}

// make makes the read. A panic fails it, for all who wait.
func (r *sharedRead[T]) make() {
	defer r.cancel()
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.err = &run.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	r.value, r.err = r.read(r.ctx)
}

// requestName names a request by all that it asks for.
func requestName(req proto.Message) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req) // what came in can be encoded
	return string(b)
}
