package hbase

import (
	"context"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"
)

// withAdmin lends a client of the master. do returns the call that it made.
func withAdmin(c Config, do func(gohbase.AdminClient) (hrpc.Call, error)) error {
	d := &dialer{}
	defer d.close()
	call, err := do(gohbase.NewAdminClient(c.ZooKeeper, d.options()...))
	hangUp(call)
	return err
}

// hangUp closes the connection to the master that carried the call. The client's own
// Close panics.
func hangUp(call hrpc.Call) {
	if master := call.Region(); master != nil {
		if conn := master.Client(); conn != nil {
			conn.Close()
		}
	}
}

// describe asks the master for the descriptor of one table, which the client has no
// call for: it is another list call with another request.
type describe struct {
	*hrpc.ListTableNames
	table string
}

func (d describe) Name() string { return "GetTableDescriptors" }

func (d describe) Description() string { return d.Name() }

func (d describe) ToProto() proto.Message {
	return &pb.GetTableDescriptorsRequest{TableNames: []*pb.TableName{
		{Namespace: []byte("default"), Qualifier: []byte(d.table)},
	}}
}

func (d describe) NewResponse() proto.Message { return &pb.GetTableDescriptorsResponse{} }

// describeTable returns the attributes of the table's family, nil when it has no
// such family.
func describeTable(ctx context.Context, c Config) (map[string]string, error) {
	var answer proto.Message
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := describe{list, c.Table}
		if err == nil {
			answer, err = admin.(gohbase.RPCClient).SendRPC(call)
		}
		return call, err
	})
	tables, _ := answer.(*pb.GetTableDescriptorsResponse)
	for _, t := range tables.GetTableSchema() {
		for _, f := range t.GetColumnFamilies() {
			if string(f.GetName()) == family {
				return attributes(f.GetAttributes()), nil
			}
		}
	}
	return nil, err
}

func attributes(pairs []*pb.BytesBytesPair) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[string(p.GetFirst())] = string(p.GetSecond())
	}
	return m
}
