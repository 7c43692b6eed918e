package bench

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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
