package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/internal/run"
	messagev1 "github.com/playhead/playhead/proto/history/message/v1"
)

// The model: a client over a slow link to an arbitrary edge. It checks the promises of docs/clients.md:
// - Each report has one outcome: the edge's, refused alone, or dropped from a full queue. Else it waits.
// - A report with an outcome is not sent again.
// - No accepted message delays its reports for long.
// - A device overwrites only records of others that it could know, and conflicts only with records it has not seen.
// - Events have their true times, whatever the clock. Reports are never stale because of an earlier one of their
// device, and reports made after a removal count.

// fate is the edge's treatment of a message.
type fate struct {
	what string
	code int // of a close or an error
}

// step is an event for the client.
type step struct {
	after time.Duration
	what  string
	n     int    // reports, or seconds by which the clock is set ahead
	kind  string // of the reports, or their object
}

type script struct {
	rate       int // bytes per second of the link
	queue      int
	watching   bool
	silent     bool          // the edge does not tell the time.
	ahead      int           // initial lead of the clock, seconds.
	rough      time.Duration // spread of clock readings.
	telling    time.Duration // delay of changes on a new connection.
	again      time.Duration // interval between resyncs.
	blocked    time.Duration // time in which a proxy blocks WebSockets.
	absent     time.Duration // time in which it blocks everything.
	barrier    int           // its HTTP status.
	steps      []step
	fates      []fate
	handshakes []int // HTTP statuses; 101 connects, 0 drops the connection
}

