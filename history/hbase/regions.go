package hbase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"
)

// Spread has the regions of a table.
type Spread struct {
	Table string
	// Regions counts them by address of their server; 0 for a live server without one.
	Regions map[string]int
}

// Spread returns the regions of the archive's tables, as the master counts them. Region servers report to it every
// few seconds.
func (a *Archive) Spread(ctx context.Context) (all []Spread, err error) {
	var status *pb.ClusterStatus
	err = a.within(ctx, func(ctx context.Context) error {
		status, err = clusterStatus(ctx, a.config)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("regions: %s", brief(err))
	}
	tables := []string{a.config.Table, string(a.segments.table), string(a.summaries.table), string(a.Counters().countTable())}
	return spreads(status, tables), nil
}

func clusterStatus(ctx context.Context, c Config) (*pb.ClusterStatus, error) {
	var answer proto.Message
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := status{list}
		if err == nil {
			answer, err = admin.(gohbase.RPCClient).SendRPC(call)
		}
		return call, err
	})
	got, ok := answer.(*pb.GetClusterStatusResponse)
	if err == nil && !ok {
		err = errors.New("no status of the cluster")
	}
	return got.GetClusterStatus(), err
}

// status asks the master for the state of the cluster. The client's own call has no deadline.
type status struct{ *hrpc.ListTableNames }

func (status) Name() string { return "GetClusterStatus" }

func (s status) Description() string { return s.Name() }

func (status) ToProto() proto.Message { return &pb.GetClusterStatusRequest{} }

func (status) NewResponse() proto.Message { return &pb.GetClusterStatusResponse{} }

// spreads returns the regions of those of the tables that have any.
func spreads(s *pb.ClusterStatus, tables []string) (all []Spread) {
	for _, table := range tables {
		regions, found := make(map[string]int), 0
		for _, live := range s.GetLiveServers() {
			n := regionsOn(live, table)
			regions[serverAddr(live)], found = n, found+n
		}
		if found > 0 {
			all = append(all, Spread{table, regions})
		}
	}
	return all
}

// regionsOn counts the regions of a table on a server. Their names begin with the table's, and a comma.
func regionsOn(s *pb.LiveServerInfo, table string) (n int) {
	for _, load := range s.GetServerLoad().GetRegionLoads() {
		if bytes.HasPrefix(load.GetRegionSpecifier().GetValue(), []byte(table+",")) {
			n++
		}
	}
	return n
}

func serverAddr(s *pb.LiveServerInfo) string {
	return net.JoinHostPort(s.GetServer().GetHostName(), strconv.Itoa(int(s.GetServer().GetPort())))
}
