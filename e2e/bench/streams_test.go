//go:build e2e

package bench_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/e2e/bench"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (p *player) stay(b *testing.B, uid, protocol string) {
	b.Helper()
	if err := p.conn.Upgrade(uid, protocol); err != nil {
		b.Fatal(err)
	}
}

func overStream(b *testing.B, addr, uid string) *player {
	b.Helper()
	p := newPlayer(b, addr)
	p.stay(b, uid, "playhead.v1.json")
	begin := fmt.Sprintf(`{"seq":1,"first_flag":%q,`, time.Now().UTC().Format(time.DateOnly)) // like a player that was here today
	body := len(begin) + len(heartbeat)
	p.say(append(bench.AppendFrame(nil, bench.TextFrame, body), begin...))
	p.answer = readText
	return p
}

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
	p.text = append(bench.AppendFrame(nil, bench.BinaryFrame, len(body)), body...)
	position, at := varint(p.text, positions), varint(p.text, began)
	p.next = func(text []byte, beat int) { // keeps the length
		protowire.AppendVarint(text[:position], uint64(positions+beat))
		protowire.AppendVarint(text[:at], uint64(began+int64(beat)))
	}
	p.answer = readBinary
	return p
}

func varint(text []byte, n int64) int {
	return bytes.Index(text, protowire.AppendVarint(nil, uint64(n)))
}

func readText(p *player) error { return p.conn.ReadFrame(good) }

var storedOne = []byte{1<<3 | byte(protowire.BytesType), 1, byte(historyv1.Status_STATUS_STORED)} // statuses are packed

func readBinary(p *player) error {
	return p.conn.ReadFrame(func(text []byte) error {
		if !bytes.Contains(text, storedOne) {
			return fmt.Errorf("answer %q", text)
		}
		return nil
	})
}
