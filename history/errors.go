package history

import (
	"errors"
	"fmt"
)

// Sentinel errors. Adapters wrap them; one table maps them to gRPC codes and one
// to HTTP.
var (
	// ErrInvalid means that the request can never succeed as it is.
	ErrInvalid = errors.New("invalid")
	// ErrConflict means that a record is not the one that the caller knows.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable means that a store did not answer: nothing is known, try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrPermanent means that a store refused one entry for good.
	ErrPermanent = errors.New("refused by the store")
	// ErrLocked means that another process holds the data directory.
	ErrLocked = errors.New("in use by another process")
	// ErrClosed means that the adapter was closed.
	ErrClosed = errors.New("closed")
)

// FieldError is an [ErrInvalid] that names the field.
type FieldError struct {
	Field  string
	Reason string
}

// Invalid returns a [FieldError].
func Invalid(field, reason string) error { return &FieldError{Field: field, Reason: reason} }

// Error returns "field: reason".
func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Unwrap returns [ErrInvalid].
func (e *FieldError) Unwrap() error { return ErrInvalid }
