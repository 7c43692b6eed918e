package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Sizes of the load. It stays small: the cases look for errors, not for the limit.
const (
	workers    = 4
	batchSize  = 25
	users      = 20     // per worker
	perUser    = 6      // objects
	length     = 600000 // of an object, milliseconds
	sessions   = 5
	loadPeriod = 25 * time.Millisecond // between two batches of a worker
	// lag is the age of the newest event, in milliseconds. Services adjust events later than their clock, which
	// follows the cache's.
	lag = 800
)

// load is viewers who watch, rewind, stop, delete and clear until it is stopped.
type load struct {
	book *book
	rpcs []rpcClient // used in turns: no user sticks to one
	edge target      // nil for none; otherwise one worker uses it, or everyone
	name string
	seed uint64
	// epoch is part of the uids. A new epoch abandons the earlier users: their last events are the critical ones.
	epoch atomic.Int64
	// gentle omits deletes, clears and ends of viewings.
	gentle bool
	// everyone uses the edge.
	everyone bool
	// buckets are the buckets of all users; nil for any.
	buckets []history.Bucket
	// blind turns off the concurrent readers, which count answers with less than was acknowledged. Cases that
	// lose the cache itself read only at the end.
	blind bool
	pages bool // read pages only
	res   *Result

	stopped chan struct{}
	wg      sync.WaitGroup
	mu      sync.Mutex
	err     error
}

