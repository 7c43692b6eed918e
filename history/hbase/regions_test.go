package hbase_test

import (
	"reflect"
	"testing"

	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history/hbase"
)

func regionServer(host string, regions ...string) *pb.LiveServerInfo {
	s := &pb.LiveServerInfo{Server: &pb.ServerName{HostName: &host, Port: proto.Uint32(16020)}, ServerLoad: &pb.ServerLoad{}}
	for _, name := range regions {
		s.ServerLoad.RegionLoads = append(s.ServerLoad.RegionLoads, &pb.RegionLoad{RegionSpecifier: &pb.RegionSpecifier{Value: []byte(name)}})
	}
	return s
}

// TestSpreads counts regions by table and server. Other tables do not count, also if their names begin alike.
func TestSpreads(t *testing.T) {
	status := &pb.ClusterStatus{LiveServers: []*pb.LiveServerInfo{
		regionServer("a", "history,,17.0a.", "history,80,17.0b.", "history_segments,,17.0c.", "history2,,17.0d.", "hbase:meta,,1"),
		regionServer("b", "history,40,17.0e.", "other:history,,17.0f."),
		regionServer("c"),
	}}
	want := []hbase.Spread{
		{Table: "history", Regions: map[string]int{"a:16020": 2, "b:16020": 1, "c:16020": 0}},
		{Table: "history_segments", Regions: map[string]int{"a:16020": 1, "b:16020": 0, "c:16020": 0}},
	}
	got := hbase.Spreads(status, []string{"history", "history_segments", "history_summaries"})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
