package ws

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/scan"
)

// closeError is how the edge ends a connection.
type closeError struct {
	code   websocket.StatusCode
	reason string
}

// Error returns the reason.
func (f *closeError) Error() string { return fmt.Sprintf("closed with %d: %s", f.code, f.reason) }

// expired is the status of a connection whose token is not valid any more.
const expired websocket.StatusCode = 4401

// goingAway asks a player to come back within the spread, so that not all do at once.
func goingAway(spread time.Duration) *closeError {
	return &closeError{websocket.StatusGoingAway, hint("the edge is stopping", rand.N(spread))}
}

// hint adds to a reason when to come back. It is at the end, behind a space, so that
// clients find it.
func hint(reason string, after time.Duration) string {
	return fmt.Sprintf("%s; retry_after_ms=%d", reason, after.Milliseconds())
}

// wrongFormat is the end of a connection whose player does not speak the format, nil
// for any other error.
func wrongFormat(err error) *closeError {
	if errors.Is(err, scan.ErrSyntax) || errors.Is(err, errMalformed) {
		return &closeError{websocket.StatusInvalidFramePayloadData, short(err.Error())}
	}
	return nil
}

// short cuts a text to what a close frame takes.
func short(text string) string {
	const limit = 123
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return strings.TrimSpace(text)
}
