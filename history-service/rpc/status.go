package rpc

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
)

// table maps errors to gRPC codes. What is not in it is internal, and its text
// stays in the log.
var table = []struct {
	err  error
	code codes.Code
}{
	{history.ErrInvalid, codes.InvalidArgument},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{history.ErrConflict, codes.FailedPrecondition},
	{history.ErrUnavailable, codes.Unavailable},
	{history.ErrClosed, codes.Unavailable},
}

// status turns an error into one that gRPC carries: code, text, and the field of
// an invalid request as google.rpc.BadRequest.
func status(err error) error {
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		st := grpcstatus.New(row.code, err.Error())
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			st = withField(st, field)
		}
		return st.Err()
	}
	return grpcstatus.Error(codes.Internal, "internal error")
}

func withField(st *grpcstatus.Status, field *history.FieldError) *grpcstatus.Status {
	detailed, err := st.WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: field.Field, Description: field.Reason},
	}})
	if err != nil { // the bare status still says it in words
		return st
	}
	return detailed
}
