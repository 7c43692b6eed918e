package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/playhead/playhead/e2e/process"
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
// compaction, what deletes have masked. It returns when the log says that each is done.
func (s *stack) compact(ctx context.Context) error {
	log := s.es["hbase"].Nodes[0].Log
	before, err := os.Stat(log)
	if err != nil {
		return err
	}
	regions, err := s.compactRegions(ctx)
	if err != nil {
		return err
	}
	return process.Await(ctx, 60*time.Second, "a major compaction", func(context.Context) error {
		f, err := os.Open(log) //nolint:gosec // the engine's own
		if err != nil {
			return err
		}
		defer f.Close()
		said, err := io.ReadAll(io.NewSectionReader(f, before.Size(), 1<<30))
		if err != nil {
			return err
		}
		for _, r := range regions {
			done := regexp.MustCompile("Completed major compaction .* in " + r + "/")
			if !done.Match(said) {
				return fmt.Errorf("region %s is not compacted", r)
			}
		}
		return nil
	})
}

// compactRegions begins it and returns the short names of the regions.
func (s *stack) compactRegions(ctx context.Context) (regions []string, err error) {
	client := gohbase.NewClient(s.es["hbase"].Addr())
	defer client.Close()
	scan, err := hrpc.NewScanRangeStr(ctx, "hbase:meta", s.name+",,", s.name+"-")
	if err != nil {
		return nil, err
	}
	for rows := client.Scan(scan); ; {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return regions, nil
		}
		if err != nil {
			return nil, fmt.Errorf("scan hbase:meta: %w", err)
		}
		r, addr, err := region.ParseRegionInfo(row)
		if err != nil {
			continue // a row of meta that is no region
		}
		if err := compactRegion(ctx, r, addr); err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(string(r.Name()), ".")
		regions = append(regions, name[strings.LastIndexByte(name, '.')+1:])
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
