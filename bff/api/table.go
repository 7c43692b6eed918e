package api

import (
	"context"
	"errors"
	"net/http"
	"os"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
)

var (
	errNotFound  = errors.New("no such record")
	errNoRoute   = errors.New("no such resource")
	errMethod    = errors.New("method not allowed")
	errMediaType = errors.New("want")
	errBody      = errors.New("body cut off")
)

// statusOf is the one table of errors and what HTTP calls them. What is in none of
// its rows is internal.
func statusOf(err error) int {
	for _, row := range []struct {
		err    error
		status int
	}{
		{scan.ErrSyntax, http.StatusBadRequest},
		{token.ErrInvalid, http.StatusUnauthorized},
		{errNotFound, http.StatusNotFound},
		{errNoRoute, http.StatusNotFound},
		{errMethod, http.StatusMethodNotAllowed},
		{os.ErrDeadlineExceeded, http.StatusRequestTimeout}, // of the connection: the body came too slowly
		{errBody, http.StatusBadRequest},
		{codec.ErrTooLarge, http.StatusRequestEntityTooLarge},
		{errMediaType, http.StatusUnsupportedMediaType},
		{history.ErrInvalid, http.StatusUnprocessableEntity},
		{history.ErrConflict, http.StatusPreconditionFailed},
		{history.ErrUnavailable, http.StatusServiceUnavailable},
		{context.DeadlineExceeded, http.StatusGatewayTimeout},
		{context.Canceled, http.StatusServiceUnavailable},
	} {
		if errors.Is(err, row.err) {
			return row.status
		}
	}
	if own, ok := errors.AsType[interface {
		error
		HTTPStatus() int
	}](err); ok {
		return own.HTTPStatus()
	}
	if _, ok := errors.AsType[*limit.Exceeded](err); ok {
		return http.StatusTooManyRequests
	}
	return statusOfCode(status.Code(err))
}

func statusOfCode(code codes.Code) int {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return http.StatusUnprocessableEntity
	case codes.FailedPrecondition:
		return http.StatusPreconditionFailed
	case codes.NotFound:
		return http.StatusNotFound
	case codes.ResourceExhausted: // a message beyond the size that the service takes
		return http.StatusRequestEntityTooLarge
	case codes.Unavailable, codes.Canceled:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// violations returns the fields that the service refused.
func violations(err error) (fields []codec.FieldError) {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, codec.FieldError{Field: v.GetField(), Reason: v.GetDescription()})
			}
		}
	}
	return fields
}
