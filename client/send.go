// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

const (
	longest = time.Hour // limit of the edge's retry time
	slowest = 1000      // bytes per second of the slowest supported link
	headers = 1 << 10   // bound of a request's bytes besides token and body
)

type link interface {
	// exchange sends a message within Patience and returns its response: the message's number and a result or error.
	exchange(context.Context, *messagev1.StreamRequest) (*messagev1.StreamResponse, error)
}

// send sends the queue over a link until life ends or an error occurs.
func (c *Client) send(life context.Context, l link) error {
	c.mu.Lock()
	c.clock.silent = false
	c.mu.Unlock()
	for seq := uint64(1); ; seq++ {
		if !sleep(life, time.Until(c.rest)) {
			return context.Cause(life)
		}
		req := c.next(seq)
		if req == nil {
			select {
			case <-c.wake:
				continue
			case <-life.Done():
				return context.Cause(life)
			}
		}
		if err := c.exchange(life, l, req); err != nil {
			return err
		}
	}
}

// next returns the next message, nil if the queue is empty. While the time is unknown, the message asks for it
// and has no heartbeats.
func (c *Client) next(seq uint64) *messagev1.StreamRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox.items) == 0 {
		return nil
	}
	shown, elapsed := c.cfg.Clock()
	c.slept(elapsed)
	if !c.clock.known && !c.clock.silent && !c.cfg.Recorded {
		return &messagev1.StreamRequest{Sequence: seq}
	}
	c.outbox.set(shown.Add(-elapsed))
	beats, dated := c.outbox.next()
	req := &messagev1.StreamRequest{Sequence: seq, Heartbeats: beats, ReturnRecords: !c.cfg.NoRecords}
	if !dated {
		req.SentAtMs = shown.UnixMilli()
	}
	for _, h := range beats {
		req.ReturnRecords = req.ReturnRecords || h.IfMatch != 0
	}
	if c.cfg.Day != nil {
		req.Day = &messagev1.DayCheck{Known: c.day, Zone: c.zone(shown)}
	}
	return req
}

// zone returns the user's zone, or the device's offset.
func (c *Client) zone(now time.Time) string {
	if c.cfg.Zone != "" {
		return c.cfg.Zone
	}
	return now.Format("-07:00")
}

func (c *Client) exchange(life context.Context, l link, req *messagev1.StreamRequest) error {
	began := time.Now()
	_, sent := c.cfg.Clock()
	resp, err := l.exchange(life, req)
	if err != nil {
		return err
	}
	if e := resp.GetError(); e != nil {
		c.failed(e)
		return nil
	}
	if got, want := len(resp.GetResult().GetStatuses()), len(req.Heartbeats); got != want {
		return fmt.Errorf("%d statuses for %d heartbeats", got, want)
	}
	c.learnTime(resp.Result.GetNowMs(), sent)
	if len(req.Heartbeats) == 0 {
		return nil
	}
	c.today(resp.Result.Days)
	c.takeAnswer(resp.Result, time.Since(began))
	return nil
}

// learnTime updates the clock from the response to a message sent at the given elapsed time.
func (c *Client) learnTime(ms int64, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, elapsed := c.cfg.Clock()
	c.slept(elapsed)
	if c.clock.answered(ms, sent, elapsed); c.clock.known {
		c.outbox.date(&c.clock)
	}
}

func (c *Client) failed(e *messagev1.StreamError) {
	c.mu.Lock()
	var answers []Answer
	tooLarge := e.Code == messagev1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE
	switch {
	case e.RetryAfterMs > 0:
		c.outbox.postpone()
		c.rest = time.Now().Add(milliseconds(uint64(e.RetryAfterMs)) + rand.N(c.cfg.MinWait))
	case c.outbox.sent > 0 && (tooLarge || e.Code == messagev1.StreamErrorCode_STREAM_ERROR_CODE_INVALID):
		answers = c.outbox.refuse(e.Field, e.Detail, tooLarge)
	default:
		c.outbox.fail()
		c.pauseLonger()
	}
	c.mu.Unlock()
	c.answered(answers)
}

