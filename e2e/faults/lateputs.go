package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"
	"github.com/tsuna/gohbase/pb"
	"github.com/tsuna/gohbase/region"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	jobarchive "github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/obs"
)

// latePuts holds a job's puts, deletes everything, and lets another job archive the deletes. Then the puts land:
// on the tombstones, after a major compaction has dropped the masked cells, and after a second delivery of the
// queue.
func latePuts(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{jobs: noJobs}); err != nil {
		return err
	}
	late := &lateArchive{}
	holding := func(a history.Archive) history.Archive {
		late.Archive = a
		return late
	}
	slow, err := t.stack.startInner(ctx, t.stack.name, unspoiled, holding)
	if err != nil {
		return err
	}
	other, err := t.stack.startInner(ctx, t.stack.name+"_other", unspoiled, plain)
	if err != nil {
		return errors.Join(err, slow.stop())
	}
	return errors.Join(t.landLate(ctx, late), slow.stop(), other.stop())
}

func (t *trial) landLate(ctx context.Context, late *lateArchive) error {
	hold := func(held bool) step {
		return func(context.Context) error {
			late.hold(held)
			return nil
		}
	}
	archived := func(ctx context.Context) error {
		return process.Await(ctx, t.Limit, "the tombstones to be archived by the other job", t.stack.clean)
	}
	land := func(when string) step {
		return func(ctx context.Context) error {
			n, err := late.land(ctx)
			if t.res.note("%d late puts landed %s", n, when); err == nil && n == 0 {
				err = errors.New("no put was held back")
			}
			return err
		}
	}
	return inTurn(ctx, t.underLoad(wait(time.Second), hold(true), wait(2*time.Second)), t.removeAll, archived, land("on tombstones"),
		hold(false), t.markClean, t.stack.compact, land("after a major compaction"), t.markClean, t.redeliver, t.markClean)
}

func (t *trial) removeAll(ctx context.Context) error {
	byUser := make(map[string][]history.Key)
	for k := range t.book.stories {
		byUser[k.UID] = append(byUser[k.UID], k)
	}
	for _, keys := range byUser {
		if err := t.book.remove(ctx, t.stack.rpcs[len(keys)%2], keys, time.Now().UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// redeliver has a job of another group process the whole queue again.
func (t *trial) redeliver(ctx context.Context) error {
	watch, end := context.WithCancel(ctx)
	defer end()
	before, n := t.stack.jobs, len(t.stack.jobs)
	if err := t.stack.addJob(ctx, watch, n, "--kafka-group", t.stack.name+"_again"); err != nil {
		return err
	}
	again := t.stack.jobs[n]
	t.stack.jobs = before
	if err := again.awaitReady(ctx, 30*time.Second); err != nil {
		return err
	}
	_, ends, err := t.stack.offsets(ctx, t.stack.name, t.stack.name)
	if err != nil {
		return err
	}
	var all int64
	for _, at := range ends {
		all += at
	}
	return process.Await(ctx, 30*time.Second, "the second delivery", atLeast(float64(all), []*unit{again}, "playhead_job_messages_total"))
}

// lateArchive is an archive that holds puts without an answer and lands them later, like a call sent just before
// its deadline.
type lateArchive struct {
	history.Archive

	mu   sync.Mutex
	held bool
	late []history.Cell
}

func (a *lateArchive) Put(ctx context.Context, cells []history.Cell) []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.held {
		return a.Archive.Put(ctx, cells)
	}
	a.late = append(a.late, cells...)
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = fmt.Errorf("held back: %w", history.ErrUnavailable)
	}
	return errs
}

func (a *lateArchive) hold(held bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = held
}

// land applies the held puts, and keeps them for another time.
func (a *lateArchive) land(ctx context.Context) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.late), errors.Join(a.Archive.Put(ctx, a.late)...)
}

// regionCall is a call of a region server's AdminService that the client lacks: the region is field 1 of the
// request, major field 2.
type regionCall struct {
	*hrpc.ListTableNames
	name  string
	major bool
}

