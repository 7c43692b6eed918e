package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/e2e/process"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// The load of the slow cases. It stays small: the cases measure who waits for whom.
const (
	slowPlayers  = 200
	viewerPeriod = 500 * time.Millisecond
	calm         = 4 * time.Second // before and after each fault
	backWithin   = 3 * time.Second // bound on the affected players' recovery
	refusedIn    = 500 * time.Millisecond
	mostInTime   = 0.95 // minimum share of unaffected reports
)

const slowObject = "film"

// audience is players at one edge, and their answers.
type audience struct {
	trial   *trial
	players []*viewer
	every   time.Duration // period of a player's reports
	// late, if not 0, is the latency from which a report counts as noticed, and its player as touched. The fault
	// lasts until fewer than one report in a hundred is late: single ones are noise.
	late time.Duration

	mu sync.Mutex // guards the shared counters
}

// viewer repeats one action, one at a time.
type viewer struct {
	uid     string
	touched bool // affected by the fault
	ack     historyv1.Ack
	session *socket // nil for a reader
	do      func(ctx context.Context) (ok bool, err error)
	resyncs atomic.Int64
	stored  atomic.Int64 // latest acknowledged position
	acked   atomic.Int64 // number of acknowledgements

	mu  sync.Mutex
	did []exchange
}

type exchange struct {
	at   time.Time
	took time.Duration
	ok   bool
}

type socket struct {
	conn     *websocket.Conn
	sequence uint64
	answers  chan *historyv1.StreamResponse
	ended    chan struct{} // closed at the end
	err      error         // cause of the end
}

