package ws_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func TestNewNeedsItsParts(t *testing.T) {
	if h, err := ws.New(ws.Config{}); err == nil {
		t.Errorf("got %v, want an error", h)
	}
}

func TestHeartbeatsInJSON(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inJSON)
		if got, want := say(t, conn, message("7", beat)), `{"seq":7,"results":[{"status":"stored"}]}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		bad := strings.Replace(beat, "progress", "watch", 1)
		got := say(t, conn, `{"sent_at":"2000-01-01T00:00:01Z","heartbeats":[`+bad+","+beat+`],"seq":8,"ack":"queued"}`)
		if !strings.HasPrefix(got, `{"seq":8,"results":[{"status":"invalid","error":{"field":"kind"`) || !strings.HasSuffix(got, `{"status":"stored"}]}`) {
			t.Errorf("one of two is wrong: got %s", got)
		}
		if got, want := say(t, conn, message("9")), `{"seq":9,"results":[]}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if len(w.service.asked) != 2 {
			t.Fatalf("asked %v", w.service.asked)
		}
		req := w.service.asked[1]
		if h := req.Heartbeats[0]; h.Uid != "u1" || h.SentAtMs != 946684801000 || req.Ack != historyv1.Ack_ACK_QUEUED || req.ReturnRecords {
			t.Errorf("asked %v", req)
		}
		if n, m := w.count(t, "playhead_ws_heartbeats_total", "stored"), w.count(t, "playhead_ws_heartbeats_total", "invalid"); n != 2 || m != 1 {
			t.Errorf("counted %v stored, %v invalid", n, m)
		}
		if n := w.count(t, "playhead_ws_messages_total", "answered"); n != 3 {
			t.Errorf("counted %v messages", n)
		}
	})
}

func exchange(t *testing.T, conn *websocket.Conn, req *historyv1.StreamRequest) *historyv1.StreamResponse {
	t.Helper()
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	write(t, conn, websocket.MessageBinary, string(body))
	resp := &historyv1.StreamResponse{}
	if err := proto.Unmarshal([]byte(read(t, conn)), resp); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestHeartbeatsInProtobuf(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inProto)
		answer := &historyv1.ApplyResponse{
			Statuses: []historyv1.Status{historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_INVALID},
			Refusals: []*historyv1.Refusal{{Index: 1, Field: "kind", Reason: "bad"}},
			Records:  []*historyv1.Item{{PositionMs: 5}, {}},
		}
		w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) { return answer, nil }
		req := &historyv1.StreamRequest{
			Sequence: 1 << 60, SentAtMs: 946684801000, ReturnRecords: true,
			Heartbeats: []*historyv1.Heartbeat{{ObjectId: "100"}, {ObjectId: "101"}},
		}
		want := &historyv1.StreamResponse{Sequence: 1 << 60, Result: answer}
		if got := exchange(t, conn, req); !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		asked := w.service.asked[0]
		if h := asked.Heartbeats[1]; h.Uid != "u1" || h.ObjectId != "101" || h.SentAtMs != 946684801000 || !asked.ReturnRecords {
			t.Errorf("asked %v", asked)
		}
		want = &historyv1.StreamResponse{Sequence: 2, Result: &historyv1.ApplyResponse{}}
		if got := exchange(t, conn, &historyv1.StreamRequest{Sequence: 2}); !proto.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestProtobufRefuses(t *testing.T) {
	strange := &historyv1.StreamRequest{Sequence: 3}
	strange.ProtoReflect().SetUnknown([]byte{0x78, 1}) // field 15
	for name, tt := range map[string]struct {
		req   *historyv1.StreamRequest
		code  historyv1.StreamErrorCode
		field string
	}{
		"no number":         {&historyv1.StreamRequest{}, historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, "sequence"},
		"another operation": {strange, historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, "message"},
		"another user": {
			&historyv1.StreamRequest{Sequence: 3, Heartbeats: []*historyv1.Heartbeat{{}, {Uid: "u2"}}},
			historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, "heartbeats[1]",
		},
		"another promise": {&historyv1.StreamRequest{Sequence: 3, Ack: 9}, historyv1.StreamErrorCode_STREAM_ERROR_CODE_INVALID, "ack"},
		"too many": {
			&historyv1.StreamRequest{Sequence: 3, Heartbeats: slices.Repeat([]*historyv1.Heartbeat{{}}, 1001)},
			historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				got := exchange(t, w.dial(t, "u1", inProto), tt.req)
				if e := got.GetError(); got.Sequence != tt.req.Sequence || e.GetCode() != tt.code || e.GetField() != tt.field || e.GetDetail() == "" {
					t.Errorf("got %v", got)
				}
				if len(w.service.asked) > 0 {
					t.Errorf("asked %v", w.service.asked)
				}
			})
		})
	}
}

