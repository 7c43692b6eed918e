// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// Error is a failed request of a read or a decision.
type Error struct {
	// Status is the HTTP status, 0 without an answer.
	Status int
	// Code names the kind of failure: unreachable, timeout, unauthorized, invalid, too_large, rate_limited,
	// unavailable, internal or refused.
	Code   string
	Detail string
	cause  error
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return e.Detail
	}
	return fmt.Sprintf("%d: %s", e.Status, e.Detail)
}

// Unwrap returns the cause; [ErrUnauthorized] for a refused token.
func (e *Error) Unwrap() error { return e.cause }

// codeOf returns the code of a failure with an HTTP status.
func codeOf(status int) string {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "invalid"
	case http.StatusUnauthorized:
		return "unauthorized"
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return "timeout"
	case http.StatusRequestEntityTooLarge:
		return "too_large"
	case http.StatusTooManyRequests:
		return "rate_limited"
	case http.StatusInternalServerError:
		return "internal"
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return "unavailable"
	}
	return "refused"
}

// failure describes a response other than 200.
func failure(status int, text []byte) *Error {
	e := &Error{Status: status, Code: codeOf(status), Detail: detail(text)}
	if e.Detail == "" {
		e.Detail = http.StatusText(status)
	}
	if status == http.StatusUnauthorized {
		e.cause = ErrUnauthorized
	}
	return e
}

// noAnswer describes a request without an answer.
func noAnswer(ctx context.Context, err error) *Error {
	code := "unreachable"
	if cause := context.Cause(ctx); errors.Is(cause, errSlow) {
		code, err = "timeout", cause
	}
	return &Error{Code: code, Detail: err.Error(), cause: err}
}

// request is one HTTP request of a read or a decision.
type request struct {
	method, path string
	query        url.Values
	body         any       // sent as JSON, unless nil
	lines        io.Reader // sent as NDJSON, unless nil
}

// get returns a request with pairs of names and values as its query; empty values are left out.
func get(path string, query ...string) request {
	r := request{method: http.MethodGet, path: path, query: url.Values{}}
	for pair := range slices.Chunk(query, 2) {
		if pair[1] != "" {
			r.query.Set(pair[0], pair[1])
		}
	}
	return r
}

func post(path string, body any) request {
	return request{method: http.MethodPost, path: path, body: body}
}

func pathOf(o *messagev1.Object) string {
	return fmt.Sprintf("/v1/history/%d/%s", o.GetType(), url.PathEscape(o.GetId()))
}

// noRecordIsNone names the operation of an error, and returns nil for a missing record.
func noRecordIsNone(operation string, err error) error {
	if failed, ok := errors.AsType[*Error](err); ok && failed.Status == http.StatusNotFound {
		return nil
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// call sends a request once, and decodes its answer within Patience. It fails with an [Error].
func (c *Client) call(ctx context.Context, r request, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Patience, errSlow)
	defer cancel()
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 8<<20)) // more than any response
	if err != nil {
		return noAnswer(ctx, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return noAnswer(ctx, err)
	}
	return nil
}

// open sends a request and returns the body of its answer, which the caller closes.
func (c *Client) open(ctx context.Context, r request) (io.ReadCloser, error) {
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return nil, &Error{Code: "unauthorized", Detail: "token: " + err.Error(), cause: err}
	}
	sent, err := c.newRequest(ctx, r)
	if err != nil {
		return nil, err
	}
	sent.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.cfg.HTTP.Do(sent)
	if err != nil {
		return nil, noAnswer(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a broken answer has no detail
	return nil, failure(resp.StatusCode, text)
}

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	address, body, kind := c.cfg.URL+r.path, r.lines, "application/x-ndjson"
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body, kind = bytes.NewReader(text), "application/json"
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err == nil && body != nil {
		sent.Header.Set("Content-Type", kind)
	}
	return sent, err
}