// newAudience connects players, has each report once, and waits until no player has a pending resync.
func newAudience(ctx context.Context, t *trial, n int) (*audience, error) {
	c, began := &audience{trial: t, every: viewerPeriod}, time.Now()
	g, dial := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range n {
		p := &viewer{uid: fmt.Sprintf("%s-%d", t.stack.name, i)}
		p.do = p.report
		c.players = append(c.players, p)
		g.Go(func() error { return p.connect(dial, ctx, t.stack.edge) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	connected := time.Now()
	stored, err := c.untilStored(ctx)
	if err != nil {
		return nil, err
	}
	t.Log.Info("players are there", "players", n, "connected", connected.Sub(began).Round(time.Millisecond), "stored", stored.Sub(connected).Round(time.Millisecond))
	return c, process.Await(ctx, 60*time.Second, "all to be watched", func(context.Context) error {
		for _, p := range c.players {
			if p.resyncs.Load() == 0 {
				return fmt.Errorf("%s is not told", p.uid)
			}
		}
		return nil
	})
}

func (p *viewer) connect(dial, life context.Context, edge edgeClient) error {
	bearer, err := token.Mint(edge.secret, p.uid, "", time.Hour)
	if err != nil {
		return err
	}
	conn, _, err := websocket.Dial(dial, "ws://"+edge.addr+"/v1/stream?push=true", &websocket.DialOptions{ //nolint:bodyclose // it is in memory
		HTTPHeader: http.Header{"Authorization": {"Bearer " + bearer}}, Subprotocols: []string{"playhead.v1.proto"},
	})
	if err != nil {
		return fmt.Errorf("connect %s: %w", p.uid, err)
	}
	p.session = &socket{conn: conn, answers: make(chan *historyv1.StreamResponse, 1), ended: make(chan struct{})}
	go p.hear(life) // ends with the edge
	return nil
}

func (p *viewer) hear(ctx context.Context) {
	s := p.session
	defer close(s.ended)
	defer s.conn.CloseNow() //nolint:errcheck // it is over
	for {
		_, text, err := s.conn.Read(ctx)
		if err != nil {
			s.err = err
			return
		}
		resp := new(historyv1.StreamResponse)
		if s.err = proto.Unmarshal(text, resp); s.err != nil {
			return
		}
		switch {
		case resp.GetPush().GetResync():
			p.resyncs.Add(1)
		case resp.GetPush() == nil:
			s.answers <- resp
		}
	}
}

// report sends the player's position and waits for any answer.
func (p *viewer) report(ctx context.Context) (ok bool, err error) {
	s := p.session
	s.sequence++
	position := int64(s.sequence) * 1000 //nolint:gosec // small
	text, err := proto.Marshal(&historyv1.StreamRequest{Sequence: s.sequence, Ack: p.ack, Heartbeats: []*historyv1.Heartbeat{progress("", position)}})
	if err != nil {
		return false, err
	}
	if err := s.conn.Write(ctx, websocket.MessageBinary, text); err != nil {
		return false, fmt.Errorf("%s: %w", p.uid, err)
	}
	select {
	case resp := <-s.answers:
		if ok = stored(resp); ok {
			p.stored.Store(position)
			p.acked.Add(1)
		}
		return ok, nil
	case <-s.ended:
		return false, fmt.Errorf("%s: %w", p.uid, s.err)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

func progress(uid string, position int64) *historyv1.Heartbeat {
	return &historyv1.Heartbeat{
		Uid: uid, ObjectId: slowObject, ObjectType: 1, Kind: historyv1.Kind_KIND_PROGRESS, EventTimeMs: time.Now().UnixMilli(),
		PositionMs: position, DurationMs: 100_000_000, Session: "one",
	}
}

func stored(resp *historyv1.StreamResponse) bool {
	if len(resp.GetResult().GetStatuses()) != 1 {
		return false
	}
	switch resp.GetResult().GetStatuses()[0] {
	case historyv1.Status_STATUS_STORED, historyv1.Status_STATUS_UNCHANGED, historyv1.Status_STATUS_STALE:
		return true
	}
	return false
}

// stranger reads a page of a new user each time, whose history is only in the archive.
func (c *audience) stranger(i int) *viewer {
	edge, n := c.trial.stack.edge, 0
	p := &viewer{uid: fmt.Sprintf("%s-reader-%d", c.trial.stack.name, i), touched: true}
	p.do = func(ctx context.Context) (bool, error) {
		n++
		bearer, err := token.Mint(edge.secret, fmt.Sprintf("%s-%d", p.uid, n), "", time.Hour)
		if err != nil {
			return false, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+edge.addr+"/v1/history", nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	}
	return p
}

// try acts once and records the result.
func (p *viewer) try(ctx context.Context) (ok bool, err error) {
	began := time.Now()
	if ok, err = p.do(ctx); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did = append(p.did, exchange{began, time.Since(began), ok})
	return ok, nil
}

// during runs f while all players report.
func (c *audience) during(ctx context.Context, f func(context.Context) error) error {
	stopped := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range c.players {
		g.Go(func() error {
			if err := pause(ctx, c.every*time.Duration(i)/time.Duration(len(c.players))); err != nil {
				return err
			}
			return p.play(ctx, c.every, stopped)
		})
	}
	g.Go(func() error {
		defer close(stopped)
		return f(ctx)
	})
	return g.Wait()
}

func (p *viewer) play(ctx context.Context, every time.Duration, stopped <-chan struct{}) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if _, err := p.try(ctx); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-stopped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *audience) once(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range c.players {
		g.Go(func() error {
			_, err := p.try(ctx)
			return err
		})
	}
	return g.Wait()
}

// untilStored has every player report until the report is stored. It returns the time of the last one.
func (c *audience) untilStored(ctx context.Context) (last time.Time, err error) {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range c.players {
		g.Go(func() error {
			for {
				if ok, err := p.try(ctx); ok || err != nil {
					return err
				}
				if err := pause(ctx, time.Second); err != nil {
					return err
				}
			}
		})
	}
	err = g.Wait()
	return time.Now(), err
}

func (c *audience) touchAll() {
	for _, p := range c.players {
		p.touched = true
	}
}

// through has a fault while all players report. SIGSTOP begins it and SIGCONT ends it.
func (c *audience) through(ctx context.Context, lasts time.Duration, signal func(syscall.Signal) error) (row SlowRow, err error) {
	err = c.during(ctx, func(ctx context.Context) (err error) {
		row, err = c.fault(ctx, lasts, signal)
		return err
	})
	return row, err
}

// fault runs a fault between two calms.
func (c *audience) fault(ctx context.Context, lasts time.Duration, signal func(syscall.Signal) error) (SlowRow, error) {
	if err := pause(ctx, calm); err != nil {
		return SlowRow{}, err
	}
	before := make([]int64, len(c.players))
	for i, p := range c.players {
		before[i] = p.resyncs.Load()
	}
	w, began := c.weigh(), time.Now()
	err := errors.Join(signal(syscall.SIGSTOP), pause(ctx, lasts))
	ended := time.Now()
	err = errors.Join(err, signal(syscall.SIGCONT), pause(ctx, backWithin+calm))
	row := c.row(began, ended)
	row.Edge = w.stop()
	for i, p := range c.players {
		row.Resyncs = max(row.Resyncs, int(p.resyncs.Load()-before[i]))
	}
	return row, err
}

// row sums up the reports sent during a fault, and the failures since.
func (c *audience) row(began, ended time.Time) SlowRow {
	row := SlowRow{Services: len(c.trial.stack.services), Players: len(c.players), began: began, ended: ended}
	by := make(seconds)
	for _, p := range c.players {
		p.mu.Lock()
		did := p.did
		p.mu.Unlock()
		if c.late > 0 {
			p.touched = false
			for _, e := range did {
				p.touched = p.touched || e.at.After(began) && e.at.Before(ended) && (!e.ok || e.took > c.late)
			}
		}
		share := &row.Others
		if p.touched {
			share = &row.Touched
		}
		share.Players++
		for _, e := range did {
			switch late := c.late > 0 && e.took > c.late; {
			case e.at.Before(began):
				continue
			case e.at.Before(ended) || !p.touched:
				share.add(e)
				fallthrough
			default:
				by.add(e.at.Sub(began), e.took, late)
				if (late || !e.ok) && p.touched {
					row.RefusedMS = max(row.RefusedMS, e.took.Milliseconds())
				}
				if !e.ok && p.touched {
					row.LastedMS = max(row.LastedMS, e.at.Add(e.took).Sub(began).Milliseconds())
					row.BackMS = max(row.BackMS, e.at.Sub(ended).Milliseconds())
				}
			}
		}
	}
	row.LastedMS = max(row.LastedMS, by.noticed().Milliseconds())
	return row
}

// seconds are the seconds of a fault, by number.
type seconds map[time.Duration]*second

// second counts the reports sent in one second, the late ones, and when the last of these was answered.
type second struct {
	sent, late int
	until      time.Duration
}

func (by seconds) add(at, took time.Duration, late bool) {
	s := by[at/time.Second]
	if s == nil {
		s = new(second)
		by[at/time.Second] = s
	}
	if s.sent++; late {
		s.late++
		s.until = max(s.until, at+took)
	}
}

// noticed returns the end of the last second with at least one late report in a hundred.
func (by seconds) noticed() (until time.Duration) {
	for _, s := range by {
		if 100*s.late >= s.sent {
			until = max(until, s.until)
		}
	}
	return until
}

// scale samples the edge's memory.
type scale struct {
	stopped, done chan struct{}
	weight        Weight
}

func (c *audience) weigh() *scale {
	s := &scale{stopped: make(chan struct{}), done: make(chan struct{})}
	look := func() int64 {
		bytes, _ := c.trial.stack.bff.resident() // the case fails anyway once the edge has ended
		return bytes >> 20
	}
	s.weight.Before = look()
	go func() {
		defer close(s.done)
		for {
			s.weight.Most = max(s.weight.Most, look())
			select {
			case <-s.stopped:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return s
}

func (s *scale) stop() Weight {
	close(s.stopped)
	<-s.done
	return s.weight
}

// crowdSize returns the number of players. They use at most three quarters of the open-file limit, like an edge's
// connections.
func (o Options) crowdSize() int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return o.Players
	}
	return min(o.Players, int(files.Cur-files.Cur/4)-200) //nolint:gosec // a limit is no such number
}

func (s *Share) add(e exchange) {
	s.Sent++
	if e.ok {
		s.InTime++
	}
	s.LatestMS = max(s.LatestMS, e.took.Milliseconds())
}
