package ws

import (
	"time"
	"unsafe"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// ErrMalformed exposes errMalformed to tests.
var ErrMalformed = errMalformed

// DecodeProto decodes a protobuf message.
func DecodeProto(uid string, body []byte) (*codec.Batch, error) {
	return protoFormat{}.decode(uid, body)
}

// AnswerProto encodes the response to batch.
func AnswerProto(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error) {
	return protoFormat{}.result(batch, resp)
}

// SetWallClock simulates a step of the wall clock by d for a handler without connections; the monotonic clock
// stays. It reports false if the handler uses the wall clock.
func (h *Handler) SetWallClock(d time.Duration) (ok bool) {
	const second = 1 << 30 // position of the seconds in the first word of time.Time
	if !monotonic(&h.born) {
		return false
	}
	before := h.uptime()
	*(*uint64)(unsafe.Pointer(&h.born)) -= uint64(d/time.Second) * second
	return h.uptime()-before < d/2
}

// Monotonic reports whether all tokens expire by the monotonic clock.
func (h *Handler) Monotonic() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		if !monotonic(&s.until) {
			return false
		}
	}
	return true
}

func monotonic(t *time.Time) bool { return *(*uint64)(unsafe.Pointer(t))&(1<<63) != 0 }