func (l *load) begin(ctx context.Context) {
	l.stopped = make(chan struct{})
	for i := range workers {
		w := &worker{load: l, id: i, uids: make(map[string]string), rand: rand.New(rand.NewPCG(l.seed, uint64(i)))} //nolint:gosec // repeatable
		if i == 0 || l.everyone {
			w.edge = l.edge
		}
		l.wg.Go(func() { l.fail(w.run(ctx)) })
	}
	for i := range readers {
		r := rand.New(rand.NewPCG(l.seed, uint64(workers+i))) //nolint:gosec // repeatable
		if !l.blind {
			l.wg.Go(func() { l.read(ctx, r) })
		}
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
}

// end stops the load and waits for pending requests.
func (l *load) end() error {
	close(l.stopped)
	l.wg.Wait()
	return l.err
}

type worker struct {
	load  *load
	uids  map[string]string
	id    int
	rand  *rand.Rand
	edge  target // nil for the services' own rpcs
	turn  int
	again []*event // unacknowledged, to be retried
}

// run returns an error only if the product refused a valid request.
func (w *worker) run(ctx context.Context) error {
	t := time.NewTicker(loadPeriod)
	defer t.Stop()
	for {
		if err := w.step(ctx); errors.Is(err, errRefused) {
			return err
		}
		select {
		case <-t.C:
		case <-w.load.stopped:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *worker) step(ctx context.Context) error {
	w.turn++
	switch n := w.rand.IntN(200); {
	case n == 0 && !w.load.gentle:
		return w.load.book.clear(ctx, w.service(), w.uid(), uint32(w.rand.IntN(4)), w.past(10)) //nolint:gosec // small
	case n < 12 && !w.load.gentle:
		return w.load.book.remove(ctx, w.service(), []history.Key{w.key(w.uid())}, w.past(20))
	}
	return w.heartbeats(ctx)
}

// heartbeats sends a batch with the unacknowledged events of the last one. One time in five it drops those, like
// a client that never returns.
func (w *worker) heartbeats(ctx context.Context) (err error) {
	batch := w.again
	if w.rand.IntN(5) == 0 {
		batch = nil
	}
	uid := w.uid()
	if len(batch) > 0 {
		uid = batch[0].Key.UID
	}
	for len(batch) < batchSize {
		batch = append(batch, w.load.book.next(w.rand, w.key(uid), w.past(10), w.load.gentle))
		if w.edge == nil { // a request of the edge has one user
			uid = w.uid()
		}
	}
	w.again, err = w.load.book.send(ctx, w.target(), batch)
	return err
}

func (w *worker) target() target {
	if w.edge != nil {
		return w.edge
	}
	return w.service()
}

func (w *worker) service() rpcClient { return w.load.rpcs[w.turn%len(w.load.rpcs)] }

func (w *worker) uid() string {
	name := fmt.Sprintf("%s-%d-%d-%d", w.load.name, w.load.epoch.Load(), w.id, w.rand.IntN(users))
	if len(w.load.buckets) == 0 {
		return name
	}
	if w.uids[name] == "" {
		w.uids[name] = inBuckets(name, w.load.buckets)
	}
	return w.uids[name]
}

// inBuckets appends a suffix to a name that places the user in one of the buckets.
func inBuckets(name string, buckets []history.Bucket) string {
	for n := 0; ; n++ {
		if uid := fmt.Sprintf("%s.%d", name, n); slices.Contains(buckets, history.BucketOf(uid)) {
			return uid
		}
	}
}

func (w *worker) key(uid string) history.Key {
	return history.Key{UID: uid, Object: objectOf(w.rand.IntN(perUser))}
}

// past returns the present minus the lag, and one time in oneIn a moment up to five seconds earlier.
func (w *worker) past(oneIn int) int64 {
	now := time.Now().UnixMilli() - lag
	if w.rand.IntN(oneIn) == 0 {
		return now - w.rand.Int64N(5000)
	}
	return now
}

// next invents and notes a viewer's next report.
func (b *book) next(r *rand.Rand, k history.Key, at int64, gentle bool) *event {
	b.mu.Lock()
	s := b.story(k)
	s.position += r.Int64N(60_000)
	if s.position > length || r.IntN(40) == 0 {
		s.position, s.session = r.Int64N(10_000), (s.session+1)%sessions
		s.started = []int64{0, at, at - 60_000}[r.IntN(3)]
	}
	e := history.Event{
		Key: k, Kind: history.KindProgress, At: at, Position: s.position, Duration: length,
		Session: fmt.Sprintf("s%d", s.session), Device: fmt.Sprintf("tv %d", s.session),
	}
	if played := at - s.started; s.started > 0 && played > 0 {
		e.StartedAt, e.Watched = s.started, r.Int64N(played)
	}
	if r.IntN(8) == 0 {
		e.Meta = history.NewMeta(map[string]string{"title": fmt.Sprintf("t%d", r.IntN(1000))})
	}
	b.mu.Unlock()
	if kinds := []history.Kind{history.KindStop, history.KindPause, history.KindSeek, history.KindFinish}; !gentle && r.IntN(10) == 0 {
		e.Kind = kinds[r.IntN(len(kinds))]
	}
	return b.note(e)
}

const (
	readers = 4
	// readPeriod is the time between two reads of a reader, each of all objects of one user.
	readPeriod = 25 * time.Millisecond
)

// read reads the workers' users, points and pages in turns, at each service. Nothing acknowledged before a read
// may be missing from it.
func (l *load) read(ctx context.Context, r *rand.Rand) {
	t := time.NewTicker(readPeriod)
	defer t.Stop()
	for n := 0; ; n++ {
		if uid, objects := l.book.someone(r); uid != "" {
			l.readOne(ctx, l.rpcs[n%len(l.rpcs)], uid, objects, n/len(l.rpcs)%2 == 0 && !l.pages)
		}
		select {
		case <-t.C:
		case <-l.stopped:
			return
		case <-ctx.Done():
			return
		}
	}
}

// readOne reads and judges. A failed read shows nothing wrong.
func (l *load) readOne(ctx context.Context, d rpcClient, uid string, objects []history.Object, points bool) { //nolint:revive // one read, spelled out
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	since := l.book.count()
	shown, where := make(map[history.Object]*historyv1.Item), "page meanwhile"
	if points {
		where = "point meanwhile"
		resp, err := d.Points(ctx, pointsOf(uid, objects))
		if err != nil {
			return
		}
		for i, it := range resp.GetItems() {
			shown[objects[i]] = it
		}
	} else {
		resp, err := d.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: 100})
		if err != nil {
			return
		}
		for _, it := range resp.GetItems() {
			shown[history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}] = it
		}
	}
	for _, o := range objects {
		k := history.Key{UID: uid, Object: o}
		f := l.book.judgeRead(k, shown[o], since)
		l.mu.Lock()
		l.res.read(k, where, f)
		l.mu.Unlock()
	}
}

