package ws

import (
	"context"
	"errors"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/history"
)

// The codes of failures, which are those of the protocol in small letters.
const (
	invalid     = "invalid"
	tooLarge    = "too_large"
	rateLimited = "rate_limited"
	unavailable = "unavailable"
	timeout     = "timeout"
	internal    = "internal"
)

// failure is what a player is told of an error. What it does not know stays in the log.
func (s *session) failure(err error) *codec.Failure {
	if field, ok := errors.AsType[*history.FieldError](err); ok {
		return &codec.Failure{Code: invalid, Field: field.Field, Detail: field.Reason}
	}
	if l, ok := errors.AsType[*limit.Exceeded](err); ok {
		return &codec.Failure{Code: rateLimited, Detail: "too many messages", RetryAfterMS: l.Wait.Milliseconds() + 1}
	}
	switch code := codeOf(err); code {
	case codes.InvalidArgument, codes.OutOfRange:
		return &codec.Failure{Code: invalid, Detail: status.Convert(err).Message()}
	case codes.ResourceExhausted:
		return &codec.Failure{Code: tooLarge, Detail: status.Convert(err).Message()}
	case codes.Unavailable, codes.Canceled:
		return &codec.Failure{Code: unavailable, Detail: "the history is unavailable at the moment", RetryAfterMS: soon()}
	case codes.DeadlineExceeded:
		return &codec.Failure{Code: timeout, Detail: "no answer in time; what was sent may or may not be stored", RetryAfterMS: soon()}
	}
	s.handler.cfg.Logger.Error("message failed", "err", err)
	return &codec.Failure{Code: internal, Detail: "internal error"}
}

// codeOf is the one table of errors and what gRPC calls them.
func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, codec.ErrTooLarge):
		return codes.ResourceExhausted
	case errors.Is(err, history.ErrUnavailable):
		return codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// soon spreads those who try again over some seconds.
func soon() int64 { return 1000 + rand.N[int64](2000) }
