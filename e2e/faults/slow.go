package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/playhead/playhead/bff/token"
)

const (
	// slowPeriod is how often each player reports.
	slowPeriod = 10 * time.Second
	// touchedAfter is how long an answer may take before its player counts as touched.
	touchedAfter = time.Second
)

// crowdSize is how many players there are, as far as all may have a connection.
func (o Options) crowdSize() (int, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, err
	}
	return min(o.Players, int(files.Cur)-200), nil //nolint:gosec // a limit is no such number
}

// stall is something that stands still for a while.
type stall struct {
	what   string
	during time.Duration
	signal func(syscall.Signal) error
}

// slow lets one part after the other stand still, and says who of many players is touched,
// for how long, and what the edge needs meanwhile.
func slow(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{cluster: true}); err != nil {
		return err
	}
	n, err := t.crowdSize()
	if err != nil {
		return err
	}
	c := t.newCrowd(ctx, n)
	defer c.end()
	if err := c.arrive(ctx); err != nil {
		return err
	}
	units := func(us ...*unit) func(syscall.Signal) error {
		return func(sig syscall.Signal) error {
			for _, u := range us {
				u.signal(sig)
			}
			return nil
		}
	}
	node := func(sig syscall.Signal) error { return t.stack.store().Signal(sig, 0) }
	whole := func(name string) func(syscall.Signal) error {
		return func(sig syscall.Signal) error {
			err := t.es[name].Signal(sig)
			if sig == syscall.SIGCONT { // one that has lost its session meanwhile ends itself
				err = errors.Join(err, t.es[name].Start(ctx))
			}
			return err
		}
	}
	t.res.note("| stands still | for | players touched | longest wait | refused | waiting at most | edge, before and at most |")
	t.res.note("|---|---|---|---|---|---|---|")
	for _, s := range []stall{
		{"nothing", 15 * time.Second, func(syscall.Signal) error { return nil }},
		{"the Kafka broker", 20 * time.Second, whole("kafka")},
		{"the HBase region server", 20 * time.Second, whole("hbase")},
		{"one of four Redis masters", 12 * time.Second, node},
		{"one of two services", 60 * time.Second, units(t.stack.services[0])},
		{"both services", 15 * time.Second, units(t.stack.services...)},
	} {
		if err := c.through(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	c.end()
	return t.settle(ctx)
}

// crowd is many players, each with a connection of its own to the edge.
type crowd struct {
	*trial

	players []*player
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	waiting, arrived atomic.Int64
}

// player reports one object again and again, and waits for each answer.
type player struct {
	uid  string
	conn *websocket.Conn

	mu      sync.Mutex
	sent    time.Time // of what is not answered, zero for none
	longest time.Duration
	refused int
}

func (t *trial) newCrowd(ctx context.Context, n int) *crowd {
	c := &crowd{trial: t}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range n {
		p := &player{uid: fmt.Sprintf("slow-%d", i)}
		c.players = append(c.players, p)
		first := slowPeriod * time.Duration(i) / time.Duration(n)
		c.wg.Go(func() {
			if pause(ctx, first) == nil {
				c.play(ctx, p)
			}
		})
	}
	return c
}

func (c *crowd) end() {
	c.cancel()
	c.wg.Wait()
}

// arrive waits until all players have had an answer.
func (c *crowd) arrive(ctx context.Context) error {
	for int(c.arrived.Load()) < len(c.players) {
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("%d of %d players are there: %w", c.arrived.Load(), len(c.players), err)
		}
	}
	return pause(ctx, slowPeriod)
}

func (c *crowd) play(ctx context.Context, p *player) {
	for first := true; ctx.Err() == nil; {
		began := time.Now()
		if err := c.report(ctx, p); err != nil {
			p.note(func() { p.refused++ })
		} else if first {
			c.arrived.Add(1)
			first = false
		}
		_ = pause(ctx, slowPeriod-time.Since(began)) // ended by the loop
	}
	if p.conn != nil {
		_ = p.conn.CloseNow()
	}
}