func TestFailures(t *testing.T) {
	const secretText = "10.0.0.7:6379 refused"
	for name, tt := range map[string]struct {
		err   error
		body  string
		want  string
		retry bool
	}{
		"unknown field":    {body: `{"seq":5,"op":"list"}`, want: `{"code":"invalid","detail":"unknown field","field":"body.op"`},
		"another user":     {body: `{"seq":5,"uid":"u2","heartbeats":[]}`, want: `{"code":"invalid","detail":"unknown field","field":"body.uid"`},
		"too many":         {body: message("5", slices.Repeat([]string{"0"}, 1001)...), want: `{"code":"too_large"`},
		"very many":        {body: message("5", slices.Repeat([]string{"{}"}, 10_000)...), want: `{"code":"too_large"`},
		"unavailable":      {err: status.Error(codes.Unavailable, secretText), want: `{"code":"unavailable"`, retry: true},
		"closing":          {err: status.Error(codes.Canceled, secretText), want: `{"code":"unavailable"`, retry: true},
		"deadline":         {err: context.DeadlineExceeded, want: `{"code":"timeout"`, retry: true},
		"invalid":          {err: status.Error(codes.InvalidArgument, "no such thing"), want: `{"code":"invalid","detail":"no such thing"`},
		"too large for it": {err: status.Error(codes.ResourceExhausted, "message larger"), want: `{"code":"too_large","detail":"message larger"`},
		"internal":         {err: errors.New(secretText), want: `{"code":"internal","detail":"internal error"`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) { return nil, tt.err }
				conn := w.dial(t, "u1", inJSON)
				if tt.body == "" {
					tt.body = message("5", beat)
				}
				got := say(t, conn, tt.body)
				if !strings.HasPrefix(got, `{"seq":5,"error":`+tt.want) || strings.Contains(got, secretText) || strings.Contains(got, "retry_after_ms") != tt.retry {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if strings.Contains(w.log.String(), secretText) != (name == "internal") {
					t.Errorf("log %q", w.log.String())
				}
				w.service.answer = nil
				if got := say(t, conn, message("6", beat)); !strings.Contains(got, "stored") {
					t.Errorf("afterwards: %s", got)
				}
			})
		})
	}
}

// TestTheDeadlineOfAWrite checks that a write gets its deadline less at most a sixteenth.
func TestTheDeadlineOfAWrite(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.service.answer = func(ctx context.Context, _ *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var players sync.WaitGroup
		began := time.Now()
		for i, within := range []time.Duration{2000 * time.Millisecond, 1930 * time.Millisecond, 2000 * time.Millisecond, 1930 * time.Millisecond} {
			conn, asked := w.dial(t, "u"+strconv.Itoa(i), inJSON), time.Now()
			players.Go(func() {
				if got := say(t, conn, message("5", beat)); !strings.Contains(got, "timeout") || since(asked) != within {
					t.Errorf("player %d: got %s after %v", i, got, since(asked))
				}
			})
			time.Sleep(70 * time.Millisecond) // bubble time
		}
		players.Wait()
		if got := say(t, w.dial(t, "u", inJSON), message("6", beat)); !strings.Contains(got, "timeout") || since(began) < 4*time.Second {
			t.Errorf("afterwards: %s after %v", got, since(began))
		}
	})
}

