package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Driver sends a plan to history-service. Zero values take the defaults.
type Driver struct {
	Conn grpc.ClientConnInterface
	// Streams is the number of concurrent streams (default 16). One stream sends all heartbeats of a user, in
	// order.
	Streams int
	// Batch is the number of heartbeats per batch (default 200). Depth bounds the unanswered batches per stream
	// (default 4).
	Batch, Depth int
	// Speed is the speed-up over the trace's own time; 0 sends as fast as the service accepts.
	Speed float64
	// Patience is the deadline for the answer to a batch, and for retries without progress (default 60 s). The
	// driver resends unacknowledged heartbeats.
	Patience time.Duration

	answers
}

// Run sends the whole plan and returns when every heartbeat is acknowledged.
func (d *Driver) Run(ctx context.Context, p *Plan) error {
	d.Streams = run.Default(d.Streams, 16)
	d.Batch = run.Default(d.Batch, 200)
	d.Depth = run.Default(d.Depth, 4)
	d.Patience = run.Default(d.Patience, 60*time.Second)
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, segment := range d.divide(p) {
		l := &sender{driver: d, plan: p, beats: segment, began: began}
		g.Go(func() error { return l.run(ctx) })
	}
	return g.Wait()
}

// divide assigns each user's heartbeats, in order, to one stream.
func (d *Driver) divide(p *Plan) [][]int32 {
	segments := make([][]int32, d.Streams)
	for i := range p.beats {
		s := int(history.BucketOf(p.Viewings[p.beats[i].viewing].UID)) % d.Streams
		segments[s] = append(segments[s], int32(i)) //nolint:gosec // a plan has fewer heartbeats
	}
	return segments
}

// sender sends one stream's share of the plan. After a stream fails, it opens another and resumes with the first
// unacknowledged batch.
type sender struct {
	driver *Driver
	plan   *Plan
	beats  []int32 // unacknowledged
	began  time.Time
}

func (l *sender) run(ctx context.Context) error {
	var trouble time.Time // time of the first failure since the last progress
	for backoff := (run.Backoff{First: 100 * time.Millisecond, Longest: 2 * time.Second}); len(l.beats) > 0; {
		quiet, before := l.waitForFirst(ctx), len(l.beats)
		err := l.stream(ctx)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if quiet || len(l.beats) < before {
			trouble = time.Time{}
			backoff.Reset()
		}
		if trouble.IsZero() {
			trouble = time.Now()
		}
		if final(err) || time.Since(trouble) > l.driver.Patience {
			return fmt.Errorf("replay: %w", err)
		}
		backoff.Sleep(ctx)
	}
	return nil
}

// waitForFirst sleeps until the next heartbeat is due. It reports whether it slept.
func (l *sender) waitForFirst(ctx context.Context) bool {
	if l.driver.Speed <= 0 {
		return false
	}
	d := time.Until(l.sendAt(l.beats[0]))
	run.Sleep(ctx, d)
	return d > 0
}

func final(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
		return true
	}
	return errors.Is(err, ErrRefused) || errors.Is(err, errSilent) || errors.Is(err, errMismatch)
}

type stream = grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]

var (
	errAgain    = errors.New("the service could not store a batch")
	errSilent   = errors.New("the service does not answer")
	errMismatch = errors.New("the answer of the service does not belong to the batch")
)

// stream sends the remaining heartbeats over one stream.
func (l *sender) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := historyv1.NewHistoryServiceClient(l.driver.Conn).ApplyStream(ctx, grpc.ForceCodecV2(wire.RequestCodec()))
	if err != nil {
		return err
	}
	sent := make(chan int, l.driver.Depth) // sizes of the batches in flight
	failed := make(chan error, 1)
	go func() {
		defer close(sent)
		failed <- l.send(ctx, s, l.beats, sent)
	}()
	err = l.receive(s, sent, func() { cancel(errSilent) })
	switch {
	case err == nil:
		return <-failed
	case errors.Is(context.Cause(ctx), errSilent):
		return fmt.Errorf("%w within %v", errSilent, l.driver.Patience)
	}
	return err
}

