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

// Session is one worker's connection to a store. Send returns when the heartbeats with these numbers are
// acknowledged.
type Session interface {
	Send(ctx context.Context, beats []int32) error
	Close() error
}

// work sends a load through sessions, one for each worker.
type work struct {
	shape    Shape
	sessions []Session
	parts    [][]int32
	conn     *grpc.ClientConn // shared by the sessions; may be nil
}

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
	runtime.GC() // leftovers of the preparation
	return w, nil
}

func (w *work) close() {
	for _, s := range w.sessions {
		_ = s.Close() // everything that counts is acknowledged
	}
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// run sends everything and returns the time it took. With a rate, it also returns each heartbeat's latency from
// its arrival to its acknowledgement, including the wait for a busy worker.
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

var errUnavailable = errors.New("unavailable")

const tries = 20

// sendAgain sends a batch, and retries it after a pause if the store asks for that, like players. All attempts
// count.
func sendAgain(ctx context.Context, s Session, beats []int32) (err error) {
	for range tries {
		if err = s.Send(ctx, beats); !errors.Is(err, errUnavailable) || !run.Sleep(ctx, time.Second) {
			return err
		}
	}
	return err
}

// due returns a heartbeat's time of arrival since the beginning.
func due(beat int32, rate int) time.Duration {
	return time.Duration(beat) * time.Second / time.Duration(rate)
}

// arrived waits for the first heartbeat and returns the number of arrived ones.
func arrived(beats []int32, rate int, began time.Time) int {
	time.Sleep(time.Until(began.Add(due(beats[0], rate))))
	now, n := time.Since(began), 1
	for n < len(beats) && due(beats[n], rate) <= now {
		n++
	}
	return n
}

// warmUp is the initial time whose latencies do not count.
const warmUp = time.Second

func appendLatencies(all []time.Duration, beats []int32, rate int, now time.Duration) []time.Duration {
	for _, b := range beats {
		if at := due(b, rate); at >= warmUp {
			all = append(all, now-at)
		}
	}
	return all
}

// doorSession is one player at an edge that speaks JSON: over a WebSocket, or one request per message.
type doorSession struct {
	conn *Conn
	load *Load
	head []byte // of a request; nil for a WebSocket
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

// Send sends heartbeats of the session's user in one message.
func (s *doorSession) Send(_ context.Context, beats []int32) error {
	s.body = append(s.body[:0], '{')
	if s.head == nil { // like a player that was here today
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

// message prepends the frame or request head to the body.
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
	unavailable = []byte("unavailable") // as code, as a heartbeat's status, or in text
)

// allStored fails unless the answer reports each of n heartbeats as stored, or already stored.
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

var kinds = map[history.Kind]string{
	history.KindStart: "start", history.KindProgress: "progress", history.KindStop: "stop",
}

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

// rpcSession is a stream of history-service. It reuses its messages: gRPC has encoded them by the time Send
// returns.
type rpcSession struct {
	stream grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]
	cancel context.CancelFunc
	load   *Load
	req    historyv1.ApplyStreamRequest
	beats  []historyv1.Heartbeat
	all    []*historyv1.Heartbeat
}

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
	s, err := historyv1.NewHistoryServiceClient(conn).ApplyStream(ctx, grpc.ForceCodecV2(wire.RequestCodec())) // like an edge
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

// Send stores a batch. A heartbeat that is neither stored nor already stored is an error.
func (r *rpcSession) Send(_ context.Context, beats []int32) error {
	for i, b := range beats {
		r.load.fill(int(b), &r.beats[i])
	}
	r.req.Sequence++
	r.req.Batch.Heartbeats = r.all[:len(beats)]
	if err := r.stream.Send(&r.req); err != nil {
		_, err := r.stream.Recv() // has the reason
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
