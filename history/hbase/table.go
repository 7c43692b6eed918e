package hbase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
)

// Open is [New] followed by [Archive.Prepare]. An unresponsive cluster is an error within the deadline. The caller
// closes the archive.
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

// Prepare creates missing tables and checks existing ones. A table with another retention than that of the rules is
// refused. Prepare fails with [history.ErrUnavailable] if a retry may succeed.
func (a *Archive) Prepare(ctx context.Context) error { return a.open(ctx, a.config) }

// Probe is [Archive.Prepare] without its warnings, to be repeated.
func (a *Archive) Probe(ctx context.Context) error {
	c := a.config
	c.Logger = slog.New(slog.DiscardHandler)
	return a.open(ctx, c)
}

func (a *Archive) open(ctx context.Context, c Config) error {
	if err := a.prepare(ctx, c); err != nil {
		return fmt.Errorf("open archive: %w", err)
	}
	a.prepared.Store(true)
	return nil
}

const (
	createWithin = 2 * time.Minute // 256 regions took 8 s on a small machine
	appearEvery  = 100 * time.Millisecond
)

// lives returns the accepted TTLs of user rows in seconds; new tables get the last. With 90 days that is one more, for a
// table whose every process can read segments: older versions insist on 90 days and refuse it.
func lives(keep int64) []int {
	ttl := int(keep / 1000)
	if keep == history.DefaultRetention {
		return []int{ttl, ttl + 1}
	}
	return []int{ttl}
}

// shape is a table's name and families. Tables of older versions have only the first family.
type shape struct {
	name     string
	families []string
	lives    []int  // accepted TTLs in seconds; new tables get the last
	forever  string // a family without a TTL
	chunks   bool   // each row has one compressed chunk or list
}

func (s shape) newLife(family string) int {
	lives := s.livesOf(family)
	return lives[len(lives)-1]
}

func (s shape) livesOf(family string) []int {
	if family == s.forever {
		return []int{history.Forever / 1000}
	}
	return s.lives
}

// prepare creates or checks the tables.
func (a *Archive) prepare(ctx context.Context, c Config) error {
	if err := a.within(ctx, func(ctx context.Context) error { return a.dialer.reach(ctx, c.ZooKeeper) }); err != nil {
		return fmt.Errorf("%w: no ZooKeeper at %s: start HBase or correct the address: %w", history.ErrUnavailable, c.ZooKeeper, err)
	}
	rows := shape{name: c.Table, families: []string{family, lateFamily}, lives: lives(c.Rules.Retention().Keep)}
	if err := a.findTable(ctx, c, rows); err != nil {
		return err
	}
	if err := a.agree(ctx, c); err != nil {
		return err
	}
	keep := c.Rules.Retention().Keep
	rows.lives = lives(keep)
	if err := a.within(ctx, func(ctx context.Context) error { return a.checkTable(ctx, c, rows) }); err != nil {
		return err
	}
	if err := a.prepareSummaries(ctx, c); err != nil {
		return err
	}
	if c.Counts {
		if err := a.prepareTable(ctx, c, countShape(c, keep)); err != nil {
			return err
		}
	}
	if err := a.answer(c, rows, a.within(ctx, a.readMark)); err != nil || c.CompactAbove == 0 || !a.mayCompact() {
		return err
	}
	if err := a.answer(c, rows, a.addFamily(ctx, c, rows, lateFamily)); err != nil {
		return err
	}
	if err := a.prepareTable(ctx, c, shape{name: string(a.segments.table), families: []string{segmentFamily}, lives: []int{int(keep / 1000)}, chunks: true}); err != nil {
		return err
	}
	return a.answer(c, rows, a.within(ctx, a.BeginCompacting))
}

// prepareSummaries enables summaries with the configured TTL.
func (a *Archive) prepareSummaries(ctx context.Context, c Config) error {
	if c.Summary == 0 {
		return nil
	}
	t := shape{name: string(a.summaries.table), families: []string{segmentFamily}, lives: []int{int(c.Summary.Seconds()) + summaryMargin}, chunks: true}
	if err := a.prepareTable(ctx, c, t); err != nil {
		return err
	}
	return a.answer(c, t, a.within(ctx, a.BeginSummaries))
}