func TestAnAnswerThatDoesNotFit(t *testing.T) {
	for _, protocol := range []string{inJSON, inProto} {
		bubble(t, ws.Config{}, func(t *testing.T, w *world) {
			w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
				return &historyv1.ApplyResponse{}, nil
			}
			conn := w.dial(t, "u1", protocol)
			if protocol == inJSON {
				if got := say(t, conn, message("5", beat)); !strings.Contains(got, "internal") {
					t.Errorf("got %s", got)
				}
				return
			}
			got := exchange(t, conn, &historyv1.StreamRequest{Sequence: 5, Heartbeats: []*historyv1.Heartbeat{{}}})
			if got.GetError().GetCode() != historyv1.StreamErrorCode_STREAM_ERROR_CODE_INTERNAL {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWhatEndsAConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		protocol, body string
		typ            websocket.MessageType
		code           websocket.StatusCode
		reason         string
	}{
		"binary for text":    {inJSON, message("1", beat), websocket.MessageBinary, 1003, "playhead.v1.json is text"},
		"text for binary":    {inProto, "x", websocket.MessageText, 1003, "playhead.v1.proto is binary"},
		"no JSON":            {inJSON, "ping", websocket.MessageText, 1007, "malformed JSON at byte 0: want a value"},
		"nothing":            {inJSON, "", websocket.MessageText, 1007, "malformed JSON"},
		"invalid UTF-8":      {inJSON, `{"seq":1,"a":"` + "\xff" + `"}`, websocket.MessageText, 1007, "invalid UTF-8"},
		"no protobuf":        {inProto, "\xff", websocket.MessageBinary, 1007, "malformed protobuf"},
		"one byte too large": {inJSON, strings.Repeat(" ", codec.MaxBody+1), websocket.MessageText, 1009, "want at most 1048576 bytes"},
		"far too large":      {inJSON, message("1", strings.Repeat(" ", 10*codec.MaxBody)), websocket.MessageText, 1009, "want at most 1048576 bytes"},
		"as large as may be": {inJSON, strings.Repeat(" ", codec.MaxBody), websocket.MessageText, 1007, "malformed JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, ws.Config{}, func(t *testing.T, w *world) {
				conn := w.dial(t, "u1", tt.protocol)
				go func() { _ = conn.Write(t.Context(), tt.typ, []byte(tt.body)) }() // ends with the connection
				if got := closed(t, conn); got.Code != tt.code || !strings.Contains(got.Reason, tt.reason) {
					t.Errorf("got %v, want %d with %q", got, tt.code, tt.reason)
				}
				w.stop()
				<-w.stopped
				if n := w.count(t, "playhead_ws_closed_connections_total", fmt.Sprint(int(tt.code))); n != 1 {
					t.Errorf("counted %v", n)
				}
				if len(w.service.asked) > 0 {
					t.Errorf("asked %v", w.service.asked)
				}
			})
		})
	}
}

// TestTooLarge checks that an oversized message is refused by sequence number and the connection goes on.
func TestTooLarge(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		conn := w.dial(t, "u1", inJSON)
		large := message("6", strings.Repeat(beat+",", 20_000)+beat)
		for range 3 {
			if got := say(t, conn, large); !strings.Contains(got, `{"seq":6,"error":{"code":"too_large"`) || !strings.Contains(got, "1048576 bytes") {
				t.Errorf("got %s", got)
			}
		}
		if got := say(t, conn, message("7", strings.Repeat(beat+",", 999)+beat)); !strings.Contains(got, `{"seq":7,"results":[{"status":"stored"`) {
			t.Errorf("a thousand heartbeats: %.200s", got)
		}
		conn = w.dial(t, "u1", inProto)
		body, err := proto.Marshal(&historyv1.StreamRequest{Sequence: 8, Heartbeats: []*historyv1.Heartbeat{{Session: strings.Repeat("s", codec.MaxBody)}}})
		if err != nil {
			t.Fatal(err)
		}
		write(t, conn, websocket.MessageBinary, string(body))
		var resp historyv1.StreamResponse
		if err := proto.Unmarshal([]byte(read(t, conn)), &resp); err != nil || resp.Sequence != 8 || resp.Error.GetCode() != historyv1.StreamErrorCode_STREAM_ERROR_CODE_TOO_LARGE {
			t.Errorf("got %v, %v", &resp, err)
		}
	})
}

