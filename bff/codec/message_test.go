package codec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestDecodeMessage(t *testing.T) {
	b, err := codec.DecodeMessage("u1", []byte(`{"seq":7,"sent_at":"2026-03-01T19:15:01Z","ack":"queued","heartbeats":[`+beat+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	req := b.Request()
	if b.Seq != 7 || len(req.Heartbeats) != 1 || req.Heartbeats[0].Uid != "u1" || req.Heartbeats[0].SentAtMs != 1772392501000 {
		t.Errorf("got number %d, %v", b.Seq, req)
	}
	if req.ReturnRecords || req.Ack != historyv1.Ack_ACK_QUEUED {
		t.Errorf("got %v, want no records and the acknowledgement asked for", req)
	}
	if b, err := codec.DecodeMessage("u1", []byte(`{"records":true,"heartbeats":[],"seq":9007199254740991}`)); err != nil || !b.Records || b.Seq != 1<<53-1 {
		t.Errorf("got %+v, %v", b, err)
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		is         error
		want       string
		seq        uint64
	}{
		{"no number", `{"heartbeats":[]}`, history.ErrInvalid, "body.seq: required", 0},
		{"number 0", `{"seq":0,"heartbeats":[]}`, history.ErrInvalid, "body.seq: want a number from 1 on", 0},
		{"a number in quotes", `{"seq":"1","heartbeats":[]}`, history.ErrInvalid, "body.seq: want a number from 1 on", 0},
		{"no heartbeats", `{"seq":3}`, history.ErrInvalid, "body.heartbeats: required", 3},
		{"another operation", `{"seq":3,"op":"list"}`, history.ErrInvalid, "body.op: unknown field", 3},
		{"another user", `{"seq":3,"uid":"u2","heartbeats":[]}`, history.ErrInvalid, "body.uid: unknown field", 3},
		{"no JSON", `ping`, scan.ErrSyntax, "want a value", 0},
		{"an array", `[1]`, history.ErrInvalid, "want an object", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := codec.DecodeMessage("u1", []byte(tt.body))
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || b.Seq != tt.seq {
				t.Errorf("%s: number %d, %v; want %d, %v with %q", tt.body, b.Seq, err, tt.seq, tt.is, tt.want)
			}
		})
	}
	if _, err := codec.DecodeBatch("u1", []byte(`{"seq":1,"heartbeats":[]}`)); !errors.Is(err, history.ErrInvalid) {
		t.Errorf("an upload with a number: %v, want %v", err, history.ErrInvalid)
	}
}

func TestReply(t *testing.T) {
	for want, r := range map[string]codec.Reply{
		`{"seq":7,"results":[{"status":"stored"}]}`: {Seq: 7, Results: []codec.Result{{Status: "stored"}}},
		`{"seq":8,"results":[]}`:                    {Seq: 8, Results: []codec.Result{}},
		`{"error":{"code":"rate_limited","detail":"d","retry_after_ms":5}}`: {
			Error: &codec.Failure{Code: "rate_limited", Detail: "d", RetryAfterMS: 5},
		},
	} {
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}

// Whatever a frame holds, its number is only believed when the message is.
func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte(`{"seq":1,"heartbeats":[` + beat + `,{}],"sent_at":"2026-03-01T20:15:00Z"}`))
	f.Add([]byte(`{"heartbeats":[null],"seq":18446744073709551615}`))
	f.Add([]byte(`{"seq":1e3,"records":true,"ack":"queued","heartbeats":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := codec.DecodeMessage("u1", data)
		if err != nil {
			if !errors.Is(err, scan.ErrSyntax) && !errors.Is(err, history.ErrInvalid) && !errors.Is(err, codec.ErrTooLarge) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		results, err := b.Results(stored(len(b.Heartbeats)))
		if err != nil || b.Seq == 0 || len(results) != len(b.Heartbeats)+b.Refused() {
			t.Errorf("%q: number %d, %d results, %v", data, b.Seq, len(results), err)
		}
		if _, err := json.Marshal(codec.Reply{Seq: b.Seq, Results: results}); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}
