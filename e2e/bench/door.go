package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/playhead/playhead/history"
)

// doorSession is one player at an edge, who says everything in JSON: over a WebSocket, or
// with a request each time.
type doorSession struct {
	conn *Conn
	load *Load
	head []byte // of a request; a WebSocket has none
	body []byte
	text []byte
}

func openSocket(ctx context.Context, addr string, l *Load, uid string) (Session, error) {
	s, err := openDoor(ctx, addr, l)
	if err != nil {
		return nil, err
	}
	return s, s.conn.Upgrade(uid, "playhead.v1.json")
}

func openRequests(ctx context.Context, addr string, l *Load, uid string) (Session, error) {
	s, err := openDoor(ctx, addr, l)
	if err != nil {
		return nil, err
	}
	bearer, err := Bearer(uid)
	s.head = fmt.Appendf(nil, "POST /v1/heartbeats HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer %s\r\nContent-Length: ", bearer)
	return s, err
}

func openDoor(ctx context.Context, addr string, l *Load) (*doorSession, error) {
	c, err := Dial(ctx, addr)
	return &doorSession{conn: c, load: l}, err
}

// Send says heartbeats of the session's user in one message.
func (s *doorSession) Send(_ context.Context, beats []int32) error {
	s.body = append(s.body[:0], '{')
	if s.head == nil { // as a player who was here today
		s.body = append(s.body, `"seq":1,"first_flag":"`...)
		s.body = append(time.Now().UTC().AppendFormat(s.body, time.DateOnly), `",`...)
	}
	s.body = append(s.body, `"heartbeats":[`...)
	for i, b := range beats {
		if i > 0 {
			s.body = append(s.body, ',')
		}
		s.body = s.load.appendJSON(s.body, int(b))
	}
	s.body = append(s.body, "]}"...)
	if _, err := s.conn.Write(s.message()); err != nil {
		return err
	}
	answered := func(text []byte) error { return allStored(text, len(beats)) }
	if s.head == nil {
		return s.conn.ReadFrame(answered)
	}
	return s.conn.ReadResponse(answered)
}

// message puts what belongs before the body there.
func (s *doorSession) message() []byte {
	if s.head == nil {
		s.text = AppendFrame(s.text[:0], TextFrame, len(s.body))
	} else {
		s.text = append(strconv.AppendInt(append(s.text[:0], s.head...), int64(len(s.body)), 10), "\r\n\r\n"...)
	}
	s.text = append(s.text, s.body...)
	return s.text
}

var (
	status      = []byte(`"status":"`)
	unavailable = []byte("unavailable") // as code, as status of a heartbeat, or in words
)

// allStored fails when an answer does not say of each of n heartbeats that it is stored, or
// was before.
func allStored(text []byte, n int) error {
	if bytes.Contains(text, unavailable) {
		return fmt.Errorf("%w: %q", errUnavailable, text)
	}
	good := 0
	for rest := text; ; good++ {
		i := bytes.Index(rest, status)
		if i < 0 {
			break
		}
		rest = rest[i+len(status):]
		if !bytes.HasPrefix(rest, []byte("stored")) && !bytes.HasPrefix(rest, []byte("unchanged")) {
			return fmt.Errorf("answer %q", text)
		}
	}
	if good != n {
		return fmt.Errorf("%d of %d are stored: %q", good, n, text)
	}
	return nil
}

// kinds as players say them.
var kinds = map[history.Kind]string{
	history.KindStart: "start", history.KindProgress: "progress", history.KindStop: "stop",
}

// appendJSON appends heartbeat i as a player says it.
func (l *Load) appendJSON(b []byte, i int) []byte {
	e := l.plan.Event(i)
	b = append(append(b, `{"object":{"id":"`...), e.Key.Object.ID...)
	b = strconv.AppendUint(append(b, `","type":`...), uint64(e.Key.Object.Type), 10)
	b = append(append(b, `},"kind":"`...), kinds[e.Kind]...)
	b = strconv.AppendInt(append(b, `","position_ms":`...), e.Position, 10)
	b = strconv.AppendInt(append(b, `,"duration_ms":`...), e.Duration, 10)
	b = time.UnixMilli(e.At).UTC().AppendFormat(append(b, `,"event_time":"`...), "2006-01-02T15:04:05.000Z")
	b = append(append(b, `","session":"`...), e.Session...)
	b = append(append(b, `","device":"`...), e.Device...)
	b = append(append(b, `","meta":`...), l.metadata[e.Key.Object].text...)
	return append(b, '}')
}

// Close ends the connection.
func (s *doorSession) Close() error { return s.conn.Close() }

// doors are the addresses of a product.
type doors struct{ rpc, http string }

func open(ctx context.Context, at doors, l *Load, d Door, s Shape) (*work, error) { //nolint:revive // all that a way in is
	switch d {
	case WebSocket:
		return prepare(s, l.ByUser(), func(part []int32) (Session, error) { return openSocket(ctx, at.http, l, l.user(part[0])) })
	case HTTP:
		return prepare(s, l.ByUser(), func(part []int32) (Session, error) { return openRequests(ctx, at.http, l, l.user(part[0])) })
	}
	return streams(ctx, at.rpc, l, s)
}
