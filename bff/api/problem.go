package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
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
	errHost      = errors.New("this server has other names")
	errScope     = errors.New("the token may not act for another user")
	errAllUsers  = errors.New("the token may not read of all users")
	errNotFound  = errors.New("no such record")
	errNoRoute   = errors.New("no such resource")
	errMethod    = errors.New("method not allowed")
	errMediaType = errors.New("want")
	errBody      = errors.New("body cut off or damaged")
	errCut       = errors.New("not all of it arrived")
)

// statusOf maps errors to HTTP statuses. Unknown errors are internal.
func statusOf(err error) int {
	for _, row := range []struct {
		err    error
		status int
	}{
		{scan.ErrSyntax, http.StatusBadRequest},
		{token.ErrInvalid, http.StatusUnauthorized},
		{errScope, http.StatusForbidden},
		{errAllUsers, http.StatusForbidden},
		{errHost, http.StatusMisdirectedRequest},
		{errNotFound, http.StatusNotFound},
		{errNoRoute, http.StatusNotFound},
		{errNoPlays, http.StatusNotFound},
		{history.ErrGone, http.StatusGone},
		{errMethod, http.StatusMethodNotAllowed},
		{errCut, http.StatusRequestTimeout}, // before errBody: the content may be fine
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
	case codes.ResourceExhausted: // larger than the service accepts
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

// problem is every error response (RFC 9457). It is an error that huma can send.
type problem struct {
	Type      string             `json:"type,omitempty" format:"uri-reference" example:"/docs/tokens" doc:"The page that explains it, if there is one."`
	Title     string             `json:"title" example:"Unprocessable Entity"`
	Status    int                `json:"status" example:"422"`
	Detail    string             `json:"detail"`
	RequestID string             `json:"request_id" doc:"Names the request in the logs; the one of X-Request-Id if it came with one."`
	Errors    []codec.FieldError `json:"errors,omitempty" nullable:"false"`

	wait    time.Duration // until a retry may succeed, 0 if unknown
	missing bool          // no token was sent
}

// problem turns an error into a response. Details of internal errors stay in the log.
func (a *api) problem(ctx context.Context, err error) *problem {
	p := &problem{Status: statusOf(err), RequestID: requestID(ctx), Errors: fields(err), missing: errors.Is(err, token.ErrMissing)}
	p.Title, p.Detail = http.StatusText(p.Status), err.Error()
	if e, ok := errors.AsType[*limit.Exceeded](err); ok {
		p.wait, p.Detail = e.Wait, "too many requests"
	}
	noKeys := errors.Is(err, token.ErrNoKeys)
	if p.Status == http.StatusUnauthorized || noKeys || errors.Is(err, errScope) || errors.Is(err, errAllUsers) {
		p.Type = "/docs/tokens"
	}
	switch p.Status {
	case http.StatusServiceUnavailable:
		if !noKeys {
			p.Detail = "the history is unavailable at the moment"
		}
	case http.StatusGatewayTimeout:
		p.Detail = "no answer in time; what was sent may or may not be stored"
	case http.StatusPreconditionFailed:
		p.Detail = "the record is another one, or gone"
	case http.StatusInternalServerError:
		p.Detail = "internal error"
		a.cfg.Logger.ErrorContext(ctx, "request failed", "error", err, "request_id", p.RequestID)
	default:
		if len(p.Errors) > 0 {
			p.Detail = p.Errors[0].Field + ": " + p.Errors[0].Reason
		}
	}
	return p
}

func fields(err error) []codec.FieldError {
	if field, ok := errors.AsType[*history.FieldError](err); ok {
		return []codec.FieldError{codec.FieldError(*field)}
	}
	return violations(err)
}

// transform converts huma's parameter errors to problems.
func (a *api) transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := &problem{Title: m.Title, Status: m.Status, Detail: m.Detail, RequestID: requestID(ctx.Context())}
	for _, e := range m.Errors {
		p.Errors = append(p.Errors, codec.FieldError{Field: e.Location, Reason: e.Message})
	}
	return p, nil
}

// serve writes the problem outside huma.
func (p *problem) serve(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", p.ContentType("application/json"))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error only means that the client is gone
}

func (p *problem) Error() string { return p.Detail }

func (p *problem) GetStatus() int { return p.Status }

func (p *problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders includes Retry-After. Without a known delay it is random, which spreads the retries.
func (p *problem) GetHeaders() http.Header {
	if p.wait > 0 {
		return http.Header{"Retry-After": {wholeSeconds(p.wait)}}
	}
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return http.Header{"Retry-After": {strconv.Itoa(1 + rand.N(3))}}
	case http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {p.challenge()}}
	case http.StatusUnsupportedMediaType:
		return http.Header{"Accept-Encoding": {"gzip"}}
	}
	return nil
}

// challenge is the header WWW-Authenticate (RFC 6750, section 3): without an error if there was no token.
func (p *problem) challenge() string {
	if p.missing {
		return `Bearer realm="playhead"`
	}
	return `Bearer realm="playhead", error="invalid_token"`
}

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// wholeSeconds rounds up: a client that returns too early would be refused again.
func wholeSeconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
