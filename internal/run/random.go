package run

import (
	"context"
	"math/rand/v2"
	"time"
)

type sourceKey struct{}

// WithSource returns a context under which [N] draws from a source of the caller's, so
// that what happens at random can be made to happen again. The source may be asked from
// many goroutines.
func WithSource(ctx context.Context, source rand.Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// N returns a random number from 0 to below n, which is positive.
func N[T int | time.Duration](ctx context.Context, n T) T {
	if source, ok := ctx.Value(sourceKey{}).(rand.Source); ok {
		return T(source.Uint64() % uint64(n)) //nolint:gosec // below n
	}
	return rand.N(n)
}