var (
	fates = rapid.Custom(func(t *rapid.T) fate {
		what := rapid.SampledFrom([]string{
			"take", "take", "late", "stalled", "close", "take and close", "error", "busy", "cut", "take and cut", "silence", "unavailable", "garbage", "half", "other", "few",
		}).Draw(t, "fate")
		codes := []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011, 1013, 4401}
		if what == "error" || what == "busy" {
			codes = []int{1, 2, 3, 4, 5, 6}
		}
		return fate{what, rapid.SampledFrom(codes).Draw(t, "code")}
	})
	steps = rapid.Custom(func(t *rapid.T) step {
		s := step{
			after: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "after")) * time.Millisecond,
			what:  rapid.SampledFrom([]string{"report", "report", "report", "film", "film", "film", "other", "other", "removed", "seen", "met", "clock", "sleep", "cut", "restart"}).Draw(t, "step"),
		}
		switch s.what {
		case "report":
			s.n = rapid.IntRange(1, 130).Draw(t, "n")
			s.kind = rapid.SampledFrom([]string{"small", "small", "large", "poison", "cursed"}).Draw(t, "kind")
		case "film":
			s.n = rapid.IntRange(1, 5).Draw(t, "n")
			s.kind = rapid.SampledFrom([]string{"film a", "film a", "film b"}).Draw(t, "object")
		case "other", "removed", "seen", "met":
			s.n = rapid.IntRange(0, 1).Draw(t, "session")
			s.kind = rapid.SampledFrom([]string{"film a", "film b"}).Draw(t, "object")
		case "clock":
			s.n = rapid.IntRange(-100_000, 100_000).Draw(t, "seconds")
		}
		return s
	})
	scripts = rapid.Custom(func(t *rapid.T) script {
		return script{
			rate:       rapid.SampledFrom([]int{1 << 10, 4 << 10, 1 << 20}).Draw(t, "rate"),
			queue:      rapid.SampledFrom([]int{1000, 200}).Draw(t, "queue"),
			watching:   rapid.Bool().Draw(t, "watching"),
			silent:     rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "silent"),
			ahead:      rapid.SampledFrom([]int{0, 4, 3600, -8, -60, -119, -18_000, -900_000_000}).Draw(t, "ahead"),
			rough:      time.Duration(rapid.SampledFrom([]int{0, 10}).Draw(t, "rough")) * time.Millisecond,
			telling:    time.Duration(rapid.SampledFrom([]int{0, 2, 30}).Draw(t, "telling")) * time.Second,
			again:      time.Duration(rapid.SampledFrom([]int{5, 50, 3600}).Draw(t, "again")) * time.Second,
			blocked:    time.Duration(rapid.SampledFrom([]int{0, 0, 30}).Draw(t, "blocked")) * time.Minute,
			absent:     time.Duration(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "absent")) * time.Minute,
			barrier:    rapid.SampledFrom([]int{403, 404, 429, 503}).Draw(t, "barrier"),
			steps:      rapid.SliceOfN(steps, 1, 12).Draw(t, "steps"),
			fates:      rapid.SliceOfN(fates, 0, 12).Draw(t, "fates"),
			handshakes: rapid.SliceOfN(rapid.SampledFrom([]int{101, 101, 0, 401, 429, 502, 503}), 0, 6).Draw(t, "handshakes"),
		}
	})
)

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scripts.Draw(rt, "script")
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = play(t, s) })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// play runs a script and returns the violations.
func play(t *testing.T, s script) []string {
	p := &player{reports: make(map[int64]*reported), sight: make(map[string]*sight), watching: s.watching}
	p.edge = newAnyEdge(p, s)
	p.ahead.Store(int64(s.ahead) * int64(time.Second))
	server := &http.Server{Handler: p.edge, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(p.edge.door) }() // ends with Close
	began := time.Now()
	cfg := client.Config{
		URL: "http://edge", Token: func(context.Context) (string, error) { return "token", nil }, Answered: p.hear, Queue: s.queue,
		Clock: func() (time.Time, time.Duration) {
			apart := time.Duration(p.looks.Add(1)%3) * s.rough // between the two readings
			return time.Now().Add(time.Duration(p.ahead.Load()) + apart), time.Since(began) + p.slept()
		},
		HTTP: &http.Client{Transport: &http.Transport{DialContext: p.edge.slowly(s.rate), DisableKeepAlives: true}},
	}
	if s.watching {
		cfg.Changed = func(*messagev1.Change) {}
	}
	var err error
	if p.Client, err = client.New(cfg); err != nil {
		t.Fatal(err)
	}
	p.start(t)
	for _, step := range s.steps {
		time.Sleep(step.after)
		p.step(t, step)
	}
	p.settle(s.rate)
	p.stop()
	p.edge.door.Cut()
	_ = server.Close()
	time.Sleep(time.Hour) // for all goroutines to end
	p.check()
	slices.Sort(p.wrong)
	return p.wrong[:min(len(p.wrong), 5)]
}

// reported is a report and its outcomes.
type reported struct {
	*messagev1.Heartbeat
	kind  string
	made  time.Time
	blind time.Time // since when the device could miss changes by others; zero if it could not
	seen  uint64    // etag of the record that the player continued from
	told  []messagev1.Status
}

// sight is a device's possible knowledge of others' changes to an object.
type sight struct {
	lost  time.Time // zero if not lost
	sleep int       // sleeps of the device when it lost sight
	seen  uint64    // etag of the record last seen by the player
}

// player reports on a device.
type player struct {
	*client.Client
	edge     *anyEdge
	watching bool
	ahead    atomic.Int64 // lead of the clock, nanoseconds
	looks    atomic.Int64 // clock readings
	sleeps   atomic.Int64 // sleeps of the device, an hour each
	cursed   int
	refused  int // refused reports
	stop     func()

	mu      sync.Mutex
	reports map[int64]*reported // by position
	sight   map[string]*sight   // by object
	wrong   []string
}

func (p *player) slept() time.Duration { return time.Duration(p.sleeps.Load()) * time.Hour }

func (p *player) start(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			p.fault("run: %v", err)
		}
	}
}

