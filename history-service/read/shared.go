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

// shared coalesces equal concurrent reads. A call during an equal read waits for one further read, shared by all
// waiters, so it sees everything acknowledged before the call. A read without waiters is canceled: a hung read must
// not block later callers.
type shared[T any] struct {
	mu       sync.Mutex
	underWay map[string]*sharedRead[T] // running reads by name; the value is the next read, nil if none waits
}

// sharedRead is a read that waits for an equal one to end.
type sharedRead[T any] struct {
	read    func(context.Context) (T, error)
	ctx     context.Context // canceled when the last waiter leaves
	cancel  context.CancelFunc
	waiting int // guarded by shared.mu
	done    chan struct{}
	value   T
	err     error // value and err are set before done is closed
}

// do returns the result of read, or of an equal read with the same name. Callers must not modify the result.
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

// begin returns the read to wait for; nil if no equal read is running.
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
		next.ctx, next.cancel = context.WithCancel(context.WithoutCancel(ctx)) // the first waiter may leave first
		s.underWay[name] = next
	}
	if next != nil {
		next.waiting++
	}
	return next
}

// leave removes a waiter. After the last one the read is canceled or never starts.
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

// end starts the waiting read, if any.
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

// make runs the read. A panic becomes an error for all waiters.
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

// requestName returns the encoded request as its name.
func requestName(req proto.Message) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req) // a decoded request always encodes
	return string(b)
}
