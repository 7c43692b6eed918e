package hbase

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
)

// Open is [New] and [Archive.Prepare]: a cluster that does not answer is an error
// within the deadline. The caller closes the archive.
func Open(ctx context.Context, c Config) (*Archive, error) {
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	if err := a.Prepare(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// Prepare makes the table when it is missing and checks it when it is there: an
// archive that keeps cells for another time than [history.ArchiveLife] is refused.
// It fails with [history.ErrUnavailable] when another try may succeed.
func (a *Archive) Prepare(ctx context.Context) error {
	if err := a.prepare(ctx, a.config); err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	a.prepared.Store(true)
	return nil
}

const (
	life         = history.ArchiveLife / 1000 // seconds
	createWithin = 2 * time.Minute            // 256 regions took 8 s on a small machine
	appearEvery  = 100 * time.Millisecond
)

// prepare makes or checks the table.
func (a *Archive) prepare(ctx context.Context, c Config) error {
	if err := a.within(ctx, func(ctx context.Context) error { return a.dialer.reach(ctx, c.ZooKeeper) }); err != nil {
		return fmt.Errorf("%w: no ZooKeeper at %s: start HBase or correct the address: %w", history.ErrUnavailable, c.ZooKeeper, err)
	}
	err := a.within(ctx, a.probe)
	if errors.Is(err, gohbase.TableNotFound) {
		err = a.create(ctx, c)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: HBase behind ZooKeeper %s does not answer%s: see that its servers run and that their names resolve here: %w",
			history.ErrUnavailable, c.ZooKeeper, a.dialer.reason(), err)
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", c.Table, classify(err))
	}
	return a.within(ctx, func(ctx context.Context) error { return checkTable(ctx, c) })
}

// checkTable refuses a table that forgets sooner or later than the archive should.
// Reads and writes need no master: without one the table is taken as it is.
func checkTable(ctx context.Context, c Config) error {
	family, err := describeTable(ctx, c)
	if err != nil {
		c.Logger.Warn("table not checked, the master of hbase does not answer", "table", c.Table, "err", brief(err))
		return nil
	}
	if ttl := family["TTL"]; ttl != strconv.Itoa(life) {
		return fmt.Errorf("table %s keeps cells for %q seconds: alter '%s', {NAME => 'info', TTL => %d}", c.Table, ttl, c.Table, life)
	}
	return nil
}

func (a *Archive) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return do(ctx)
}

// probe reads a row that no user has. It needs the region and the family.
func (a *Archive) probe(ctx context.Context) error {
	get, err := hrpc.NewGet(ctx, a.table, []byte("#"), hrpc.Families(map[string][]string{family: nil}), hrpc.SkipBatch())
	if err == nil {
		_, err = a.client.Get(get)
	}
	return err
}

// create makes the table, or waits for it when another process was quicker.
func (a *Archive) create(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		call := hrpc.NewCreateTable(ctx, a.table, map[string]map[string]string{family: {
			"VERSIONS": "1", "TTL": strconv.Itoa(life), "BLOOMFILTER": "ROW", "COMPRESSION": strings.ToUpper(c.Compression),
		}}, hrpc.SplitKeys(splitKeys(c.Regions)))
		return call, admin.CreateTable(call)
	})
	if err != nil && !strings.Contains(err.Error(), "org.apache.hadoop.hbase.TableExistsException") {
		return fmt.Errorf("create: %w", err)
	}
	return a.waitForTable(ctx)
}

// waitForTable waits until the table can be read.
func (a *Archive) waitForTable(ctx context.Context) error {
	for {
		err := a.probe(ctx)
		if !errors.Is(err, gohbase.TableNotFound) {
			return err
		}
		select {
		case <-time.After(appearEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withAdmin lends a client of the master. do returns the call that it made.
func withAdmin(c Config, do func(gohbase.AdminClient) (hrpc.Call, error)) error {
	d := &dialer{}
	defer d.close()
	call, err := do(gohbase.NewAdminClient(c.ZooKeeper, d.options()...))
	closeMaster(call)
	return err
}

// closeMaster closes the connection to the master that carried the call. The client's own
// Close panics.
func closeMaster(call hrpc.Call) {
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