// summaryMargin is how much longer HBase keeps summaries than readers see them, in seconds.
const summaryMargin = 24 * 3600

// BeginSummaries writes the TTL of summaries into their table. [Archive.Prepare] calls it.
func (a *Archive) BeginSummaries(ctx context.Context) error {
	value := strconv.AppendInt(nil, a.config.Summary.Milliseconds(), 10)
	put, err := hrpc.NewPut(ctx, a.summaries.table, []byte(markRow), map[string]map[string][]byte{segmentFamily: {segmentColumn: value}},
		hrpc.TimestampUint64(uint64(a.now()+future)))
	if err == nil {
		_, err = a.client.Put(put)
	}
	a.summaries.asked.Store(0)
	return err
}

func (a *Archive) prepareTable(ctx context.Context, c Config, t shape) error {
	if err := a.findTable(ctx, c, t); err != nil {
		return err
	}
	return a.within(ctx, func(ctx context.Context) error { return a.checkTable(ctx, c, t) })
}

// findTable creates a missing table.
func (a *Archive) findTable(ctx context.Context, c Config, t shape) error {
	err := a.within(ctx, func(ctx context.Context) error { return a.probe(ctx, t.name, t.families[0]) })
	if errors.Is(err, gohbase.TableNotFound) && !c.Existing {
		err = a.create(ctx, c, t)
	}
	return a.answer(c, t, err)
}

// mayCompact reports whether the table permits segments or already has some. Otherwise it logs the required change,
// once.
func (a *Archive) mayCompact() bool {
	if a.segments.readers.Load() {
		return true
	}
	if !a.segments.warned.Swap(true) {
		a.config.Logger.Warn("the table does not say that every process can read segments: alter it when all of them can, and start this one again",
			"compacted", a.segments.known(), "alter", fmt.Sprintf("alter '%s', {NAME => '%s', TTL => %d}", a.config.Table, family, history.DefaultRetention/1000+1))
	}
	return a.segments.known()
}

// answer adds the cause and a remedy to an error.
func (a *Archive) answer(c Config, t shape, err error) error {
	switch {
	case err == nil:
		return nil
	case javaClass(err) == noAccess: // no retry gives a right
		return fmt.Errorf("table %s: HBase refuses the user %[2]s: grant '%[2]s', 'RWC', '%[1]s', or '@default' to create tables: %[3]s", t.name, user, brief(err))
	case errors.Is(err, context.DeadlineExceeded) && a.disabled(t.name):
		return fmt.Errorf("%w: table %s is disabled: enable '%s'", history.ErrUnavailable, t.name, t.name)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: HBase behind ZooKeeper %s does not answer%s: see that its servers run and that their names resolve here: %w",
			history.ErrUnavailable, c.ZooKeeper, a.dialer.reason(), err)
	}
	return fmt.Errorf("table %s: %w", t.name, classify(err))
}

// stateWithin bounds the read of a table's state, after a call has failed.
const stateWithin = time.Second

// disabled reports whether a table was disabled: the client looks for its regions in vain until the deadline. The
// state is a message in the table of tables, whose first field is 1 then.
func (a *Archive) disabled(table string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), stateWithin)
	defer cancel()
	get, err := hrpc.NewGetStr(ctx, "hbase:meta", table, hrpc.Families(map[string][]string{"table": {"state"}}), hrpc.SkipBatch())
	if err != nil {
		return false
	}
	result, err := a.client.Get(get)
	return err == nil && len(result.Cells) == 1 && bytes.Equal(result.Cells[0].Value, []byte{1 << 3, 1})
}

