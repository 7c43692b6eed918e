package api

import (
	"context"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// lookback is among how many of the newest records unfinished ones are looked for, in
// pages: a row that invites to go on is about what is recent.
const lookback = 10

type continueInput struct {
	Limit uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Type  uint32 `query:"type" minimum:"1" maximum:"4294967295" doc:"Only objects of this type."`
}

func (a *api) unfinished(ctx context.Context, in *continueInput) (*shelf, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	out, looked := &shelf{Items: []*codec.Record{}}, 0
	for items, err := range a.pages(ctx, &historyv1.ListRequest{Uid: uidOf(ctx), Limit: pageSize, Type: in.Type}) {
		if err != nil { // never to be taken for "nothing to go on with"
			return nil, err
		}
		out.add(items, int(in.Limit))
		if looked++; looked == lookback || len(out.Items) == int(in.Limit) {
			break
		}
	}
	return out, nil
}

func (s *shelf) add(items []*historyv1.Item, limit int) {
	for _, it := range items {
		if len(s.Items) < limit && goesOn(it) {
			s.Items = append(s.Items, codec.NewRecord(it))
		}
	}
}

// goesOn reports whether the newest report of a record is from the middle. One that
// reached the end is at the time of the last completion.
func goesOn(it *historyv1.Item) bool {
	return it.PositionMs > 0 && it.State != historyv1.State_STATE_FINISHED && it.CompletedAtMs < it.EventTimeMs
}
