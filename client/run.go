package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/internal/run"
)

const (
	lasting  = 10 * time.Second // a connection that was there so long has not failed
	unproved = 5 * time.Second  // before a refused token is asked for again, at least
	muteMost = 2                // mute WebSockets in a row, before requests are tried
)

// Run sends what is reported until ctx is done. To have all of it answered, call
// [Client.Flush] before. It fails with [ErrRefused] only. A call waits until an earlier one has ended.
func (c *Client) Run(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return nil
	}
	for failures := 0; ; failures++ {
		began := time.Now()
		heard, err := c.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRefused):
			return err
		}
		if heard == dataSign || heard == anySign && time.Since(began) > lasting {
			failures = 0
		}
		wait := c.wait(err, failures)
		c.cfg.Logger.Info("not connected", "error", err, "again_in", wait)
		run.Sleep(ctx, wait)
	}
}

// attempt connects and sends until the connection ends. It says what was heard, and why
// the connection ended.
func (c *Client) attempt(ctx context.Context) (heard int, err error) {
	token, err := c.grant(ctx)
	if err != nil {
		return noSign, err
	}
	heard, err = c.connect(ctx, token)
	if errors.Is(err, ErrUnauthorized) && token != c.refused {
		c.refused = token
		c.cfg.Unauthorized(err)
	}
	return heard, err
}

// connect sends requests where WebSockets do not get through.
func (c *Client) connect(ctx context.Context, token string) (heard int, err error) {
	c.mute++
	heard, err = c.overWebSocket(ctx, token)
	refused, answered := errors.AsType[*refusal](err)
	if answered && !refused.passing() || websocket.CloseStatus(err) != -1 {
		c.mute = 0
	}
	if ctx.Err() == nil && (answered && refused.byProxy() || c.mute > muteMost && c.Waiting() > 0) {
		return c.overPost(ctx, token, err)
	}
	return heard, err
}

// wait is how long to stay away: as long as the edge asked for, or [Client.backoff].
func (c *Client) wait(err error, failures int) time.Duration {
	if refused, ok := errors.AsType[*refusal](err); ok && refused.after > 0 {
		return refused.after + rand.N(c.cfg.MinWait)
	}
	if bye, ok := errors.AsType[websocket.CloseError](err); ok {
		_, hint, _ := strings.Cut(bye.Reason, "; retry_after_ms=")
		if ms, err := strconv.ParseUint(hint, 10, 64); err == nil {
			return milliseconds(ms) + rand.N(c.cfg.MinWait)
		}
	}
	if errors.Is(err, ErrUnauthorized) {
		return unproved + c.backoff(failures)
	}
	return c.backoff(failures)
}

// grant asks for a token. A call that takes too long is waited for the next time.
func (c *Client) grant(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Patience, errors.New("none in time"))
	defer cancel()
	if c.token == nil {
		c.token = make(chan tokenAnswer, 1)
		go func(answer chan<- tokenAnswer) { // ends with the call
			token, err := c.cfg.Token(ctx)
			answer <- tokenAnswer{token, err}
		}(c.token)
	}
	select {
	case g := <-c.token:
		c.token = nil
		if g.err != nil {
			return "", fmt.Errorf("token: %w", g.err)
		}
		return g.token, nil
	case <-ctx.Done():
		return "", fmt.Errorf("token: %w", context.Cause(ctx))
	}
}