// send sends all batches. It does not touch l.beats: acknowledgements advance it.
func (l *sender) send(ctx context.Context, s stream, beats []int32, sent chan<- int) error {
	req := newRequest(l.driver.Batch)
	for seq := uint64(1); len(beats) > 0; seq++ {
		n, err := l.nextBatch(ctx, beats)
		if err != nil {
			return err
		}
		select {
		case sent <- n:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.Send(req.fill(seq, l.plan, beats[:n])); err != nil {
			return nil // Recv returns the reason
		}
		beats = beats[n:]
	}
	return s.CloseSend()
}

// nextBatch waits until the next heartbeat is due and returns the size of its batch.
func (l *sender) nextBatch(ctx context.Context, beats []int32) (int, error) {
	most := min(len(beats), l.driver.Batch)
	if l.driver.Speed <= 0 {
		return most, nil
	}
	if d := time.Until(l.sendAt(beats[0])); d > 0 {
		run.Sleep(ctx, d)
	}
	n := 1
	for n < most && time.Until(l.sendAt(beats[n])) <= 0 {
		n++
	}
	return n, ctx.Err()
}

func (l *sender) sendAt(i int32) time.Time {
	ms := float64(l.plan.beats[i].at-l.plan.beats[0].at) / l.driver.Speed
	return l.began.Add(time.Duration(ms * float64(time.Millisecond)))
}

// receive reads the acknowledgements, in the order of the batches. It calls silent when one misses its deadline.
func (l *sender) receive(s stream, sent <-chan int, silent func()) error {
	seq := uint64(0)
	for n := range sent {
		late := time.AfterFunc(l.driver.Patience, silent)
		resp, err := s.Recv()
		late.Stop()
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if seq++; resp.GetSequence() != seq {
			return fmt.Errorf("%w: sequence %d, want %d", errMismatch, resp.GetSequence(), seq)
		}
		if err := l.driver.countAnswer(resp.GetResult(), n); err != nil {
			return err
		}
		l.beats = l.beats[n:]
	}
	return nil
}

// countAnswer counts the answer to n heartbeats. It fails if one needs a retry, or is invalid.
func (d *Driver) countAnswer(r *historyv1.ApplyResponse, n int) error {
	if refused := r.GetRefusals(); len(refused) > 0 {
		return fmt.Errorf("%w: %s: %s", ErrRefused, refused[0].GetField(), refused[0].GetReason())
	}
	if got := len(r.GetStatuses()); got != n {
		return fmt.Errorf("%w: %d statuses for %d heartbeats", errMismatch, got, n)
	}
	for _, s := range r.GetStatuses() {
		switch {
		case s == historyv1.Status_STATUS_UNAVAILABLE:
			return errAgain
		case !d.known(s):
			return fmt.Errorf("%w: status %d", errMismatch, s)
		}
	}
	for _, s := range r.GetStatuses() {
		d.count(s)
	}
	return nil
}

// request is a reusable batch: gRPC has encoded the messages by the time Send returns.
type request struct {
	msg   historyv1.ApplyStreamRequest
	beats []historyv1.Heartbeat
}

func newRequest(heartbeats int) *request {
	return &request{beats: make([]historyv1.Heartbeat, heartbeats)}
}

func (r *request) fill(seq uint64, p *Plan, beats []int32) *historyv1.ApplyStreamRequest {
	batch := &historyv1.ApplyRequest{Heartbeats: make([]*historyv1.Heartbeat, len(beats))}
	for i, b := range beats {
		p.heartbeat(int(b), &r.beats[i])
		batch.Heartbeats[i] = &r.beats[i]
	}
	r.msg.Sequence, r.msg.Batch = seq, batch
	return &r.msg
}

// answers counts heartbeats by status. It is safe for concurrent use.
type answers struct {
	acked    atomic.Int64
	statuses [16]atomic.Int64
}

// Acked returns the number of acknowledged heartbeats.
func (a *answers) Acked() int64 { return a.acked.Load() }

// Statuses returns the number of heartbeats by status.
func (a *answers) Statuses() map[historyv1.Status]int64 {
	m := make(map[historyv1.Status]int64)
	for i := range a.statuses {
		if n := a.statuses[i].Load(); n > 0 {
			m[historyv1.Status(i)] = n //nolint:gosec // a small constant range
		}
	}
	return m
}

func (a *answers) known(s historyv1.Status) bool { return s > 0 && int(s) < len(a.statuses) }

func (a *answers) count(s historyv1.Status) {
	a.statuses[s].Add(1)
	a.acked.Add(1)
}

// StatusName returns a status by its API name, such as "stored".
func StatusName(s historyv1.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

// Progress shows d's progress towards total heartbeats until the caller calls done: a bar on a terminal, else a
// line every few seconds.
func Progress(out *os.File, total int, d interface{ Acked() int64 }) (done func()) {
	show, every := lines(out, total), 5*time.Second
	if term.IsTerminal(int(out.Fd())) { //nolint:gosec // a file descriptor
		show, every = bar(out, total), 100*time.Millisecond
	}
	stop := run.Beside(every, func() { show(d.Acked()) })
	return func() {
		stop()
		show(d.Acked())
	}
}

func bar(out io.Writer, total int) func(int64) {
	b := progressbar.NewOptions(total, progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
		progressbar.OptionSetDescription("replay"), progressbar.OptionShowIts(), progressbar.OptionShowCount(),
		progressbar.OptionSetItsString("heartbeats"), progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish())
	return func(n int64) { _ = b.Set64(n) } // drawing is best effort
}

func lines(out io.Writer, total int) func(int64) {
	began := time.Now()
	return func(n int64) {
		rate := float64(n) / time.Since(began).Seconds()
		fmt.Fprintf(out, "replay: %d of %d heartbeats, %.0f/s\n", n, total, rate)
	}
}

// ErrRefused means that the service found a heartbeat invalid.
var ErrRefused = errors.New("refused by the service")
