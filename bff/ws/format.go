package ws

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// format encodes and decodes messages. Its methods keep none of their arguments.
type format interface {
	// name returns the subprotocol.
	name() string
	// frame returns the frame type of messages; kind names it in errors.
	frame() websocket.MessageType
	kind() string
	// decode reads a user's message. The batch is never nil: after an error it has the sequence number, if
	// readable.
	decode(uid string, body []byte) (*codec.Batch, error)
	// result answers a stored message.
	result(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error)
	// failure answers a message that was not stored.
	failure(seq uint64, f *codec.Failure) []byte
	// push encodes a change without its uid and origin.
	push(c *historyv1.Change) ([]byte, error)
}

type jsonFormat struct{}

func (jsonFormat) name() string { return "playhead.v1.json" }

func (jsonFormat) frame() websocket.MessageType { return websocket.MessageText }

func (jsonFormat) kind() string { return "text" }

func (jsonFormat) decode(uid string, body []byte) (*codec.Batch, error) {
	return codec.DecodeMessage(uid, body)
}

func (jsonFormat) result(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error) {
	results, err := batch.Results(resp)
	if err != nil {
		return nil, err
	}
	reply := codec.Reply{Seq: batch.Seq, Results: results, NowMS: resp.GetNowMs()}
	reply.FirstFlag, reply.FirstOfDay = batch.Today(resp)
	return json.Marshal(reply)
}

func (jsonFormat) failure(seq uint64, f *codec.Failure) []byte {
	text, _ := json.Marshal(codec.Reply{Seq: seq, Error: f}) // strings and numbers never fail
	return text
}

func (jsonFormat) push(c *historyv1.Change) ([]byte, error) {
	return json.Marshal(codec.Reply{Push: codec.NewPush(c)})
}

// errMalformed is returned for a frame that is not a message.
var errMalformed = errors.New("malformed protobuf")

type protoFormat struct{}

func (protoFormat) name() string { return "playhead.v1.proto" }

func (protoFormat) frame() websocket.MessageType { return websocket.MessageBinary }

func (protoFormat) kind() string { return "binary" }

// decode refuses unknown fields, as the JSON decoder does: ignoring them would lose data silently.
func (protoFormat) decode(uid string, body []byte) (*codec.Batch, error) {
	var req historyv1.StreamRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return &codec.Batch{Seq: sequence(body)}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	batch := &codec.Batch{Seq: req.Sequence, Heartbeats: req.Heartbeats, Records: req.ReturnRecords, Ack: req.Ack, Day: req.Day}
	switch n := len(req.Heartbeats); {
	case unknown(&req):
		return batch, history.Invalid("message", "unknown field")
	case req.Sequence == 0:
		return batch, history.Invalid("sequence", "required")
	case historyv1.Ack_name[int32(req.Ack)] == "":
		return batch, history.Invalid("ack", "want cached or queued")
	case n > codec.MaxHeartbeats:
		return batch, fmt.Errorf("heartbeats: %w: want at most %d entries", codec.ErrTooLarge, codec.MaxHeartbeats)
	}
	for i, h := range req.Heartbeats {
		if h.Uid != "" || unknown(h) {
			return batch, history.Invalid(fmt.Sprintf("heartbeats[%d]", i), "unknown field, or a uid: the token says who")
		}
		h.Uid, h.SentAtMs, h.Day = uid, req.SentAtMs, nil
	}
	return batch, nil
}

// sequence returns the sequence number at the start of a message, or 0.
func sequence(body []byte) uint64 {
	num, typ, n := protowire.ConsumeTag(body)
	if n < 0 || num != 1 || typ != protowire.VarintType {
		return 0
	}
	seq, n := protowire.ConsumeVarint(body[n:])
	if n < 0 {
		return 0
	}
	return seq
}

func unknown(m proto.Message) bool { return len(m.ProtoReflect().GetUnknown()) > 0 }

func (protoFormat) result(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error) {
	if sent, got := len(batch.Heartbeats), len(resp.GetStatuses()); got != sent {
		return nil, fmt.Errorf("%d statuses for %d heartbeats", got, sent)
	}
	return proto.Marshal(&historyv1.StreamResponse{Sequence: batch.Seq, Result: resp})
}

func (protoFormat) failure(seq uint64, f *codec.Failure) []byte {
	code := historyv1.StreamErrorCode_value["STREAM_ERROR_CODE_"+strings.ToUpper(f.Code)]
	text, _ := proto.Marshal(&historyv1.StreamResponse{Sequence: seq, Error: &historyv1.StreamError{
		Code: historyv1.StreamErrorCode(code), Detail: strings.ToValidUTF8(f.Detail, "?"), Field: f.Field, RetryAfterMs: f.RetryAfterMS,
	}}) // valid UTF-8 and numbers never fail
	return text
}

func (protoFormat) push(c *historyv1.Change) ([]byte, error) {
	return proto.Marshal(&historyv1.StreamResponse{Push: c})
}

// Failure codes: the protocol's, in lower case.
const (
	invalid     = "invalid"
	tooLarge    = "too_large"
	rateLimited = "rate_limited"
	unavailable = "unavailable"
	timeout     = "timeout"
	internal    = "internal"
)
