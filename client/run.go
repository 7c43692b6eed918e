// SPDX-License-Identifier: Apache-2.0

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

const (
	lasting  = 10 * time.Second        // a connection of this age counts as successful.
	unproved = 5 * time.Second         // least wait after a refused token.
	muteMost = 2                       // consecutive mute WebSockets before requests are tried.
	soon     = 1500 * time.Millisecond // limit of the wait for an edge that is away.
)

// Run sends reports until ctx is done. Call [Client.Flush] before to have all answered. It fails only with
// [ErrRefused]. A second call waits for the end of the first.
func (c *Client) Run(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		defer func() { <-c.running }()
	case <-ctx.Done():
		return nil
	}
	failures := 0
	for {
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
		if !errors.Is(err, errAway) {
			failures++
		}
		c.cfg.Logger.Info("not connected", "error", err, "again_in", wait)
		c.pause(ctx, wait)
	}
}

// pause waits for the next attempt, or for [Client.Reconnect].
func (c *Client) pause(ctx context.Context, wait time.Duration) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.hurry:
	case <-ctx.Done():
	}
}

// Reconnect ends the wait before the next attempt to connect, if Run waits; also the wait that the edge asked for.
func (c *Client) Reconnect() {
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// errAway means that there was no connection to the edge.
var errAway = errors.New("no connection")

// gone marks the refusal of a proxy that did not reach the edge.
func gone(err error) error {
	refused, ok := errors.AsType[*refusal](err)
	if ok && refused.status >= http.StatusBadGateway {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return err
}

// attempt connects and sends until the connection ends. It returns the strongest sign of the edge, and the cause.
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

// connect falls back to requests if WebSockets do not get through.
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

// wait returns the time until the next attempt: the edge's, or [Client.backoff].
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
	if errors.Is(err, errAway) {
		return rand.N(min(soon, c.cfg.MaxWait))
	}
	if errors.Is(err, ErrUnauthorized) {
		return unproved + c.backoff(failures)
	}
	return c.backoff(failures)
}

// grant gets a token. The next attempt resumes a call that takes too long.
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

// sleep waits. It reports false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wake signals on a channel of capacity 1, unless a signal is pending.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
