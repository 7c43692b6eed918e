package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type stream = grpc.BidiStreamingClient[historyv1.ApplyStreamRequest, historyv1.ApplyStreamResponse]

var (
	errAgain   = errors.New("the service could not store a batch")
	errSilent  = errors.New("the service does not answer")
	errGarbled = errors.New("the answer of the service does not belong to the batch")
)

// stream sends what is left of the lane over one stream.
func (l *lane) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s, err := historyv1.NewHistoryServiceClient(l.driver.Conn).ApplyStream(ctx)
	if err != nil {
		return err
	}
	sent := make(chan int, l.driver.Depth) // the sizes of the batches under way
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

// send sends batches until all are sent. It does not touch l.beats, which moves on
// with the acknowledgements.
func (l *lane) send(ctx context.Context, s stream, beats []int32, sent chan<- int) error {
	req := newRequest(l.driver.Window)
	for seq := uint64(1); len(beats) > 0; seq++ {
		n, err := l.due(ctx, beats)
		if err != nil {
			return err
		}
		select {
		case sent <- n:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.Send(req.fill(seq, l.plan, beats[:n])); err != nil {
			return nil // the reason comes from Recv
		}
		beats = beats[n:]
	}
	return s.CloseSend()
}

// due waits for the next heartbeat's time and returns how many may go with it.
func (l *lane) due(ctx context.Context, beats []int32) (int, error) {
	most := min(len(beats), l.driver.Window)
	if l.driver.Speed <= 0 {
		return most, nil
	}
	if d := time.Until(l.when(beats[0])); d > 0 {
		wait(ctx, d)
	}
	n := 1
	for n < most && time.Until(l.when(beats[n])) <= 0 {
		n++
	}
	return n, ctx.Err()
}

// when says when to send a heartbeat.
func (l *lane) when(i int32) time.Time {
	ms := float64(l.plan.beats[i].at-l.plan.beats[0].at) / l.driver.Speed
	return l.began.Add(time.Duration(ms * float64(time.Millisecond)))
}

// receive takes the acknowledgements of the batches in the order they were sent. It
// calls silent when one of them does not come.
func (l *lane) receive(s stream, sent <-chan int, silent func()) error {
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
			return fmt.Errorf("%w: sequence %d, want %d", errGarbled, resp.GetSequence(), seq)
		}
		if err := l.driver.note(resp.GetResult(), n); err != nil {
			return err
		}
		l.beats = l.beats[n:]
	}
	return nil
}

// note counts the answer to n heartbeats. It fails when one of them must be sent
// again, or never.
func (d *Driver) note(r *historyv1.ApplyResponse, n int) error {
	if refused := r.GetRefusals(); len(refused) > 0 {
		return fmt.Errorf("%w: %s: %s", ErrRefused, refused[0].GetField(), refused[0].GetReason())
	}
	if got := len(r.GetStatuses()); got != n {
		return fmt.Errorf("%w: %d statuses for %d heartbeats", errGarbled, got, n)
	}
	for _, s := range r.GetStatuses() {
		switch {
		case s == historyv1.Status_STATUS_UNAVAILABLE:
			return errAgain
		case !d.known(s):
			return fmt.Errorf("%w: status %d", errGarbled, s)
		}
	}
	for _, s := range r.GetStatuses() {
		d.answers.note(s)
	}
	return nil
}

// request is a batch whose messages are used again: gRPC has encoded them when Send
// returns.
type request struct {
	msg   historyv1.ApplyStreamRequest
	beats []historyv1.Heartbeat
}

func newRequest(window int) *request {
	return &request{beats: make([]historyv1.Heartbeat, window)}
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

// heartbeat fills in heartbeat i.
func (p *Plan) heartbeat(i int, hb *historyv1.Heartbeat) {
	e := p.Event(i)
	hb.Uid, hb.ObjectId, hb.ObjectType = e.Key.UID, e.Key.Object.ID, e.Key.Object.Type
	hb.Kind, hb.EventTimeMs = historyv1.Kind(e.Kind), e.At
	hb.PositionMs, hb.DurationMs = e.Position, e.Duration
	hb.Session, hb.Device = e.Session, e.Device
}
