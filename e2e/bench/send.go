package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Session is one worker's way to a store. Send returns when the heartbeats with these
// numbers are acknowledged.
type Session interface {
	Send(ctx context.Context, beats []int32) error
	Close() error
}

// work sends a load through sessions, one for each worker.
type work struct {
	shape    Shape
	sessions []Session
	parts    [][]int32
	conn     *grpc.ClientConn // that the sessions share; nil is none
}

// prepare opens a session for each part of the heartbeats.
func prepare(s Shape, parts [][]int32, open func(part []int32) (Session, error)) (*work, error) {
	w := &work{shape: s, parts: parts}
	for _, part := range parts {
		session, err := open(part)
		if err != nil {
			w.close()
			return nil, err
		}
		w.sessions = append(w.sessions, session)
	}
	runtime.GC() // of what the preparation left
	return w, nil
}

func (w *work) close() {
	for _, s := range w.sessions {
		_ = s.Close() // what counts is acknowledged
	}
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// run sends everything. It returns how long that took, and, of heartbeats that come at a
// rate, how long each took from the moment when it came until it was acknowledged: a wait
// for a worker that a slow answer keeps busy counts.
func (w *work) run(ctx context.Context) (took time.Duration, latencies []time.Duration, err error) {
	began := time.Now()
	all := make([][]time.Duration, len(w.parts))
	g, ctx := errgroup.WithContext(ctx)
	for i, part := range w.parts {
		g.Go(func() (err error) {
			all[i], err = w.send(ctx, w.sessions[i], part, began)
			return err
		})
	}
	err = g.Wait()
	return time.Since(began), slices.Concat(all...), err
}

func (w *work) send(ctx context.Context, s Session, beats []int32, began time.Time) (latencies []time.Duration, err error) {
	if w.shape.Rate > 0 {
		latencies = make([]time.Duration, 0, len(beats))
	}
	for len(beats) > 0 {
		n := min(w.shape.Batch, len(beats))
		if w.shape.Rate > 0 {
			n = arrived(beats[:n], w.shape.Rate, began)
		}
		if err := sendAgain(ctx, s, beats[:n]); err != nil {
			return nil, err
		}
		if w.shape.Rate > 0 {
			latencies = appendLatencies(latencies, beats[:n], w.shape.Rate, time.Since(began))
		}
		beats = beats[n:]
	}
	return latencies, nil
}

// errUnavailable is what a session returns when the store asks to be sent the same later.
var errUnavailable = errors.New("unavailable")

// tries are how often the same is sent.
const tries = 20

// sendAgain sends a batch, and again after a pause where the store asks for it, as players
// do. All of that counts.
func sendAgain(ctx context.Context, s Session, beats []int32) (err error) {
	for range tries {
		if err = s.Send(ctx, beats); !errors.Is(err, errUnavailable) || !run.Sleep(ctx, time.Second) {
			return err
		}
	}
	return err
}

// due is when a heartbeat comes, after the beginning.
func due(beat int32, rate int) time.Duration {
	return time.Duration(beat) * time.Second / time.Duration(rate)
}

// arrived waits for the first heartbeat and returns how many have come.
func arrived(beats []int32, rate int, began time.Time) int {
	time.Sleep(time.Until(began.Add(due(beats[0], rate))))
	now, n := time.Since(began), 1
	for n < len(beats) && due(beats[n], rate) <= now {
		n++
	}
	return n
}

// warmUp is for how long the latencies of a load that comes at a rate do not count.
const warmUp = time.Second

func appendLatencies(all []time.Duration, beats []int32, rate int, now time.Duration) []time.Duration {
	for _, b := range beats {
		if at := due(b, rate); at >= warmUp {
			all = append(all, now-at)
		}
	}
	return all
}

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

// rpcSession is a stream of history-service. Its messages are used again: gRPC has
// encoded them when Send returns.
type rpcSession struct {
	stream grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]
	cancel context.CancelFunc
	load   *Load
	req    historyv1.ApplyStreamRequest
	beats  []historyv1.Heartbeat
	all    []*historyv1.Heartbeat
}

// streams opens a stream for each worker, all over one connection.
func streams(ctx context.Context, addr string, l *Load, s Shape) (*work, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	w, err := prepare(s, l.Share(s.Workers), func([]int32) (Session, error) { return openStream(ctx, conn, l, s.Batch) })
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w.conn = conn
	return w, nil
}

func openStream(ctx context.Context, conn grpc.ClientConnInterface, l *Load, batch int) (Session, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := historyv1.NewHistoryServiceClient(conn).ApplyStream(ctx, grpc.ForceCodecV2(wire.RequestCodec())) // as an edge does
	if err != nil {
		cancel()
		return nil, err
	}
	r := &rpcSession{stream: s, cancel: cancel, load: l, beats: make([]historyv1.Heartbeat, batch)}
	for i := range r.beats {
		r.all = append(r.all, &r.beats[i])
	}
	r.req.Batch = &historyv1.ApplyRequest{}
	return r, nil
}

// Send stores a batch. A heartbeat that is not stored, or was not before, is an error.
func (r *rpcSession) Send(_ context.Context, beats []int32) error {
	for i, b := range beats {
		r.load.fill(int(b), &r.beats[i])
	}
	r.req.Sequence++
	r.req.Batch.Heartbeats = r.all[:len(beats)]
	if err := r.stream.Send(&r.req); err != nil {
		_, err := r.stream.Recv() // which has the reason
		return err
	}
	resp, err := r.stream.Recv()
	if err != nil {
		return err
	}
	return stored(resp.GetResult(), len(beats))
}

func stored(r *historyv1.ApplyResponse, n int) error {
	if len(r.GetStatuses()) != n {
		return fmt.Errorf("%d statuses for %d heartbeats", len(r.GetStatuses()), n)
	}
	for i, s := range r.GetStatuses() {
		switch s {
		case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
		case historyv1.Status_STATUS_UNAVAILABLE:
			return fmt.Errorf("heartbeat %d is %w", i, errUnavailable)
		default:
			return fmt.Errorf("heartbeat %d is %v: %v", i, s, r.GetRefusals())
		}
	}
	return nil
}

// Close ends the stream.
func (r *rpcSession) Close() error {
	r.cancel()
	return nil
}