func (c regionCall) Name() string { return c.name }

func (c regionCall) ToProto() proto.Message {
	spec, err := proto.Marshal(&pb.RegionSpecifier{Type: hrpc.RegionSpecifierRegionName, Value: c.Region().Name()})
	if err != nil {
		return nil // both fields are set: Marshal cannot fail
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

// compact flushes all regions of the table and runs a major compaction, which drops the cells masked by deletes.
// It returns when the log reports each as done.
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

// compactRegions starts the compaction and returns the short names of the regions.
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
			continue // a row of meta without a region
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

// innerJob is a job in this process on the real engines, whose store calls can be spoiled.
type innerJob struct {
	counter func(name string) (float64, error)
	end     context.CancelFunc
	done    chan error
	closers []func() error
}

// startInner starts a job of a group. stop closes its stores.
func (s *stack) startInner(ctx context.Context, group string, spoil spoiler, archive func(history.Archive) history.Archive) (*innerJob, error) {
	cache, err := redis.Open(ctx, s.cacheConfig())
	if err != nil {
		return nil, err
	}
	in := &innerJob{closers: []func() error{cache.Close}}
	table, err := hbase.Open(ctx, hbase.Config{ZooKeeper: s.es["hbase"].Addr(), Table: s.name, Regions: 4})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.closers = append(in.closers, table.Close)
	queue, err := kafka.Open(ctx, kafka.Config{Brokers: []string{s.es["kafka"].Addr()}, Topic: s.name, Group: group, Partitions: 8, Replication: 1})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.closers = append(in.closers, queue.Close)
	registry := obs.NewRegistry()
	in.counter = func(name string) (sum float64, err error) {
		families, err := registry.Gather()
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == name {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum, err
	}
	j, err := jobarchive.New(jobarchive.Config{
		Cache: spoiledCache{cache, spoil}, Archive: spoiledArchive{archive(table), spoil},
		SweepAge: s.sweep, SweepEvery: time.Second, Registry: registry,
	})
	if err != nil {
		return nil, errors.Join(err, in.close())
	}
	run, end := context.WithCancel(ctx)
	in.end, in.done = end, make(chan error, 1)
	go func() { in.done <- j.Generations(queue, jobarchive.Loops{"consume": j.Consume, "sweep": j.Sweep})(run) }()
	return in, nil
}

func (in *innerJob) stop() error {
	in.end()
	return errors.Join(<-in.done, in.close())
}

func (in *innerJob) close() error {
	var errs []error
	for _, c := range in.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// spoiler runs before a job's store calls. It may panic, or return an error, which becomes the answer.
type spoiler func(ctx context.Context, call string) error

func unspoiled(context.Context, string) error { return nil }

func plain(a history.Archive) history.Archive { return a }

// spoiledCache and spoiledArchive call the spoiler first.
type spoiledCache struct {
	jobarchive.Cache
	spoil spoiler
}

func (c spoiledCache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	if err := c.spoil(ctx, "load"); err != nil {
		entries := make([]history.Entry, len(keys))
		for i := range entries {
			entries[i].Err = err
		}
		return entries
	}
	return c.Cache.Load(ctx, keys)
}

func (c spoiledCache) MarkClean(ctx context.Context, contents []history.Content) error {
	if err := c.spoil(ctx, "mark_clean"); err != nil {
		return err
	}
	return c.Cache.MarkClean(ctx, contents)
}

func (c spoiledCache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	if err := c.spoil(ctx, "overdue"); err != nil {
		return nil, err
	}
	return c.Cache.Overdue(ctx, buckets, age, limit)
}

type spoiledArchive struct {
	history.Archive
	spoil spoiler
}

func (a spoiledArchive) Put(ctx context.Context, cells []history.Cell) []error {
	if err := a.spoil(ctx, "put"); err != nil {
		errs := make([]error, len(cells))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return a.Archive.Put(ctx, cells)
}