func pointsOf(uid string, objects []history.Object) *historyv1.PointsRequest {
	req := &historyv1.PointsRequest{Uid: uid}
	for _, o := range objects {
		req.Objects = append(req.Objects, &historyv1.Object{Id: o.ID, Type: o.Type})
	}
	return req
}

// someone returns a recently written user, with all objects.
func (b *book) someone(r *rand.Rand) (uid string, objects []history.Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.recent) == 0 {
		return "", nil
	}
	uid = b.recent[r.IntN(len(b.recent))]
	for n := range perUser {
		o := objectOf(n)
		if b.stories[history.Key{UID: uid, Object: o}] != nil {
			objects = append(objects, o)
		}
	}
	return uid, objects
}

func objectOf(n int) history.Object {
	return history.Object{ID: fmt.Sprintf("o_%d", n), Type: uint32(1 + n%3)} //nolint:gosec // small
}

// pause lets the load run for a while: time is the fault here, not a condition.
func pause(ctx context.Context, d time.Duration) error {
	if !run.Sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

const patience = 4 * time.Second

// errRefused means that the product refused a valid request.
var errRefused = errors.New("refused")

// target is one way into the product: a service's gRPC client or the edge's HTTP.
type target interface {
	// apply sends heartbeats and returns whether each was acknowledged.
	apply(ctx context.Context, events []*event) ([]bool, error)
}

type rpcClient struct {
	historyv1.HistoryServiceClient

	ack historyv1.Ack
}

func (d rpcClient) apply(ctx context.Context, events []*event) ([]bool, error) {
	resp, err := d.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: heartbeats(events), Ack: d.ack})
	if err != nil {
		return nil, err
	}
	acked := make([]bool, len(events))
	for i, s := range resp.GetStatuses() {
		switch s {
		case historyv1.Status_STATUS_UNAVAILABLE:
		case historyv1.Status_STATUS_INVALID, historyv1.Status_STATUS_EXPIRED:
			return nil, fmt.Errorf("%w: %s is %v", errRefused, events[i], s)
		default:
			acked[i] = true
		}
	}
	return acked, nil
}

func heartbeats(events []*event) []*historyv1.Heartbeat {
	hbs := make([]*historyv1.Heartbeat, len(events))
	for i, e := range events {
		hbs[i] = &historyv1.Heartbeat{
			Uid: e.Key.UID, ObjectId: e.Key.Object.ID, ObjectType: e.Key.Object.Type,
			Kind: historyv1.Kind(e.Kind), EventTimeMs: e.At, PositionMs: e.Position, DurationMs: e.Duration,
			Session: e.Session, Device: e.Device, Meta: e.Meta.Map(), StartedAtMs: e.StartedAt, WatchedMs: e.Watched,
		}
	}
	return hbs
}

// send sends events through a target and returns the unacknowledged ones.
func (b *book) send(ctx context.Context, d target, events []*event) (again []*event, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	acked, err := d.apply(ctx, events)
	if err != nil {
		return events, err
	}
	var done []*event
	for i, e := range events {
		if acked[i] {
			done = append(done, e)
		} else {
			again = append(again, e)
		}
	}
	b.ack(done...)
	return again, nil
}