// checkTable refuses a table with a wrong TTL, and warns of one that is tuned otherwise. Without a master, which reads
// and writes do not need, the check is skipped.
func (a *Archive) checkTable(ctx context.Context, c Config, t shape) error {
	families, err := describeTable(ctx, c, t.name)
	switch {
	case err == nil && len(families) == 0:
		err = errors.New("the master does not know it yet")
	case err != nil && javaClass(err) == noAccess:
		err = fmt.Errorf("grant '%s', 'RWC', '%s': %s", user, t.name, brief(err))
	}
	if err != nil {
		c.Logger.Warn("table not checked by HBase's master", "table", t.name, "error", brief(err))
		return nil
	}
	for i, name := range t.families {
		f, ok := families[name]
		seconds := ttlOf(f)
		if lives := t.livesOf(name); (ok || i == 0) && !slices.Contains(lives, seconds) {
			return fmt.Errorf("table %s keeps cells of %s for %d seconds, not %d: %s", t.name, name, seconds, lives[0], a.remedy(c, t, name))
		}
		if alter := t.retune(f); ok && alter != "" {
			c.Logger.Warn("table is tuned otherwise", "table", t.name, "alter", fmt.Sprintf("alter '%s', {NAME => '%s'%s}", t.name, name, alter))
		}
		if name == family && seconds != history.DefaultRetention/1000 {
			a.segments.readers.Store(true)
		}
	}
	return nil
}

func (a *Archive) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	return do(ctx)
}

// probe reads an unused row. It fails if the region or the family is missing.
func (a *Archive) probe(ctx context.Context, table, family string) error {
	get, err := hrpc.NewGetStr(ctx, table, "#", hrpc.Families(map[string][]string{family: nil}), hrpc.SkipBatch())
	if err == nil {
		_, err = a.client.Get(get)
	}
	return err
}

// create creates a table, or waits for it if another process creates it.
func (a *Archive) create(ctx context.Context, c Config, t shape) error {
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	families := make(map[string]map[string]string, len(t.families))
	for _, name := range t.families {
		families[name] = t.attributes(c, name)
	}
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		call := hrpc.NewCreateTable(ctx, []byte(t.name), families, hrpc.SplitKeys(splitKeys(c.Regions)))
		return call, admin.CreateTable(call)
	})
	if err != nil && !strings.Contains(err.Error(), "org.apache.hadoop.hbase.TableExistsException") {
		return fmt.Errorf("create: %w", err)
	}
	return a.await(ctx, t.name, t.families[0], func(err error) bool { return errors.Is(err, gohbase.TableNotFound) })
}

// tuning returns the attributes that are the same in all tables of a form. DESIGN.md has the reasons.
func (s shape) tuning() map[string]string {
	if s.chunks {
		return map[string]string{"VERSIONS": "1", "BLOOMFILTER": "ROW", "COMPRESSION": "NONE", "DATA_BLOCK_ENCODING": "NONE"}
	}
	return map[string]string{"VERSIONS": "1", "BLOOMFILTER": "ROW", "DATA_BLOCK_ENCODING": "FAST_DIFF"}
}

// attributes returns those of a new family.
func (s shape) attributes(c Config, family string) map[string]string {
	all := map[string]string{"TTL": strconv.Itoa(s.newLife(family)), "COMPRESSION": strings.ToUpper(c.Compression)}
	maps.Copy(all, s.tuning())
	return all
}

// retune returns what to add to an alter of a family, "" for none.
func (s shape) retune(family map[string]string) (alter string) {
	tuning := s.tuning()
	for _, name := range slices.Sorted(maps.Keys(tuning)) {
		if is, known := family[name]; known && is != tuning[name] {
			alter += fmt.Sprintf(", %s => '%s'", name, tuning[name])
		}
	}
	return alter
}

