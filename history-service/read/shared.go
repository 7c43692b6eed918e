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

// shared makes one read of equal ones that are asked for at once. A read that is asked for while an equal one is under way waits for
// the next one, which begins when that ends and is for all who wait. So each sees what was acknowledged before it was asked for.
type shared[T any] struct {
	mu       sync.Mutex
	underWay map[string]*sharedRead[T] // and the one after it, nil for none
}

// sharedRead is a read that waits.
type sharedRead[T any] struct {
	read  func(context.Context) (T, error)
	done  chan struct{}
	value T
	err   error // both are set before done is closed
}

// do returns what the read of a name returns, or an equal one. What is returned is shared.
func (s *shared[T]) do(ctx context.Context, name string, read func(context.Context) (T, error)) (T, error) {
	next := s.begin(name, read)
	if next == nil {
		defer s.end(ctx, name)
		return read(ctx)
	}
	select {
	case <-next.done:
		return next.value, next.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: an equal read before this one takes too long", history.ErrUnavailable)
	}
}

// begin returns the read to be waited for, nil where none is under way.
func (s *shared[T]) begin(name string, read func(context.Context) (T, error)) *sharedRead[T] {
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
		s.underWay[name] = next
	}
	return next
}

// end begins the next one, whose callers may end before it.
func (s *shared[T]) end(ctx context.Context, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.underWay[name]
	if next == nil {
		delete(s.underWay, name)
		return
	}
	s.underWay[name] = nil
	go func() {
		ctx := context.WithoutCancel(ctx)
		defer s.end(ctx, name)
		next.make(ctx)
	}()
}

// make makes the read. A panic fails it, for all who wait.
func (r *sharedRead[T]) make(ctx context.Context) {
	defer close(r.done)
	defer func() {
		if p := recover(); p != nil {
			r.err = &run.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	r.value, r.err = r.read(ctx)
}

// requestName names a request by all that it asks for.
func requestName(req proto.Message) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(req) // what came in can be encoded
	return string(b)
}