// remove deletes objects of one user. An unacknowledged delete may have happened.
func (b *book) remove(ctx context.Context, d rpcClient, keys []history.Key, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := &historyv1.DeleteRequest{Uid: keys[0].UID, AtMs: at}
	events := make([]*event, len(keys))
	for i, k := range keys {
		req.Objects = append(req.Objects, &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
		events[i] = b.note(history.Event{Key: k, Kind: history.KindDelete, At: at})
	}
	if _, err := d.Delete(ctx, req); err != nil {
		return err
	}
	b.ack(events...)
	return nil
}

// clear removes everything of one type, or all (0), at or before a time.
func (b *book) clear(ctx context.Context, d rpcClient, uid string, typ uint32, until int64) error { //nolint:revive // what the request has, and a target
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := b.noteClear(uid, typ, until)
	if _, err := d.Clear(ctx, &historyv1.ClearRequest{Uid: uid, Type: typ, UntilMs: until}); err != nil {
		return err
	}
	b.ackClear(c)
	return nil
}

// edgeClient is the HTTP client of the edge. All events of a request are one user's.
type edgeClient struct {
	addr   string
	secret []byte
	client *http.Client // nil for the default
}

type upload struct {
	SentAt     time.Time         `json:"sent_at"`
	Heartbeats []uploadHeartbeat `json:"heartbeats"`
}

type uploadHeartbeat struct {
	Object     uploadObject `json:"object"`
	Kind       string       `json:"kind"`
	PositionMS int64        `json:"position_ms"`
	DurationMS int64        `json:"duration_ms"`
	EventTime  time.Time    `json:"event_time"`
	Session    string       `json:"session"`
	Device     string       `json:"device"`

	StartedAt *time.Time        `json:"started_at,omitempty"`
	WatchedMS int64             `json:"watched_ms,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`
}

type uploadObject struct {
	ID   string `json:"id"`
	Type uint32 `json:"type"`
}

func (d edgeClient) apply(ctx context.Context, events []*event) ([]bool, error) {
	body := upload{SentAt: time.Now()}
	for _, e := range events {
		body.Heartbeats = append(body.Heartbeats, uploadHeartbeat{
			Object: uploadObject(e.Key.Object), Kind: kindName(e.Kind), PositionMS: e.Position, DurationMS: e.Duration,
			EventTime: time.UnixMilli(e.At), Session: e.Session, Device: e.Device,
			StartedAt: beginning(e), WatchedMS: e.Watched, Meta: e.Meta.Map(),
		})
	}
	var answer struct {
		Results []struct {
			Status string `json:"status"`
		} `json:"results"`
	}
	if err := d.post(ctx, call{"/v1/heartbeats", token.Claims{UID: events[0].Key.UID}, body}, &answer); err != nil {
		return nil, err
	}
	acked := make([]bool, len(events))
	for i, r := range answer.Results {
		switch r.Status {
		case "stored", "unchanged", "stale", "cleared":
			acked[i] = true
		case "unavailable", "unknown":
		default:
			return nil, fmt.Errorf("%w: %s is %s", errRefused, events[i], r.Status)
		}
	}
	return acked, nil
}

// call is a request to the edge.
type call struct {
	path string
	as   token.Claims
	body any
}

func (d edgeClient) post(ctx context.Context, c call, answer any) error {
	c.as.TTL = time.Hour
	bearer, err := c.as.Sign(d.secret)
	if err != nil {
		return err
	}
	b, err := json.Marshal(c.body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.addr+c.path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := cmp.Or(d.client, http.DefaultClient).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: status %d", errRefused, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// beginning returns the start of an event's session, or nil if unknown.
func beginning(e *event) *time.Time {
	if e.StartedAt == 0 {
		return nil
	}
	at := time.UnixMilli(e.StartedAt)
	return &at
}

func kindName(k history.Kind) string {
	return [...]string{"", "start", "progress", "pause", "seek", "stop", "finish"}[k]
}

// dial connects to a service with short reconnect delays, because it may restart at any moment.
func dial(addr string) (*grpc.ClientConn, error) {
	retry := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond},
		MinConnectTimeout: time.Second,
	}
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(retry))
}