func (p *player) step(t *testing.T, s step) {
	switch s.what {
	case "cut":
		p.edge.door.Cut()
		p.edge.expect(nil)
		p.loseSight()
		synctest.Wait()
	case "restart":
		p.stop()
		p.edge.expect(nil)
		p.loseSight()
		p.start(t)
	case "clock":
		p.ahead.Add(int64(s.n) * int64(time.Second))
		time.Sleep(100 * time.Millisecond) // after a set clock, rough readings order only reports further apart
	case "sleep":
		p.sleeps.Add(1)
		p.edge.expect(nil)
		p.loseSight()
	case "other", "removed":
		p.edge.other(s.kind, s.what == "removed", []string{"there", "here 0"}[s.n])
	case "met": // perhaps before the answer to an earlier report
		p.report(t, s.kind)
		time.Sleep(100 * time.Millisecond)
		p.edge.other(s.kind, false, "there")
		fallthrough
	case "seen":
		p.see(s.kind)
	case "film":
		for range s.n {
			time.Sleep(2 * time.Millisecond)
			p.report(t, s.kind)
		}
	case "report":
		for i := range s.n {
			kind := s.kind
			if (kind == "poison" || kind == "cursed") && i%40 != 7 { // few reports are
				kind = "small"
			}
			p.report(t, kind)
		}
	}
}

func (p *player) report(t *testing.T, kind string) {
	p.mu.Lock()
	n := len(p.reports)
	h := &messagev1.Heartbeat{
		ObjectId: fmt.Sprint(kind, n), ObjectType: 1, Kind: messagev1.Kind_KIND_STOP, PositionMs: int64(n + 1), Session: fmt.Sprint(n),
		EventTimeMs: time.Now().Add(time.Duration(p.ahead.Load())).UnixMilli(), Device: "phone",
	}
	r := &reported{Heartbeat: h, kind: kind, made: time.Now()}
	switch kind {
	case "film a", "film b":
		h.ObjectId, h.Session, h.Kind = kind, fmt.Sprint("here ", n/7%2), messagev1.Kind_KIND_PROGRESS
		r.blind, r.seen = p.blind(kind), p.sight[kind].seen
	case "large":
		h.Meta = map[string]string{"title": strings.Repeat("<", 1000)}
	case "cursed":
		p.cursed++
	case "poison":
		p.refused++
	}
	p.reports[h.PositionMs] = r
	p.mu.Unlock()
	if err := p.Report(h); err != nil {
		t.Fatal(err)
	}
}

// blind returns the time since when the device can miss others' changes to an object.
func (p *player) blind(object string) time.Time {
	s := p.sight[object]
	if s == nil { // the first report stands, whatever is known
		s = &sight{}
		if p.sight[object] = s; !p.edge.watched() {
			s.lost = time.Now()
		}
		return time.Time{}
	}
	return s.lost
}

// loseSight notes the end of a connection, a resync or a sleep.
func (p *player) loseSight() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sight {
		if s.sleep = int(p.sleeps.Load()); s.lost.IsZero() {
			s.lost = time.Now()
		}
	}
}

// see makes the player continue from the current record.
func (p *player) see(object string) {
	record := p.edge.read(object)
	p.mu.Lock()
	if record != nil {
		p.sight[object] = &sight{sleep: int(p.sleeps.Load()), seen: record.Etag}
		if !p.edge.watched() {
			p.sight[object].lost = time.Now()
		}
	}
	p.mu.Unlock()
	p.Seen(record)
}

func (p *player) hear(a client.Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reports[a.Heartbeat.PositionMs]
	r.told = append(r.told, a.Status)
	given := a.Status == messagev1.Status_STATUS_UNSPECIFIED || a.Status == messagev1.Status_STATUS_STALE && !p.edge.said(r, a.Status)
	switch {
	case a.Status == messagev1.Status_STATUS_CONFLICT && a.Record.GetEtag() <= r.seen && len(p.reports) <= 200: // etags only grow
		p.wrong = append(p.wrong, fmt.Sprintf("%v: in conflict with %v, which was seen before", r.Heartbeat, a.Record))
	case given && p.edge.busyWith(r):
		p.wrong = append(p.wrong, r.ObjectId+": given up on its way")
	case !given && a.Record != nil && a.Record.Session == r.Session && a.Record.Device == r.Device:
		p.regain(r.ObjectId, a.Record)
	}
}

