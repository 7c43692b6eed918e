package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/internal/memnet"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// anyEdge is an edge that follows a script. Then it accepts everything except "poison", on which it closes with
// 1007, and "cursed", on which it always fails. It keeps the records of some films and matches guards like the service.
type anyEdge struct {
	door   *memnet.Listener
	player *player

	mu         sync.Mutex
	fates      []fate
	handshakes []int
	open       time.Time     // WebSockets get through from then on.
	there      time.Time     // requests get through from then on.
	barrier    int           // status before that.
	silent     bool          // does not tell the time.
	rough      time.Duration // spread of readings of the player's clock.
	telling    time.Duration // delay of changes on a new connection.
	again      time.Duration // interval between resyncs.
	watchers   int
	busy       []*messagev1.Heartbeat       // about to be answered.
	statuses   map[int64][]messagev1.Status // by position, like the next two.
	blamed     map[int64]bool               // refused alone in a message.
	times      map[int64][]time.Time        // event times as corrected by the service.
	records    map[string]*filed            // by object.
	snapshots  map[uint64]snapshot          // by etag.
	gone       map[string]time.Time         // time of reporting no record.
	removed    map[string]time.Time         // time of removal.
	etags      uint64
}

// filed is a record and its arrival time.
type filed struct {
	*messagev1.Item
	came time.Time
}

// snapshot is the last time a record was in a response, and the device's sleeps when the message arrived.
type snapshot struct {
	at     time.Time
	sleeps int
}

func newAnyEdge(p *player, s script) *anyEdge {
	return &anyEdge{
		door: memnet.Listen(), player: p, fates: s.fates, handshakes: s.handshakes, open: time.Now().Add(s.blocked), there: time.Now().Add(s.absent), barrier: s.barrier, telling: s.telling, again: s.again,
		statuses: make(map[int64][]messagev1.Status), blamed: make(map[int64]bool), times: make(map[int64][]time.Time),
		records: make(map[string]*filed), snapshots: make(map[uint64]snapshot), gone: make(map[string]time.Time), removed: make(map[string]time.Time),
		silent: s.silent, rough: s.rough,
	}
}

func (e *anyEdge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case time.Now().Before(e.there):
		http.Error(w, "nobody is there", e.barrier)
		return
	case r.Method == http.MethodPost:
		e.post(w, r)
		return
	}
	switch status := e.handshake(); status {
	case 101:
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"playhead.v1.proto"}})
		if err == nil {
			e.serve(conn, r.URL.Query().Get("push") == "true")
		}
	case 0:
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(status)
	}
}

func (e *anyEdge) handshake() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Now().Before(e.open) {
		return e.barrier
	}
	if len(e.handshakes) == 0 {
		return 101
	}
	status := e.handshakes[0]
	e.handshakes = e.handshakes[1:]
	return status
}

func (e *anyEdge) watched() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watchers > 0
}

func (e *anyEdge) watch(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watchers += n
}