// await polls until a family is readable.
func (a *Archive) await(ctx context.Context, table, family string, missing func(error) bool) error {
	for {
		err := a.probe(ctx, table, family)
		if err == nil || !missing(err) {
			return err
		}
		select {
		case <-time.After(appearEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// addFamily adds a family that older tables lack, or waits for it if another process adds it.
func (a *Archive) addFamily(ctx context.Context, c Config, t shape, family string) error {
	missing := func(err error) bool { return javaClass(err) == noFamily }
	err := a.within(ctx, func(ctx context.Context) error { return a.probe(ctx, t.name, family) })
	if err == nil || !missing(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, createWithin)
	defer cancel()
	err = withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := addColumn{list, t.name, family, t.attributes(c, family)}
		if err == nil {
			_, err = admin.(gohbase.RPCClient).SendRPC(call)
		}
		return call, err
	})
	if err != nil && !slices.Contains(anotherAdded, javaClass(err)) {
		return fmt.Errorf("add family: alter '%s', {NAME => '%s', TTL => %d, VERSIONS => 1}: %w", t.name, family, t.newLife(family), err)
	}
	return a.await(ctx, t.name, family, missing)
}

// anotherAdded lists the exceptions when another process added the family first.
var anotherAdded = []string{
	"org.apache.hadoop.hbase.InvalidFamilyOperationException", "org.apache.hadoop.hbase.ConcurrentTableModificationException",
}

// addColumn asks the master to add a family; the client has no such call.
type addColumn struct {
	*hrpc.ListTableNames
	table, family string
	attributes    map[string]string
}

func (c addColumn) Name() string { return "AddColumn" }

func (c addColumn) Description() string { return c.Name() }

func (c addColumn) ToProto() proto.Message {
	schema := &pb.ColumnFamilySchema{Name: []byte(c.family)}
	for name, value := range c.attributes {
		schema.Attributes = append(schema.Attributes, &pb.BytesBytesPair{First: []byte(name), Second: []byte(value)})
	}
	return &pb.AddColumnRequest{TableName: tableName(c.table), ColumnFamilies: schema}
}

func (c addColumn) NewResponse() proto.Message { return &pb.AddColumnResponse{} }

func tableName(table string) *pb.TableName {
	return &pb.TableName{Namespace: []byte("default"), Qualifier: []byte(table)}
}

// withAdmin calls do with a client of the master. do returns the call that it made.
func withAdmin(c Config, do func(gohbase.AdminClient) (hrpc.Call, error)) error {
	d := &dialer{}
	defer d.close()
	call, err := do(gohbase.NewAdminClient(c.ZooKeeper, d.options()...))
	closeMaster(call)
	return err
}

// closeMaster closes the connection to the master that carried the call. The client's own Close panics.
func closeMaster(call hrpc.Call) {
	if master := call.Region(); master != nil {
		if conn := master.Client(); conn != nil {
			conn.Close()
		}
	}
}

// describe asks the master for a table's descriptor. The client has no such call, so it wraps a list call.
type describe struct {
	*hrpc.ListTableNames
	table string
}

func (d describe) Name() string { return "GetTableDescriptors" }

func (d describe) Description() string { return d.Name() }

func (d describe) ToProto() proto.Message {
	return &pb.GetTableDescriptorsRequest{TableNames: []*pb.TableName{tableName(d.table)}}
}

func (d describe) NewResponse() proto.Message { return &pb.GetTableDescriptorsResponse{} }

// describeTable returns the attributes of the table's families.
func describeTable(ctx context.Context, c Config, table string) (map[string]map[string]string, error) {
	schema, err := schemaOf(ctx, c, table)
	families := make(map[string]map[string]string, len(schema))
	for name, f := range schema {
		families[name] = attributes(f.GetAttributes())
	}
	return families, err
}

// schemaOf returns the table's families; none if there is no such table.
func schemaOf(ctx context.Context, c Config, table string) (map[string]*pb.ColumnFamilySchema, error) {
	var answer proto.Message
	err := withAdmin(c, func(admin gohbase.AdminClient) (hrpc.Call, error) {
		list, err := hrpc.NewListTableNames(ctx)
		call := describe{list, table}
		if err == nil {
			answer, err = admin.(gohbase.RPCClient).SendRPC(call)
		}
		return call, err
	})
	tables, _ := answer.(*pb.GetTableDescriptorsResponse)
	families := make(map[string]*pb.ColumnFamilySchema)
	for _, t := range tables.GetTableSchema() {
		for _, f := range t.GetColumnFamilies() {
			families[string(f.GetName())] = f
		}
	}
	return families, err
}

func attributes(pairs []*pb.BytesBytesPair) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[string(p.GetFirst())] = string(p.GetSecond())
	}
	return m
}
