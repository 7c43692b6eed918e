package api

import (
	"context"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// heartbeats stores what can be stored and says of each what became of it. The
// whole request fails only when none of it was looked at.
func (a *api) heartbeats(ctx context.Context, in *upload) (*results, error) {
	var batch *codec.Batch
	err := a.read(in, func(body []byte) (err error) {
		batch, err = codec.DecodeBatch(uidOf(ctx), body)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.spend(ctx, len(batch.Heartbeats))
	resp, err := a.apply(ctx, batch)
	if err != nil {
		return nil, err
	}
	list, err := batch.Results(resp)
	if err != nil {
		return nil, err
	}
	a.metrics.heartbeats(list)
	flag, first := batch.Today(resp)
	return &results{Results: list, FirstFlag: flag, FirstOfDay: first}, nil
}

func (a *api) apply(ctx context.Context, batch *codec.Batch) (*historyv1.ApplyResponse, error) {
	if len(batch.Heartbeats) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	return a.cfg.Service.Apply(ctx, batch.Request())
}
