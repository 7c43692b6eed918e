package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// regionCall is a call of a region server's AdminService, of which the client knows
// nothing: the region is field 1 of the request, major field 2.
type regionCall struct {
	*hrpc.ListTableNames
	name  string
	major bool
}

func (c regionCall) Name() string { return c.name }

func (c regionCall) ToProto() proto.Message {
	spec, err := proto.Marshal(&pb.RegionSpecifier{Type: hrpc.RegionSpecifierRegionName, Value: c.Region().Name()})
	if err != nil {
		return nil // a message of two fields that are set
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), spec)
	if c.major {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1)
	}
	m := &emptypb.Empty{}
	m.ProtoReflect().SetUnknown(b)
	return m
}

func (c regionCall) NewResponse() proto.Message { return &emptypb.Empty{} }

// compact flushes all regions of the table and makes HBase forget, by a major
// compaction, what deletes have masked. It returns when that has begun.
func (s *stack) compact(ctx context.Context) error {
	client := gohbase.NewClient(s.es["hbase"].Addr())
	defer client.Close()
	scan, err := hrpc.NewScanRangeStr(ctx, "hbase:meta", s.name+",,", s.name+"-")
	if err != nil {
		return err
	}
	for rows := client.Scan(scan); ; {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("scan hbase:meta: %w", err)
		}
		r, addr, err := region.ParseRegionInfo(row)
		if err != nil {
			continue // a row of meta that is no region
		}
		if err := compactRegion(ctx, r, addr); err != nil {
			return err
		}
	}
}

func compactRegion(ctx context.Context, r hrpc.RegionInfo, addr string) error {
	server := region.NewClient(addr, "AdminService", 1, 0, "root", 10*time.Second, nil, nil)
	if err := server.Dial(ctx); err != nil {
		return err
	}
	defer server.Close()
	for _, call := range []regionCall{{name: "FlushRegion"}, {name: "CompactRegion", major: true}} {
		list, err := hrpc.NewListTableNames(ctx)
		if err != nil {
			return err
		}
		call.ListTableNames = list
		call.SetRegion(r)
		server.QueueRPC(call)
		select {
		case result := <-call.ResultChan():
			if result.Error != nil {
				return fmt.Errorf("%s: %w", call.name, result.Error)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
