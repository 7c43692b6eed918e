package api

import (
	"context"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type continueInput struct {
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Type   uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Series string `query:"series" maxLength:"1024" default:"series" doc:"The entry of meta that names what an object is a part of: of those with the same value only the newest is listed."`
}

func (a *api) unfinished(ctx context.Context, in *continueInput) (*shelf, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Continue(ctx, &historyv1.ContinueRequest{Uid: uidOf(ctx), Limit: in.Limit, Type: in.Type, Series: in.Series})
	if err != nil { // never to be taken for "nothing to go on with"
		return nil, err
	}
	return &shelf{Items: codec.NewRecords(resp.GetItems())}, nil
}