// tellLater sends a resync after a delay; the player receives changes from then on. stop ends that.
func (e *anyEdge) tellLater(conn *websocket.Conn) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if pass(ctx, e.telling) && e.resync(conn) == nil {
			e.watch(1)
			defer e.watch(-1)
			for pass(ctx, e.again) && e.resync(conn) == nil {
			}
			<-ctx.Done()
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func pass(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// resync tells the player that it may have missed changes.
func (e *anyEdge) resync(conn *websocket.Conn) error {
	text, err := proto.Marshal(&messagev1.StreamResponse{Push: &messagev1.Change{Resync: true}})
	if err != nil {
		return err
	}
	e.player.loseSight()
	return conn.Write(context.Background(), websocket.MessageBinary, text)
}

// serve processes a connection's messages until it ends.
func (e *anyEdge) serve(conn *websocket.Conn, push bool) {
	conn.SetReadLimit(128 << 10)
	stop := func() {}
	if push {
		stop = e.tellLater(conn)
	}
	end := sync.OnceFunc(func() {
		stop()
		e.expect(nil)
		e.player.loseSight()
	})
	defer end()
	defer conn.CloseNow() //nolint:errcheck // it has ended
	for {
		_, text, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		var req messagev1.StreamRequest
		if err := proto.Unmarshal(text, &req); err != nil {
			e.player.fault("message: %v", err)
			return
		}
		if e.message(conn, &req, end) != nil {
			return
		}
	}
}

var errOver = errors.New("over")

// message handles a message by the script. It calls end shortly before the player notices the end of the connection.
func (e *anyEdge) message(conn *websocket.Conn, req *messagev1.StreamRequest, end func()) error {
	f := e.next(req)
	answer := e.answer(f, req)
	switch f.what {
	case "close", "take and close":
		end()
		_ = conn.Close(websocket.StatusCode(f.code), "for a reason")
		return errOver
	case "cut", "take and cut":
		return errOver
	case "silence":
		time.Sleep(20 * time.Second)
		return errOver
	case "other":
		answer.Sequence += 7
	}
	text, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	switch f.what {
	case "garbage":
		text = []byte{0xff}
	case "half":
		text = text[:len(text)/2]
	}
	e.expect(nil)
	return conn.Write(context.Background(), websocket.MessageBinary, text)
}

// answer returns the edge's response to a message, if any.
func (e *anyEdge) answer(f fate, req *messagev1.StreamRequest) *messagev1.StreamResponse {
	answer := &messagev1.StreamResponse{Sequence: req.Sequence, Result: &messagev1.ApplyResponse{}}
	switch f.what {
	case "stalled":
		time.Sleep(9 * time.Second)
		answer.Result = e.take(req, false)
	case "take", "late", "take and cut", "take and close", "unavailable", "half", "few", "other":
		answer.Result = e.take(req, f.what == "unavailable")
	case "error", "busy":
		e.blame(req, f.code <= 2)
		answer.Result, answer.Error = nil, &messagev1.StreamError{Code: messagev1.StreamErrorCode(f.code)}
		if f.what == "busy" {
			answer.Error.RetryAfterMs = 3000
		}
	}
	switch f.what {
	case "close", "take and close":
		e.blame(req, f.code == 1007 || f.code == 1009)
	case "late":
		e.expect(req.Heartbeats)
		time.Sleep(back)
	case "few":
		answer.Result.Statuses = answer.Result.Statuses[1:]
	}
	return answer
}

func (e *anyEdge) expect(beats []*messagev1.Heartbeat) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = beats
}

func (e *anyEdge) busyWith(r *reported) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.busy, func(h *messagev1.Heartbeat) bool { return h.PositionMs == r.PositionMs })
}

