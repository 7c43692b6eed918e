package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Run sends what is reported until ctx is done. Who wants all of it answered calls
// [Client.Flush] before. It fails with [ErrRefused] only.
func (c *Client) Run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		answered, err := c.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRefused):
			return err
		case answered:
			failures = 0
		}
		wait := c.wait(err, failures)
		c.cfg.Logger.Info("not connected", "err", err, "again_in", wait)
		pause(ctx, wait)
	}
}

// wait is how long to stay away: as long as the edge asked for, or a random part of
// what doubles with every failure, so that those who lost the same edge do not all
// come at once.
func (c *Client) wait(err error, failures int) time.Duration {
	if late, ok := errors.AsType[*later](err); ok {
		return late.after + rand.N(c.cfg.MinWait)
	}
	if bye, ok := errors.AsType[websocket.CloseError](err); ok {
		_, hint, _ := strings.Cut(bye.Reason, "; retry_after_ms=")
		if ms, err := strconv.Atoi(hint); err == nil && ms >= 0 {
			return min(time.Duration(ms)*time.Millisecond, c.cfg.MaxWait)
		}
	}
	return rand.N(min(c.cfg.MinWait<<min(failures, 16), c.cfg.MaxWait))
}

// pause reports whether the time is up, and not ctx done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// later is a refusal that says when to come back.
type later struct {
	error
	after time.Duration
}

func (c *Client) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	url := strings.TrimSuffix(c.cfg.URL, "/") + "/v1/stream"
	if c.cfg.Changed != nil {
		url += "?push=true"
	}
	conn, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{ //nolint:bodyclose // it is in memory
		HTTPClient:   c.cfg.HTTP,
		HTTPHeader:   http.Header{"Authorization": {"Bearer " + token}},
		Subprotocols: []string{"playhead.v1.proto"},
	})
	if err != nil {
		return nil, refusal(resp, fmt.Errorf("connect: %w", err))
	}
	conn.SetReadLimit(1 << 20) // an answer is much smaller
	return conn, nil
}

// refusal says what a handshake that failed means. A token that is not valid may be
// another one the next time.
func refusal(resp *http.Response, err error) error {
	if resp == nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUpgradeRequired:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if seconds, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && seconds > 0 && seconds < 3600 {
		return &later{err, time.Duration(seconds) * time.Second}
	}
	return err
}