// takeAnswer processes a result. Heartbeats that were not stored are retried after a backoff.
func (c *Client) takeAnswer(resp *messagev1.ApplyResponse, took time.Duration) {
	c.mu.Lock()
	answers, again := c.outbox.takeAnswer(resp, took)
	c.mu.Unlock()
	if len(answers) > 0 {
		c.idle = 0
	}
	if again > 0 {
		c.pauseLonger()
	}
	c.answered(answers)
}

// pauseLonger delays the next message, longer with each message without an outcome.
func (c *Client) pauseLonger() {
	c.rest = time.Now().Add(c.backoff(c.idle))
	c.idle++
}

// backoff returns a random part of a limit that doubles with each failure. Clients that lost the same edge thus
// return at different times.
func (c *Client) backoff(failures int) time.Duration {
	return rand.N(min(c.cfg.MinWait<<min(failures, 16), c.cfg.MaxWait))
}

// answered reports outcomes, then closes empty if the outbox is.
func (c *Client) answered(answers []Answer) {
	c.tell(answers)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox.items) == 0 && !isClosed(c.empty) {
		close(c.empty)
	}
}

func (c *Client) today(days []*messagev1.DaySeen) {
	for _, d := range days {
		if c.cfg.Day != nil && (d.First || d.Date != c.day) {
			c.day = d.Date
			c.cfg.Day(d)
		}
	}
}

func (c *Client) closed(err error) {
	bye := websocket.CloseStatus(err)
	c.mu.Lock()
	var answers []Answer
	switch bye {
	case websocket.StatusInvalidFramePayloadData, websocket.StatusMessageTooBig:
		answers = c.outbox.refuse("", err.Error(), bye == websocket.StatusMessageTooBig)
	default:
		c.outbox.fail()
	}
	c.outbox.closed()
	c.mu.Unlock()
	c.answered(answers)
}

// Signs of the edge on a connection, weakest first.
const (
	noSign   = iota
	anySign  // any sign of the edge
	dataSign // a response or a change
)

// patient bounds an exchange of size bytes. At most one heartbeat cannot be split further, and gets extra time
// for the slowest link.
func (c *Client) patient(ctx context.Context, beats, size int) (context.Context, context.CancelFunc) {
	limit := c.cfg.Patience
	if beats <= 1 {
		limit += time.Duration(size) * time.Second / slowest
	}
	return context.WithTimeoutCause(ctx, limit, errSlow)
}

// errSlow means that Patience elapsed without a response.
var errSlow = errors.New("no answer in time")

// milliseconds converts the edge's retry time, limited to an hour.
func milliseconds(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(longest/time.Millisecond))) * time.Millisecond //nolint:gosec // at most an hour
}

// refusal is an unexpected HTTP status.
type refusal struct {
	error
	status int
	after  time.Duration // retry time; 0 if not given
	byEdge bool          // by the edge, not a proxy
}

func (r *refusal) Unwrap() error { return r.error }

// byProxy reports whether a proxy may have refused the WebSocket, or an edge whose proxy removed the upgrade.
func (r *refusal) byProxy() bool { return r.status != http.StatusUnauthorized && !r.passing() }

// passing reports whether the refusal may be temporary.
func (r *refusal) passing() bool {
	return r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable
}

// final reports whether the refusal is permanent.
func (r *refusal) final() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUpgradeRequired:
		return true
	}
	return false
}

func newRefusal(resp *http.Response, err error) *refusal {
	r := &refusal{error: err, status: resp.StatusCode}
	if r.status == http.StatusUnauthorized {
		r.error = fmt.Errorf("%w: %w", ErrUnauthorized, err)
	}
	r.after = retryAfter(resp.Header)
	return r
}

// retryAfter returns the time to wait, 0 if not given. A date is relative to the sender's clock, and means
// nothing without that clock's time.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return milliseconds(1000 * seconds)
	}
	until, err := http.ParseTime(text)
	now, err2 := http.ParseTime(h.Get("Date"))
	if err != nil || err2 != nil {
		return 0
	}
	return milliseconds(uint64(max(until.Sub(now), 0).Milliseconds())) //nolint:gosec // not negative
}