// post answers an HTTP request.
func (e *anyEdge) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	batch, err := codec.DecodeBatch("u1", body)
	if err != nil {
		e.player.fault("request: %v", err)
		return
	}
	req := &messagev1.StreamRequest{Heartbeats: batch.Heartbeats, ReturnRecords: batch.Records}
	for _, h := range batch.Heartbeats {
		req.SentAtMs = h.SentAtMs
	}
	f := e.next(req)
	if len(req.Heartbeats) == 0 { // a probe
		f = fate{what: "take"}
	}
	answer := e.answer(f, req)
	switch f.what {
	case "cut", "take and cut", "other":
		panic(http.ErrAbortHandler)
	case "silence":
		time.Sleep(20 * time.Second)
		panic(http.ErrAbortHandler)
	case "close", "take and close":
		w.WriteHeader(map[bool]int{true: http.StatusRequestEntityTooLarge, false: http.StatusBadGateway}[f.code == 1007 && f.what == "close"])
		_, _ = io.WriteString(w, `{"detail":"no"}`)
		return
	}
	e.expect(nil)
	if answer.Error != nil {
		status := []int{0, 422, 413, 429, 503, 504, 500}[answer.Error.Code]
		if f.what == "busy" {
			w.Header().Set("Retry-After", "3")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"detail":"no"}`)
		return
	}
	results, err := batch.Results(answer.Result)
	if err != nil {
		results = nil // too few statuses
	}
	text, _ := json.Marshal(map[string]any{"results": results, "now_ms": answer.Result.NowMs}) // never fails
	switch f.what {
	case "garbage":
		text = []byte{0xff}
	case "half":
		text = text[:len(text)/2]
	}
	_, _ = w.Write(text) // an error surfaces in the player
}

// next returns the fate of a message: a forced one, or the script's next.
func (e *anyEdge) next(req *messagev1.StreamRequest) fate {
	e.player.sent(req)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range req.Heartbeats {
		if strings.HasPrefix(h.ObjectId, "poison") {
			return fate{"close", 1007}
		}
		if strings.HasPrefix(h.ObjectId, "cursed") {
			return fate{"close", 1011}
		}
	}
	if len(e.fates) == 0 || len(req.Heartbeats) == 0 {
		return fate{what: "take"}
	}
	f := e.fates[0]
	e.fates = e.fates[1:]
	return f
}

// sent checks that a message has no report with a known outcome.
func (p *player) sent(req *messagev1.StreamRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range req.Heartbeats {
		if r := p.reports[h.PositionMs]; len(r.told) > 0 {
			p.wrong = append(p.wrong, r.ObjectId+": sent after it was told")
		}
	}
}

// take stores a message, but only every second heartbeat if the store is unavailable.
func (e *anyEdge) take(req *messagev1.StreamRequest, unavailable bool) *messagev1.ApplyResponse {
	e.player.mu.Lock()
	defer e.player.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	resp := &messagev1.ApplyResponse{NowMs: e.now()}
	granted := make(map[string]maker)
	records := req.ReturnRecords
	for i, h := range req.Heartbeats {
		status := messagev1.Status_STATUS_UNAVAILABLE
		if !unavailable || i%2 == 0 {
			status = e.put(h, e.date(h, req.SentAtMs), granted)
			e.statuses[h.PositionMs] = append(e.statuses[h.PositionMs], status)
		}
		records = records || status == messagev1.Status_STATUS_CONFLICT
		resp.Statuses = append(resp.Statuses, status)
	}
	for i, h := range req.Heartbeats {
		if r := e.records[h.ObjectId]; !records {
			break
		} else if r != nil {
			resp.Records = append(resp.Records, r.Item)
			e.snapshots[r.Etag] = snapshot{time.Now(), int(e.player.sleeps.Load())}
		} else {
			resp.Records = append(resp.Records, &messagev1.Item{})
			if resp.Statuses[i] == messagev1.Status_STATUS_CONFLICT {
				e.gone[h.ObjectId] = time.Now()
			}
		}
	}
	return resp
}

// now returns the service's time, or 0 if silent.
func (e *anyEdge) now() int64 {
	if e.silent {
		return 0
	}
	return time.Now().UnixMilli()
}

// put stores the player's heartbeat, which happened at the given time. Only films have records.
func (e *anyEdge) put(h *messagev1.Heartbeat, at time.Time, granted map[string]maker) messagev1.Status {
	r, by := e.records[h.ObjectId], maker{h.Session, h.Device}
	switch {
	case !strings.HasPrefix(h.ObjectId, "film"):
		return messagev1.Status_STATUS_STORED
	case r != nil && r.PositionMs == h.PositionMs && by == (maker{r.Session, r.Device}):
		granted[h.ObjectId] = by
		return messagev1.Status_STATUS_UNCHANGED
	case r != nil && at.UnixMilli() <= r.EventTimeMs, at.UnixMilli() <= e.removed[h.ObjectId].UnixMilli():
		e.overtaken(r, h)
		return messagev1.Status_STATUS_STALE
	case h.IfMatch != 0 && granted[h.ObjectId] != by && (r == nil || r.Etag != h.IfMatch):
		return messagev1.Status_STATUS_CONFLICT
	case h.IfMatch != 0:
		granted[h.ObjectId] = by
	}
	e.guarded(r, h)
	e.file(h, at)
	return messagev1.Status_STATUS_STORED
}

// guarded checks that a report overwrites only what its device could know.
func (e *anyEdge) guarded(r *filed, h *messagev1.Heartbeat) {
	p := e.player
	report := p.reports[h.PositionMs]
	if r == nil || r.Device == h.Device || report.blind.IsZero() || len(p.reports) > 200 {
		return
	}
	if r.came.After(report.blind) && r.came.After(e.gone[h.ObjectId]) && r.came.Before(report.made) {
		p.wrong = append(p.wrong, fmt.Sprintf("%v: overwrites %v", report.Heartbeat, r.Item))
	}
}

func (e *anyEdge) file(h *messagev1.Heartbeat, at time.Time) {
	e.etags++
	e.records[h.ObjectId] = &filed{&messagev1.Item{
		Object: &messagev1.Object{Id: h.ObjectId, Type: 1}, EventTimeMs: at.UnixMilli(), PositionMs: h.PositionMs, Session: h.Session, Device: h.Device,
		Etag: e.etags,
	}, time.Now()}
}

func (e *anyEdge) other(object string, remove bool, session string) {
	time.Sleep(2 * time.Millisecond)
	defer time.Sleep(2 * time.Millisecond)
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.records, object)
	if remove {
		e.removed[object] = time.Now()
	} else {
		e.file(&messagev1.Heartbeat{ObjectId: object, Session: session, Device: "tv", PositionMs: -1}, time.Now())
	}
}

func (e *anyEdge) read(object string) *messagev1.Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.records[object]; r != nil {
		return r.Item
	}
	return nil
}

// answered returns the last time a record was in a response, and the device's sleeps by then.
func (e *anyEdge) answered(record *messagev1.Item) (time.Time, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.snapshots[record.Etag]
	return s.at, s.sleeps
}

// said reports whether the edge gave a report this status.
func (e *anyEdge) said(r *reported, status messagev1.Status) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.statuses[r.PositionMs], status)
}

// date returns an event's time by the service's rule.
func (e *anyEdge) date(h *messagev1.Heartbeat, sentAt int64) time.Time {
	at, skew := time.UnixMilli(h.EventTimeMs), time.Since(time.UnixMilli(sentAt))
	if sentAt != 0 && (skew < 0 || skew > 2*time.Minute) {
		at = at.Add(skew)
	}
	e.times[h.PositionMs] = append(e.times[h.PositionMs], at)
	return at
}

// late returns a report's error in time, if too large. If the edge tells its time, a report is early by at most
// the way back of its fastest answer. Otherwise it is late by its transit time, or early by a slow clock. No
// time passes for the edge during an hour of sleep.
func (e *anyEdge) late(r *reported) string {
	least, most := -back-2*e.rough-time.Millisecond, time.Millisecond
	switch {
	case e.silent:
		least, most = -140*time.Second, 20*time.Second
	case e.player.sleeps.Load() > 1: // a report that is twice an hour early is moved behind earlier ones
		least = -time.Hour
	}
	for _, when := range e.times[r.PositionMs] {
		off := when.Sub(r.made)
		if off -= off.Round(time.Hour); off > most || off < least {
			return "happened " + off.String() + " from when it did"
		}
	}
	return ""
}

// back is the transit time of a late answer.
const back = 3 * time.Second

// overtaken checks that neither an earlier report of the device nor an earlier removal made a report stale.
func (e *anyEdge) overtaken(r *filed, h *messagev1.Heartbeat) {
	p := e.player
	report := p.reports[h.PositionMs]
	switch {
	case e.silent || p.sleeps.Load() > 0: // no time passes for the edge during sleep
	case r != nil && r.Device == h.Device && p.reports[r.PositionMs].made.Before(report.made):
		p.wrong = append(p.wrong, fmt.Sprintf("%v: stale because of %v", report.Heartbeat, r.Item))
	case r == nil && report.made.Sub(e.removed[h.ObjectId]) > back+2*e.rough+time.Millisecond:
		p.wrong = append(p.wrong, fmt.Sprintf("%v: stale because of a removal at %v", report.Heartbeat, e.removed[h.ObjectId]))
	}
}

func (e *anyEdge) blame(req *messagev1.StreamRequest, refused bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if refused && len(req.Heartbeats) == 1 {
		e.blamed[req.Heartbeats[0].PositionMs] = true
	}
}
