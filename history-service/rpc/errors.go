package rpc

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
)

// table maps errors to gRPC codes. Any other error is internal, and its text
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

// status turns an error into one that gRPC carries: code, text, the field of
// an invalid request as google.rpc.BadRequest, and when to try again, where that is known,
// as google.rpc.RetryInfo. An error that gRPC carries already stays as it is.
func status(err error) error {
	if _, ok := grpcstatus.FromError(err); ok { // nil is one
		return err
	}
	for _, row := range table {
		if !errors.Is(err, row.err) {
			continue
		}
		st := grpcstatus.New(row.code, err.Error())
		if field, ok := errors.AsType[*history.FieldError](err); ok {
			st = detailed(st, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
				{Field: field.Field, Description: field.Reason},
			}})
		}
		if retry, ok := errors.AsType[*stores.RetryError](err); ok {
			st = detailed(st, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry.After)})
		}
		return st.Err()
	}
	return grpcstatus.Error(codes.Internal, "internal error")
}

// detailed adds a detail to a status. Without it the bare status still says it in words.
func detailed(st *grpcstatus.Status, detail protoadapt.MessageV1) *grpcstatus.Status {
	with, err := st.WithDetails(detail)
	if err != nil {
		return st
	}
	return with
}
