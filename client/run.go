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

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const (
	longest  = time.Hour        // that the edge may send a client away for
	lasting  = 10 * time.Second // a connection that was there so long has not failed
	unproved = 2 * time.Second  // before a refused token is asked for again, at least
	byPost   = 2 * time.Minute  // of requests, before a WebSocket is tried again
	muteMost = 2                // WebSockets in a row on which nothing was heard, before requests are tried
)

// Run sends what is reported until ctx is done. Who wants all of it answered calls
// [Client.Flush] before. It fails with [ErrRefused] only.
func (c *Client) Run(ctx context.Context) error {
	for failures := 0; ; failures++ {
		began := time.Now()
		heard, err := c.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRefused):
			return err
		case errors.Is(err, ErrUnauthorized):
			c.cfg.Unauthorized(err)
		}
		if heard == news || heard == somebody && time.Since(began) > lasting {
			failures = 0
		}
		wait := c.wait(err, failures)
		c.cfg.Logger.Info("not connected", "err", err, "again_in", wait)
		pause(ctx, wait)
	}
}

// What was heard on a connection.
const (
	nobody   = iota
	somebody // any sign of the edge
	news     // an answer, or a change
)

// attempt connects and sends until the connection ends. It says what was heard, and why
// the connection ended. Where WebSockets do not get through it sends requests.
func (c *Client) attempt(ctx context.Context) (heard int, err error) {
	token, err := c.grant(ctx)
	if err != nil {
		return nobody, err
	}
	heard, err = c.overWebSocket(ctx, token)
	refused, answered := errors.AsType[*refusal](err)
	if c.mute++; heard >= somebody || answered || websocket.CloseStatus(err) != -1 {
		c.mute = 0
	}
	if ctx.Err() == nil && (answered && refused.byProxy() || c.mute > muteMost && c.Waiting() > 0) {
		return c.overPost(ctx, token, err)
	}
	return heard, err
}

// wait is how long to stay away: as long as the edge asked for, or a random part of
// what doubles with every failure, so that those who lost the same edge do not all
// come at once.
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
	wait := rand.N(min(c.cfg.MinWait<<min(failures, 16), c.cfg.MaxWait))
	if errors.Is(err, ErrUnauthorized) {
		return unproved + wait
	}
	return wait
}

// milliseconds is what the edge asks to wait.
func milliseconds(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(longest/time.Millisecond))) * time.Millisecond //nolint:gosec // at most an hour
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

// granted is what a call of Token returned.
type granted struct {
	token string
	err   error
}

// grant asks for a token. A call that takes too long is waited for the next time.
func (c *Client) grant(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Patience, errors.New("none in time"))
	defer cancel()
	if c.token == nil {
		c.token = make(chan granted, 1)
		go func(answer chan<- granted) { // ends with the call
			token, err := c.cfg.Token(ctx)
			answer <- granted{token, err}
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

// refusal is an HTTP status instead of what was asked for.
type refusal struct {
	error
	status int
	after  time.Duration // when to come back, 0 where that is not said
}

func (r *refusal) Unwrap() error { return r.error }

// byProxy reports whether a proxy may have refused a WebSocket, or an edge behind one that
// did not see it asked for.
func (r *refusal) byProxy() bool {
	switch r.status {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false
	}
	return true
}

// final reports whether the same request is never taken.
func (r *refusal) final() bool {
	switch r.status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUpgradeRequired:
		return true
	}
	return false
}

func refused(resp *http.Response, err error) *refusal {
	r := &refusal{error: err, status: resp.StatusCode}
	if r.status == http.StatusUnauthorized {
		r.error = fmt.Errorf("%w: %w", ErrUnauthorized, err)
	}
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 32); err == nil {
		r.after = milliseconds(1000 * seconds)
	}
	return r
}

// link is a way to the edge.
type link interface {
	// exchange sends a message and returns its answer, which has the message's number and
	// either a result or an error.
	exchange(context.Context, *historyv1.StreamRequest) (*historyv1.StreamResponse, error)
}

// errBroken means that the edge fails on a message.
var errBroken = errors.New("the edge fails on the message")

// send sends what waits over a link until life ends or something fails.
func (c *Client) send(life context.Context, l link) error {
	for seq := uint64(1); ; seq++ {
		req := c.next(seq)
		if req == nil {
			select {
			case <-c.wake:
				continue
			case <-life.Done():
				return context.Cause(life)
			}
		}
		rest, err := c.exchange(life, l, req)
		if err != nil {
			return err
		}
		if rest > 0 && !pause(life, rest+rand.N(c.cfg.MinWait)) {
			return context.Cause(life)
		}
	}
}

