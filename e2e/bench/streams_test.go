//go:build e2e

package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// stay makes a WebSocket of a player's connection.
func (p *player) stay(b *testing.B, uid, protocol string) {
	b.Helper()
	hello := "GET /v1/stream HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + protocol + "\r\nAuthorization: Bearer " + bearer(b, uid) + "\r\n\r\n"
	if _, err := io.WriteString(p.conn, hello); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(p.in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(resp, err)
	}
	_ = resp.Body.Close()
}

// overStream is a player who stays.
func overStream(b *testing.B, addr, uid string) *player {
	b.Helper()
	p := newPlayer(b, addr)
	p.stay(b, uid, "playhead.v1.json")
	begin := fmt.Sprintf(`{"seq":1,"first_flag":%q,`, time.Now().UTC().Format(time.DateOnly)) // as a player who was here today
	body := len(begin) + len(heartbeat)
	p.say(append([]byte{0x81, 0x80 | 126, byte(body >> 8), byte(body), 0, 0, 0, 0}, begin...)) // the mask is zeros
	p.answer = readText
	return p
}

// overBinary is a player who stays and speaks protobuf.
func overBinary(b *testing.B, addr, uid string) *player {
	b.Helper()
	p := newPlayer(b, addr)
	p.stay(b, uid, "playhead.v1.proto")
	began := time.Now().Add(-time.Hour).UnixMilli()
	body, err := proto.Marshal(&historyv1.StreamRequest{Sequence: 1, Heartbeats: []*historyv1.Heartbeat{{
		ObjectId: "1000000", ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: began, PositionMs: positions, Session: session,
	}}})
	if err != nil {
		b.Fatal(err)
	}
	p.text = append([]byte{0x82, 0x80 | byte(len(body)), 0, 0, 0, 0}, body...)
	position, at := varint(p.text, positions), varint(p.text, began)
	p.next = func(text []byte, beat int) { // as many bytes as before
		protowire.AppendVarint(text[:position], uint64(positions+beat))
		protowire.AppendVarint(text[:at], uint64(began+int64(beat)))
	}
	p.answer = readBinary
	return p
}

func varint(text []byte, n int64) int {
	return bytes.Index(text, protowire.AppendVarint(nil, uint64(n)))
}

func readText(p *player) error {
	return p.readFrame(func(text []byte) bool { return bytes.Contains(text, []byte(stored)) })
}

var storedOne = []byte{byte(historyv1.Status_STATUS_STORED)} // statuses are packed

func readBinary(p *player) error {
	return p.readFrame(func(text []byte) bool { return bytes.HasSuffix(text, storedOne) })
}

const ping, pong = 0x89, 0x8a

// readFrame takes an answer of less than 126 bytes, and answers pings before it.
func (p *player) readFrame(good func([]byte) bool) error {
	head, err := p.in.Peek(2)
	if err != nil {
		return err
	}
	if head[1] >= 126 {
		return errors.New("a long answer")
	}
	text, err := p.in.Peek(2 + int(head[1]))
	if err != nil {
		return err
	}
	if text[0] == ping {
		if _, err := p.conn.Write(append([]byte{pong, 0x80 | text[1], 0, 0, 0, 0}, text[2:]...)); err != nil {
			return err
		}
		_, _ = p.in.Discard(len(text)) // it is there
		return p.readFrame(good)
	}
	if !good(text[2:]) {
		return fmt.Errorf("answer %q", text)
	}
	_, err = p.in.Discard(len(text))
	return err
}