// report sends a report and waits for its answer. An error of the connection breaks it.
func (c *crowd) report(ctx context.Context, p *player) error {
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	began := time.Now()
	p.note(func() { p.sent = began })
	err := p.exchange(ctx, c.stack.edge)
	p.note(func() {
		p.sent = time.Time{}
		p.longest = max(p.longest, time.Since(began))
	})
	if err == nil {
		c.book.add(1)
	}
	return err
}

func (p *player) exchange(ctx context.Context, d edgeDoor) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	defer func() {
		if err != nil && p.conn != nil && !errors.Is(err, errRefused) {
			_ = p.conn.CloseNow() // it is broken
			p.conn = nil
		}
	}()
	if p.conn == nil {
		if p.conn, err = d.stay(ctx, p.uid); err != nil {
			return err
		}
	}
	body := fmt.Sprintf(`{"seq":1,"heartbeats":[{"object":{"id":"100","type":1},"kind":"progress","position_ms":61000,"duration_ms":%d,"event_time":%q,"session":"s"}]}`,
		length, time.Now().UTC().Format(time.RFC3339Nano))
	if err = p.conn.Write(ctx, websocket.MessageText, []byte(body)); err != nil {
		return err
	}
	_, answer, err := p.conn.Read(ctx)
	if err == nil && !strings.Contains(string(answer), `"stored"`) {
		err = fmt.Errorf("%w: %s", errRefused, answer)
	}
	return err
}

// stay connects a player who stays.
func (d edgeDoor) stay(ctx context.Context, uid string) (*websocket.Conn, error) {
	bearer, err := token.Mint(d.secret, uid, time.Hour)
	if err != nil {
		return nil, err
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+d.addr+"/v1/stream", &websocket.DialOptions{ //nolint:bodyclose // it has none
		Subprotocols: []string{"playhead.v1.json"}, HTTPHeader: map[string][]string{"Authorization": {"Bearer " + bearer}},
	})
	return conn, err
}

func (p *player) note(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// through lets something stand still, waits until everybody is answered again, and notes a
// line of the table.
func (c *crowd) through(ctx context.Context, s stall) error {
	for _, p := range c.players {
		p.note(func() { p.longest, p.refused = 0, 0 })
	}
	before, err := c.stack.bff.resident()
	if err := errors.Join(err, s.signal(syscall.SIGSTOP)); err != nil {
		return err
	}
	most, waiting, err := c.watch(ctx, s.during, before)
	if err := errors.Join(err, s.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	after, late, err := c.watch(ctx, slowPeriod+5*time.Second, before) // each reports once more
	touched, refused, longest := 0, 0, time.Duration(0)
	for _, p := range c.players {
		p.note(func() {
			if p.longest > touchedAfter || p.refused > 0 || !p.sent.IsZero() && time.Since(p.sent) > touchedAfter {
				touched++
			}
			longest, refused = max(longest, p.longest), refused+p.refused
		})
	}
	c.res.note("| %s | %v | %d of %d | %v | %d | %d | %d and %d MiB |", s.what, s.during, touched, len(c.players),
		longest.Round(100*time.Millisecond), refused, max(waiting, late), before>>20, max(most, after)>>20)
	return err
}

// watch returns the most memory of the edge, in bytes, and how many reports waited at most.
func (c *crowd) watch(ctx context.Context, d time.Duration, least int64) (memory, waiting int64, err error) {
	memory = least
	for end := time.Now().Add(d); time.Now().Before(end); {
		m, err := c.stack.bff.resident()
		if err := errors.Join(err, pause(ctx, 200*time.Millisecond)); err != nil {
			return memory, waiting, err
		}
		memory, waiting = max(memory, m), max(waiting, c.waiting.Load())
	}
	return memory, waiting, nil
}
