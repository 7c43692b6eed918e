package api

import (
	"context"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const maxDelete = 1000

type clearInput struct {
	Type  uint32 `query:"type" minimum:"1" maximum:"4294967295" doc:"Only objects of this type."`
	Until string `query:"until" format:"date-time" doc:"Nothing after it; now by default. In a query a + is written as %2B."`
}

func (a *api) deleteOne(ctx context.Context, in *objectInput) (*deleted, error) {
	return a.delete(ctx, in.objects())
}

func (a *api) deleteSome(ctx context.Context, in *upload) (*deleted, error) {
	objects, err := a.objects(ctx, in, maxDelete)
	if err != nil {
		return nil, err
	}
	return a.delete(ctx, objects)
}

func (a *api) delete(ctx context.Context, objects []*historyv1.Object) (*deleted, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Delete(ctx, &historyv1.DeleteRequest{Uid: uidOf(ctx), Objects: objects})
	if err != nil {
		return nil, err
	}
	return &deleted{Deleted: resp.Deleted}, nil
}

func (a *api) deleteAll(ctx context.Context, in *clearInput) (*cleared, error) {
	until, err := queryTime("query.until", in.Until)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.WriteDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Clear(ctx, &historyv1.ClearRequest{Uid: uidOf(ctx), Type: in.Type, UntilMs: until})
	if err != nil {
		return nil, err
	}
	return &cleared{Until: codec.FormatTime(resp.ClearedMs)}, nil
}
