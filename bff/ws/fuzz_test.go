package ws_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// FuzzDecodeProto checks that every frame is malformed, refused, or a valid batch of the token's user.
func FuzzDecodeProto(f *testing.F) {
	for _, req := range []*historyv1.StreamRequest{
		{},
		{Sequence: 1, SentAtMs: 2, Ack: historyv1.Ack_ACK_QUEUED, Heartbeats: []*historyv1.Heartbeat{{ObjectId: "100", Meta: map[string]string{"a": "b"}}, {}}},
		{Sequence: 1 << 63, ReturnRecords: true, Heartbeats: []*historyv1.Heartbeat{{Uid: "u2"}}},
	} {
		body, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		batch, err := ws.DecodeProto("u1", body)
		if err != nil {
			if !errors.Is(err, ws.ErrMalformed) && !errors.Is(err, history.ErrInvalid) && !errors.Is(err, codec.ErrTooLarge) {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if batch.Seq == 0 || len(batch.Heartbeats) > codec.MaxHeartbeats {
			t.Errorf("%q: number %d, %d heartbeats", body, batch.Seq, len(batch.Heartbeats))
		}
		for i, h := range batch.Heartbeats {
			if _, err := proto.Marshal(h); err != nil || h.Uid != "u1" {
				t.Errorf("%q: heartbeat %d is %v: %v", body, i, h, err)
			}
		}
		resp := &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, len(batch.Heartbeats))}
		if _, err := ws.AnswerProto(batch, resp); err != nil {
			t.Errorf("%q: answer: %v", body, err)
		}
	})
}
