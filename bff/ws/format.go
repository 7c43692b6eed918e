package ws

import (
	"encoding/json"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// format is how messages are written. Its methods keep nothing of what they are given.
type format interface {
	// name is the subprotocol's.
	name() string
	// frame is what messages come in, and kind that in words.
	frame() websocket.MessageType
	kind() string
	// decode reads a message of a user. The batch is there even when it fails, with its
	// number if that could be read.
	decode(uid string, body []byte) (*codec.Batch, error)
	// result answers a message with what the service said of it.
	result(batch *codec.Batch, resp *historyv1.ApplyResponse) ([]byte, error)
	// failure answers a message that was not stored.
	failure(seq uint64, f *codec.Failure) []byte
	// push tells of a change, which has no uid and no origin.
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
	reply := codec.Reply{Seq: batch.Seq, Results: results}
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
