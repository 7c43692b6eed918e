package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// BenchmarkJSON tells what bff/scan is worth: in turns it sends messages over WebSockets to
// the edge, decodes as many with package codec, and decodes them with jsontext. The service
// behind the edge does nothing, and the players are sockets that write bytes and read bytes,
// so that the edge's own work weighs as much as it can. The path
// with jsontext would be the path as it is and the difference of the two readers.
func BenchmarkJSON(b *testing.B) {
	for _, beats := range []int{1, 20} {
		b.Run(fmt.Sprintf("heartbeats=%d", beats), func(b *testing.B) {
			body, players := message(beats), connectPlayers(b, 100, message(beats))
			var path, own, other []float64
			for b.Loop() {
				path = append(path, cpuPerMessage(func() { players.exchange(b) }))
				own = append(own, cpuPerMessage(func() { decode(b, body, codec.DecodeMessage) }))
				other = append(other, cpuPerMessage(func() { decode(b, body, decodeWithJSONText) }))
			}
			p, s, j := middle(path), middle(own), middle(other)
			b.ReportMetric(p, "path-cpu-us")
			b.ReportMetric(s, "scan-cpu-us")
			b.ReportMetric(j, "jsontext-cpu-us")
			b.ReportMetric(100*(j-s)/(p-s+j), "%-of-path-saved")
		})
	}
}

// messagesPerRound is how many messages each of the three ways gets in a round.
const messagesPerRound = 5000

