//go:build e2e

package bench_test

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/bench"
)

// player reports one heartbeat at a time over a persistent connection, each a millisecond later. It costs the
// machine next to nothing.
type player struct {
	conn   *bench.Conn
	text   []byte // a message; next changes it in place
	next   func(text []byte, beat int)
	beat   int
	answer func(*player) error
}

const (
	positions = 10_000_000 // all positions have eight digits
	timeForm  = "2006-01-02T15:04:05.000Z"
	session   = "5f2b7c1e-9d0a-4f6b-8e3c-1a2b3c4d5e6f"
)

const stored = `"results":[{"status":"stored"`

// heartbeat is the end of an upload's body.
var heartbeat = fmt.Sprintf(`"heartbeats":[{"object":{"id":"1000000","type":1},"kind":"progress","position_ms":%d,"event_time":"%s","session":"%s"}]}`,
	positions, timeForm, session)

func newPlayer(b *testing.B, addr string) *player {
	b.Helper()
	conn, err := bench.Dial(b.Context(), addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return &player{conn: conn}
}

// report sends the next heartbeat and waits until it is stored.
func (p *player) report() error {
	p.beat++
	p.next(p.text, p.beat)
	if _, err := p.conn.Write(p.text); err != nil {
		return err
	}
	return p.answer(p)
}

// say sets the player's JSON message after a prefix.
func (p *player) say(before []byte) {
	p.text = append(before, heartbeat...)
	position, at := bytes.Index(p.text, strconv.AppendInt(nil, positions, 10)), bytes.Index(p.text, []byte(timeForm))
	began, scratch := time.Now().Add(-time.Hour).UTC(), make([]byte, 0, 64)
	p.next = func(text []byte, beat int) {
		strconv.AppendInt(text[:position], int64(positions+beat), 10)
		copy(text[at:], began.Add(time.Duration(beat)*time.Millisecond).AppendFormat(scratch, timeForm))
	}
}

// overRequests returns a player that sends one request per heartbeat.
func overRequests(b *testing.B, addr, uid string) *player {
	b.Helper()
	p := newPlayer(b, addr)
	p.say(fmt.Appendf(nil, "POST /v1/heartbeats HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{",
		bearer(b, uid), 1+len(heartbeat)))
	p.answer = readResponse
	return p
}

func readResponse(p *player) error { return p.conn.ReadResponse(good) }

func good(text []byte) error {
	if !bytes.Contains(text, []byte(stored)) {
		return fmt.Errorf("answer %q", text)
	}
	return nil
}

func bearer(b *testing.B, uid string) string {
	b.Helper()
	text, err := bench.Bearer(uid)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

// crowd returns concurrent players, each of another user.
func crowd(b *testing.B, join func(b *testing.B, addr, uid string) *player, addr, name string) []*player {
	b.Helper()
	all := make([]*player, players)
	for i := range all {
		all[i] = join(b, addr, name+strconv.Itoa(i))
	}
	return all
}

func each(b *testing.B, all []*player, do func(i int, p *player) error) {
	b.Helper()
	var g errgroup.Group
	for i, p := range all {
		g.Go(func() error { return do(i, p) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}
