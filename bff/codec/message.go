package codec

import (
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// DecodeMessage reads a message of a stream: the body of an upload and its number,
// "seq", from 1 on. Records are only in the answer where the message says so. It
// fails as [DecodeBatch] does; the batch then has its number, if that came first.
func DecodeMessage(uid string, body []byte) (*Batch, error) {
	d := batchDecoder{decoder: newDecoder(body, "heartbeats"), uid: uid, seq: true, batch: &Batch{}}
	err := d.decode()
	if err == nil && d.batch.Seq == 0 {
		err = history.Invalid("body.seq", "required")
	}
	return d.batch, err
}

func (d *batchDecoder) sequence() {
	if !d.seq {
		d.unknown("", []byte("seq"))
		return
	}
	n, ok := d.in.Int()
	if !ok || n < 1 {
		d.refuse("seq", "want a number from 1 on")
		return
	}
	d.batch.Seq = uint64(n)
}

// Reply is the answer to a message of a stream, or a push, which answers none.
type Reply struct {
	Seq     uint64   `json:"seq,omitzero"`
	Results []Result `json:"results,omitzero"`
	Error   *Failure `json:"error,omitzero"`
	Push    *Push    `json:"push,omitzero"`
	// FirstFlag is today, to be sent back, and FirstOfDay says that the user comes for the
	// first time on it.
	FirstFlag  string `json:"first_flag,omitzero"`
	FirstOfDay bool   `json:"first_of_day,omitzero"`
}

// Failure says why a message was not stored.
type Failure struct {
	Code         string `json:"code"`
	Detail       string `json:"detail"`
	Field        string `json:"field,omitzero"`
	RetryAfterMS int64  `json:"retry_after_ms,omitzero"`
}

func (d *batchDecoder) ack() {
	if d.in.Null() {
		return
	}
	switch d.text("ack", "cached") {
	case "cached":
		d.batch.Ack = historyv1.Ack_ACK_CACHED
	case "queued":
		d.batch.Ack = historyv1.Ack_ACK_QUEUED
	default:
		d.refuse("ack", `want "cached" or "queued"`)
	}
}
