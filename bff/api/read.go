package api

import (
	"context"
	"fmt"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const maxLookup = 100

type listInput struct {
	Limit  uint32 `query:"limit" minimum:"1" maximum:"100" default:"20"`
	Cursor string `query:"cursor" maxLength:"512" doc:"From the page before."`
	Type   uint32 `query:"type" minimum:"1" maximum:"4294967295" format:"int64" doc:"Only objects of this type."`
	Since  string `query:"since" format:"date-time" doc:"Nothing before it. In a query a + is written as %2B."`
	Until  string `query:"until" format:"date-time" doc:"Nothing after it."`
}

func (a *api) list(ctx context.Context, in *listInput) (*page, error) {
	req, err := listRequest(ctx, in.Type, in.Since, in.Until)
	if err != nil {
		return nil, err
	}
	req.Limit, req.Cursor = in.Limit, in.Cursor
	resp, err := a.page(ctx, req)
	if err != nil {
		return nil, err
	}
	return &page{Items: codec.NewRecords(resp.Items), Cursor: resp.Cursor, HasMore: resp.HasMore}, nil
}

func listRequest(ctx context.Context, typ uint32, since, until string) (*historyv1.ListRequest, error) {
	req := &historyv1.ListRequest{Uid: uidOf(ctx), Type: typ}
	var err error
	if req.SinceMs, err = queryTime("query.since", since); err != nil {
		return nil, err
	}
	if req.UntilMs, err = queryTime("query.until", until); err != nil {
		return nil, err
	}
	return req, nil
}

func (a *api) point(ctx context.Context, in *pointInput) (*codec.Record, error) {
	records, err := a.points(ctx, []*historyv1.Object{{Id: in.ID, Type: in.Type}})
	if err != nil {
		return nil, err
	}
	if records[0] == nil {
		return nil, errNotFound
	}
	return records[0], nil
}

func (a *api) lookup(ctx context.Context, in *upload) (*lookup, error) {
	objects, err := a.objects(ctx, in, maxLookup)
	if err != nil {
		return nil, err
	}
	records, err := a.points(ctx, objects)
	if err != nil {
		return nil, err
	}
	return &lookup{Items: records}, nil
}

// points returns one record for each object, nil where there is none.
func (a *api) points(ctx context.Context, objects []*historyv1.Object) ([]*codec.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Points(ctx, &historyv1.PointsRequest{Uid: uidOf(ctx), Objects: objects})
	if err != nil {
		return nil, err
	}
	if len(resp.Items) != len(objects) { // never to be taken for "no record"
		return nil, fmt.Errorf("%d points for %d objects", len(resp.Items), len(objects))
	}
	return codec.NewRecords(resp.Items), nil
}

func (a *api) objects(ctx context.Context, in *upload, limit int) (objects []*historyv1.Object, err error) {
	err = a.read(in, func(body []byte) (err error) {
		objects, err = codec.DecodeObjects(body, limit)
		return err
	})
	a.spend(ctx, len(objects))
	return objects, err
}

func queryTime(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return codec.ParseTime(field, []byte(text))
}