// next returns the next message, nil when nothing waits.
func (c *Client) next(seq uint64) *historyv1.StreamRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	beats, zero := c.outbox.next()
	if len(beats) == 0 {
		return nil
	}
	shown, elapsed := c.cfg.Clock()
	req := &historyv1.StreamRequest{Sequence: seq, SentAtMs: zero.Add(elapsed).UnixMilli(), Heartbeats: beats, ReturnRecords: !c.cfg.NoRecords}
	for _, h := range beats {
		req.ReturnRecords = req.ReturnRecords || h.IfMatch != 0
	}
	if c.cfg.Day != nil {
		req.Day = &historyv1.DayCheck{Known: c.day, Zone: c.zone(shown)}
	}
	return req
}

// zone is the user's, or the device's offset.
func (c *Client) zone(now time.Time) string {
	if c.cfg.Zone != "" {
		return c.cfg.Zone
	}
	return now.Format("-07:00")
}

// exchange sends a message and deals with the answer. It returns how long to rest before
// the next one: what was not stored is sent again without giving the connection up.
func (c *Client) exchange(life context.Context, l link, req *historyv1.StreamRequest) (rest time.Duration, err error) {
	patient, cancel := context.WithTimeoutCause(life, c.cfg.Patience, errSlow)
	defer cancel()
	began := time.Now()
	resp, err := l.exchange(patient, req)
	if err != nil {
		return 0, err
	}
	if e := resp.GetError(); e != nil {
		return c.failed(e)
	}
	if got, want := len(resp.GetResult().GetStatuses()), len(req.Heartbeats); got != want {
		return 0, fmt.Errorf("%w: %d statuses for %d heartbeats", errBroken, got, want)
	}
	c.today(resp.Result.Days)
	if again := c.settle(resp.Result, time.Since(began)); again > 0 {
		rest = c.cfg.MinWait
	}
	return rest, nil
}

// errSlow means that the edge took longer than the client is patient.
var errSlow = errors.New("no answer in time")

func (c *Client) failed(e *historyv1.StreamError) (rest time.Duration, err error) {
	c.mu.Lock()
	var answers []Answer
	switch e.Code {
	case historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE:
		answers = c.outbox.refuse(e.Detail, e.Code == historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE)
	case historyv1.StreamErrorCode_STREAM_ERROR_CODE_TIMEOUT:
		c.outbox.fail(false)
	default:
		if e.RetryAfterMs > 0 {
			c.outbox.postpone()
		} else {
			err = fmt.Errorf("%w: %v: %s %s", errBroken, e.Code, e.Field, e.Detail)
		}
	}
	c.mu.Unlock()
	c.answered(answers)
	return milliseconds(uint64(max(e.RetryAfterMs, 0))), err
}

func (c *Client) settle(resp *historyv1.ApplyResponse, took time.Duration) (again int) {
	c.mu.Lock()
	answers, again := c.outbox.settle(resp, took)
	c.mu.Unlock()
	c.answered(answers)
	return again
}

// answered tells what became of heartbeats, and after that whether the last one of all is
// answered.
func (c *Client) answered(answers []Answer) {
	c.tell(answers)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox.items) == 0 && !closed(c.empty) {
		close(c.empty)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (c *Client) today(days []*historyv1.DaySeen) {
	for _, d := range days {
		if c.cfg.Day != nil && (d.First || d.Date != c.day) {
			c.day = d.Date
			c.cfg.Day(d)
		}
	}
}

// opened is told of a connection.
func (c *Client) opened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outbox.opened()
	c.cfg.Logger.Info("connected")
}

// closed is told why a connection ended.
func (c *Client) closed(err error) {
	bye := websocket.CloseStatus(err)
	c.mu.Lock()
	var answers []Answer
	switch bye {
	case websocket.StatusUnsupportedData, websocket.StatusInvalidFramePayloadData, websocket.StatusMessageTooBig:
		answers = c.outbox.refuse(err.Error(), bye == websocket.StatusMessageTooBig)
	default:
		c.outbox.fail(bye == websocket.StatusInternalError || errors.Is(err, errBroken))
	}
	c.outbox.closed()
	c.mu.Unlock()
	c.answered(answers)
}