// TestTooLargeByItsNumber checks that the refusal uses a number near the start, and never part of one.
func TestTooLargeByItsNumber(t *testing.T) {
	const head, seq = `{"ack":"cached","sent_at":"2026-11-22T13:00:00.000Z","time_zone":"Europe/Berlin","seq":`, 123456789
	beats := strings.Repeat(beat+",", codec.MaxBody/len(beat)) + beat
	step := 1
	if testing.Short() {
		step = 3
	}
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		for spaces := 0; spaces < 256; spaces += max(step, 150-spaces) {
			conn := w.dial(t, fmt.Sprint("u", spaces), inJSON)
			write(t, conn, websocket.MessageText, fmt.Sprint(strings.Repeat(" ", spaces), head, seq, `,"heartbeats":[`, beats, `]}`))
			_, body, err := conn.Read(t.Context())
			answered := err == nil && strings.HasPrefix(string(body), fmt.Sprintf(`{"seq":%d,"error":{"code":"too_large"`, seq))
			if !answered && (spaces == 0 || websocket.CloseStatus(err) != websocket.StatusMessageTooBig) {
				t.Errorf("behind %d spaces: got %s, %v", spaces, body, err)
			}
		}
	})
}

// TestTooLargeIsNotKept checks that an oversized message is discarded as it arrives.
func TestTooLargeIsNotKept(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		var conns []*websocket.Conn
		for range 16 {
			conns = append(conns, w.dial(t, "u1", inJSON))
		}
		before, part := memory(), []byte(strings.Repeat(" ", codec.MaxBody/8))
		for _, conn := range conns {
			message, err := conn.Writer(t.Context(), websocket.MessageText)
			for n := 0; n < 9 && err == nil; n++ {
				_, err = message.Write(part)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if grown := memory() - before; grown > 4<<20 {
			t.Errorf("%d bytes are kept for 16 messages that are too large", grown)
		}
	})
}

// TestUnfinishedMessages checks that unfinished large messages cannot exhaust memory or block normal messages.
func TestUnfinishedMessages(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		part := []byte(strings.Repeat(" ", 200<<10))
		for k := range 300 {
			m, err := w.dial(t, fmt.Sprint("u", k/10), inJSON).Writer(t.Context(), websocket.MessageText)
			if err == nil {
				_, err = m.Write(part)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		conn := w.dial(t, "bob", inJSON)
		large := message("6", beat) + string(part)
		if got := say(t, conn, large); !strings.Contains(got, `{"seq":6,"error":{"code":"unavailable"`) || !strings.Contains(got, "retry_after_ms") {
			t.Errorf("a large one: %.200s", got)
		}
		if got := say(t, conn, message("7", beat)); !strings.Contains(got, "stored") {
			t.Errorf("a usual one: %s", got)
		}
	})
}

func TestPanic(t *testing.T) {
	bubble(t, ws.Config{}, func(t *testing.T, w *world) {
		w.service.answer = func(context.Context, *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) { panic("nil map") }
		conn := w.dial(t, "u1", inJSON)
		write(t, conn, websocket.MessageText, message("5", beat))
		if got := closed(t, conn); got.Code != websocket.StatusInternalError {
			t.Errorf("got %v", got)
		}
		w.service.answer = nil
		if got := say(t, w.dial(t, "u1", inJSON), message("5", beat)); !strings.Contains(got, "stored") {
			t.Errorf("the next connection: %s", got)
		}
		if !strings.Contains(w.log.String(), "nil map") {
			t.Errorf("log %q", w.log.String())
		}
	})
}