// regain notes a record of the player's own. The caller holds the lock.
func (p *player) regain(object string, record *messagev1.Item) {
	s := p.sight[object]
	answered, sleeps := p.edge.answered(record)
	switch {
	case s == nil || sleeps < s.sleep:
	case p.edge.watched() && !answered.Before(s.lost):
		s.lost = time.Time{}
	case answered.After(s.lost):
		s.lost = answered
	}
}

func (p *player) fault(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// settle waits until all is answered, as long as the link's rate and the search for refused reports require.
func (p *player) settle(rate int) {
	size := 0
	for _, r := range p.reports {
		size += 150 + 3*len(r.Meta["title"])
	}
	limit := 15*time.Minute + time.Duration(3*size/rate)*time.Second + time.Duration(p.cursed+p.refused)*10*time.Minute
	for began := time.Now(); time.Since(began) < limit && p.unsettled(); {
		time.Sleep(time.Minute)
	}
}

func (p *player) unsettled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.reports {
		if len(r.told) == 0 && r.kind != "cursed" {
			return true
		}
	}
	return false
}

func (p *player) check() {
	waiting := 0
	for _, r := range p.reports {
		if len(r.told) == 0 {
			waiting++
		}
		if problem := p.problem(r); problem != "" {
			p.fault("%s at %d: %s", r.ObjectId, r.PositionMs, problem)
		}
	}
	if p.Waiting() != waiting {
		p.fault("%d wait, and %d were not told of", p.Waiting(), waiting)
	}
}

// problem describes a wrong outcome of a report.
func (p *player) problem(r *reported) string {
	e := p.edge
	switch {
	case len(r.told) == 0 && r.kind == "cursed":
		return ""
	case len(r.told) != 1:
		return fmt.Sprintf("told %v", r.told)
	case e.said(r, r.told[0]), r.told[0] == messagev1.Status_STATUS_INVALID && e.blamed[r.PositionMs]:
		return e.late(r)
	case r.told[0] == messagev1.Status_STATUS_UNSPECIFIED && p.Dropped() > 0:
		return ""
	case r.told[0] == messagev1.Status_STATUS_STALE && p.superseded(r):
		return ""
	}
	return fmt.Sprintf("told %v, but the edge said %v", r.told, e.statuses[r.PositionMs])
}

func (p *player) superseded(r *reported) bool {
	for _, other := range p.reports {
		if r.Kind == messagev1.Kind_KIND_PROGRESS && other.PositionMs > r.PositionMs && other.ObjectId == r.ObjectId && other.Session == r.Session {
			return true
		}
	}
	return false
}

// slowly dials connections of rate bytes per second.
func (e *anyEdge) slowly(rate int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := e.door.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return slow(conn, rate), nil
	}
}

// slowConn sends rate bytes per second until it is closed.
type slowConn struct {
	net.Conn
	rate  int
	open  context.Context
	close context.CancelFunc
}

func slow(conn net.Conn, rate int) *slowConn {
	open, cancel := context.WithCancel(context.Background())
	return &slowConn{conn, rate, open, cancel}
}

func (c *slowConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		piece := p[:min(len(p), 512)]
		run.Sleep(c.open, time.Duration(len(piece))*time.Second/time.Duration(c.rate))
		var m int
		m, err = c.Conn.Write(piece)
		n, p = n+m, p[m:]
	}
	return n, err
}

// Close makes Write return at once. The closing caller waits for Write under a lock, and time stops in a bubble
// while a goroutine waits for a lock.
func (c *slowConn) Close() error {
	c.close()
	return c.Conn.Close()
}
