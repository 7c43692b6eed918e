package ws

import (
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