func decode(b *testing.B, body []byte, with func(uid string, body []byte) (*codec.Batch, error)) {
	for range messagesPerRound {
		if _, err := with("u1", body); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuPerMessage returns the processor time of the whole process, in microseconds.
func cpuPerMessage(do func()) float64 {
	before := processTime()
	do()
	return float64((processTime() - before).Nanoseconds()) / 1e3 / messagesPerRound
}

func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// message is a message of heartbeats as a player sends them.
func message(n int) []byte {
	beats := make([]string, n)
	for i := range beats {
		beats[i] = fmt.Sprintf(`{"object":{"id":"%d","type":1},"kind":"progress","position_ms":%d,"duration_ms":5400000,`+
			`"event_time":"2026-03-01T20:15:%02d.250+01:00","session":"8f14e45f-ceea-467f-ab94-1e8b7d1c02aa",`+
			`"device":"tv-livingroom","meta":{"quality":"1080p","subtitles":"en"}}`, 1000+i, i*15000, i%60)
	}
	return []byte(`{"seq":7,"sent_at":"2026-03-01T20:16:00+01:00","first_flag":"2026-03-01","heartbeats":[` + strings.Join(beats, ",") + `]}`)
}

// TestJSONTextReadsTheSame holds the reader of the benchmark against the edge's own.
func TestJSONTextReadsTheSame(t *testing.T) {
	for _, n := range []int{1, 20} {
		want, err := codec.DecodeMessage("u1", message(n))
		got, err2 := decodeWithJSONText("u1", message(n))
		if err != nil || err2 != nil || got.Seq != want.Seq || !proto.Equal(got.Request(), want.Request()) {
			t.Errorf("%d heartbeats: got %v, %v, want %v, %v", n, got, err2, want, err)
		}
	}
}

// sockets are connections of players that exchange one message again and again.
type sockets struct {
	conns  []net.Conn
	frame  []byte
	answer int // bytes
}

func connectPlayers(b *testing.B, n int, body []byte) *sockets {
	b.Helper()
	secret := []byte(strings.Repeat("s", token.MinSecret))
	tokens, err := token.NewVerifier(secret, "")
	if err != nil {
		b.Fatal(err)
	}
	h, err := ws.New(ws.Config{Service: storing{}, Tokens: tokens, PerUser: n, Limit: limit.New(1e9, 1e9)})
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Upgrade(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	b.Cleanup(srv.CloseClientConnections)
	bearer, err := token.Mint(secret, "u1", time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	head := []byte{0x81, 0x80 | 126, byte(len(body) >> 8), byte(len(body)), 0, 0, 0, 0} // a text, masked with zeros
	s := &sockets{frame: append(head, body...)}
	for range n {
		s.conns = append(s.conns, s.connect(b, srv.Listener.Addr().String(), bearer))
	}
	return s
}

// connect shakes hands and learns how long an answer is.
func (s *sockets) connect(b *testing.B, addr, bearer string) net.Conn {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "GET /v1/stream HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: playhead.v1.json\r\nAuthorization: Bearer %s\r\n\r\n%s", bearer, s.frame)
	if err != nil {
		b.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		b.Fatalf("got %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	head, err := r.Peek(4)
	if err != nil {
		b.Fatal(err)
	}
	if s.answer = 2 + int(head[1]); head[1] == 126 {
		s.answer = 4 + int(head[2])<<8 + int(head[3])
	}
	if _, err := io.ReadFull(r, make([]byte, s.answer)); err != nil {
		b.Fatal(err)
	}
	return conn
}

// exchange sends messagesPerRound messages, one on each connection at a time.
func (s *sockets) exchange(b *testing.B) {
	answer := make([]byte, s.answer)
	for range messagesPerRound / len(s.conns) {
		for _, conn := range s.conns {
			if _, err := conn.Write(s.frame); err != nil {
				b.Fatal(err)
			}
		}
		for _, conn := range s.conns {
			if _, err := io.ReadFull(conn, answer); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// storing is a service that says of everything that it is stored.
type storing struct{}

func (storing) Apply(_ context.Context, req *historyv1.ApplyRequest) (*historyv1.ApplyResponse, error) {
	resp := &historyv1.ApplyResponse{Statuses: make([]historyv1.Status, len(req.Heartbeats))}
	for i := range resp.Statuses {
		resp.Statuses[i] = historyv1.Status_STATUS_STORED
	}
	return resp, nil
}

// decodeWithJSONText reads a message as [codec.DecodeMessage] would, if it read with jsontext:
// value by value without values of its own, decoders used again, and what many heartbeats
// share kept once.
func decodeWithJSONText(uid string, body []byte) (batch *codec.Batch, err error) {
	batch = &codec.Batch{Day: &historyv1.DayCheck{}}
	r := textReaders.Get().(*textReader)
	defer textReaders.Put(r)
	r.err, r.last = nil, nil
	r.body.Reset(body)
	r.Reset(&r.body)
	var sentAt int64
	r.object(func(name []byte) {
		switch string(name) {
		case "seq":
			batch.Seq = uint64(r.int())
		case "sent_at":
			sentAt, batch.Day.Zone = r.timeAndOffset()
		case "first_flag":
			t, err := time.Parse(time.DateOnly, string(r.text()))
			r.fail(err)
			batch.Day.Known = uint32(t.Year()*10_000 + int(t.Month())*100 + t.Day())
		case "heartbeats":
			r.array(func() {
				h := &historyv1.Heartbeat{Uid: uid}
				r.object(func(name []byte) { r.field(h, name) })
				batch.Heartbeats, r.last = append(batch.Heartbeats, h), h
			})
		default:
			r.fail(fmt.Errorf("unknown field %q", name))
		}
	})
	for _, h := range batch.Heartbeats {
		h.SentAtMs = sentAt
	}
	if _, err := r.ReadToken(); err != io.EOF { //nolint:errorlint // the decoder's own word for the end
		r.fail(fmt.Errorf("something behind the body: %w", err))
	}
	return batch, r.err
}

var textReaders = sync.Pool{New: func() any { return &textReader{Decoder: jsontext.NewDecoder(new(bytes.Reader))} }}

// textReader keeps the first error; from then on it reads nothing.
type textReader struct {
	*jsontext.Decoder
	body bytes.Reader
	buf  []byte // of the last text
	last *historyv1.Heartbeat
	err  error
}

func (r *textReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *textReader) field(h *historyv1.Heartbeat, name []byte) {
	switch string(name) {
	case "object":
		r.object(func(name []byte) {
			switch string(name) {
			case "id":
				h.ObjectId = string(r.text())
			case "type":
				h.ObjectType = uint32(r.int())
			default:
				r.fail(fmt.Errorf("unknown field %q", name))
			}
		})
	case "kind":
		h.Kind = kinds[string(r.text())]
	case "position_ms":
		h.PositionMs = r.int()
	case "duration_ms":
		h.DurationMs = r.int()
	case "event_time":
		h.EventTimeMs, _ = r.timeAndOffset()
	case "session":
		h.Session = r.shared(r.last.GetSession())
	case "device":
		h.Device = r.shared(r.last.GetDevice())
	case "meta":
		h.Meta = make(map[string]string)
		r.object(func(name []byte) {
			key := string(name)
			h.Meta[key] = string(r.text())
		})
	default:
		r.fail(fmt.Errorf("unknown field %q", name))
	}
}

var kinds = map[string]historyv1.Kind{
	"start": historyv1.Kind_KIND_START, "progress": historyv1.Kind_KIND_PROGRESS, "pause": historyv1.Kind_KIND_PAUSE,
	"seek": historyv1.Kind_KIND_SEEK, "stop": historyv1.Kind_KIND_STOP, "finish": historyv1.Kind_KIND_FINISH,
}

// object calls member for each name of the next value, which reads the value of it. The name
// is valid until then.
func (r *textReader) object(member func(name []byte)) {
	r.token('{')
	for r.err == nil && r.PeekKind() == '"' {
		member(r.text())
	}
	r.token('}')
}

func (r *textReader) array(element func()) {
	r.token('[')
	for r.err == nil && r.PeekKind() != ']' && r.PeekKind() != 0 {
		element()
	}
	r.token(']')
}

func (r *textReader) token(kind jsontext.Kind) {
	if r.err != nil {
		return
	}
	t, err := r.ReadToken()
	if err == nil && t.Kind() != kind {
		err = fmt.Errorf("got %v, want %v", t.Kind(), kind)
	}
	r.fail(err)
}

func (r *textReader) value(kind jsontext.Kind) jsontext.Value {
	if r.err != nil {
		return nil
	}
	v, err := r.ReadValue()
	if err == nil && v.Kind() != kind {
		err = fmt.Errorf("got %v, want %v", v.Kind(), kind)
	}
	r.fail(err)
	return v
}

// text returns a string that is valid until the next value is read.
func (r *textReader) text() []byte {
	v := r.value('"')
	switch {
	case r.err != nil:
		return nil
	case bytes.IndexByte(v, '\\') < 0:
		return v[1 : len(v)-1]
	}
	var err error
	r.buf, err = jsontext.AppendUnquote(r.buf[:0], v)
	r.fail(err)
	return r.buf
}

// shared returns the known text where it is the same one.
func (r *textReader) shared(known string) string {
	if text := r.text(); string(text) != known {
		return string(text)
	}
	return known
}

func (r *textReader) int() int64 {
	n, err := strconv.ParseInt(string(r.value('0')), 10, 64)
	r.fail(err)
	return n
}

func (r *textReader) timeAndOffset() (ms int64, offset string) {
	text := r.text()
	var t time.Time
	r.fail(t.UnmarshalText(text))
	if at := len(text) - len("+02:00"); at > 0 && (text[at] == '+' || text[at] == '-') {
		offset = string(text[at:])
	}
	return t.UnixMilli(), offset
}
