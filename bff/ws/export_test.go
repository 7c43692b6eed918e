package ws

import (
	"time"
	"unsafe"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// For the tests.
var ErrMalformed = errMalformed

// DecodeProto decodes a message in protobuf.
func DecodeProto(uid string, body []byte) (*codec.Batch, error) {
	return protoFormat{}.decode(uid, body)
}

// AnswerProto answers it.
func AnswerProto(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error) {
	return protoFormat{}.result(batch, resp)
}

// SetWallClock has a handler without connections remember the time as if the wall clock had
// been set ahead by d since, the monotonic clock going on as it was. It reports false when
// the handler does not go by the monotonic clock.
func (h *Handler) SetWallClock(d time.Duration) (ok bool) {
	const second = 1 << 30 // of the 64 bits that a time begins with
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

// monotonic reports whether a time has a reading of the monotonic clock.
func monotonic(t *time.Time) bool { return *(*uint64)(unsafe.Pointer(t))&(1<<63) != 0 }
