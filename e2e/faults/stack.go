package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"google.golang.org/grpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// spec configures the processes of a case. Zero values take the defaults.
type spec struct {
	services, jobs int // default 2 each; noJobs for jobs in this process
	// hold and sweep configure the services and jobs (default 2 s and 6 s). A request may take 1.5 s: hold +
	// request + drift must stay below the sweep age.
	hold, sweep time.Duration
	drain       time.Duration
	// redis is the address of Redis for each service; default the server's own.
	redis   []string
	front   string        // Address of Redis for every process; default the server's own.
	cluster bool          // Redis is a cluster.
	ttl     time.Duration // TTL of cached records; 0 for the default.
	keep    int           // Cached records per user; 0 for the default.
	counted bool          // All types are counted, and plays are sent to [stack.plays].
	// jobFlags are extra flags of the jobs.
	jobFlags []string
	// Settings of the [load]. direct bypasses the edge; ack is the requested acknowledgement level.
	gentle, blind, pages, direct bool
	ack                          historyv1.Ack
}

const noJobs = -1

func (sp spec) withDefaults() spec {
	sp.services, sp.jobs = cmp.Or(sp.services, 2), cmp.Or(sp.jobs, 2)
	sp.hold, sp.sweep = cmp.Or(sp.hold, 2*time.Second), cmp.Or(sp.sweep, 6*time.Second)
	sp.drain = cmp.Or(sp.drain, 8*time.Second)
	return sp
}

// stack is the product's processes with their own topic, group and table, and the stores as the oracle reads
// them.
type stack struct {
	spec
	name     string
	opts     Options
	es       engines
	services []*unit
	jobs     []*unit
	bff      *unit
	rpcs     []rpcClient
	edge     edgeClient
	cache    *redis.Cache
	archive  *hbase.Archive

	conns []*grpc.ClientConn
	end   context.CancelFunc
	wg    sync.WaitGroup
}

// open empties Redis and starts everything; close ends it, also after a failure.
func (s *stack) open(ctx context.Context) error {
	s.spec = s.withDefaults()
	if err := s.flush(ctx); err != nil {
		return err
	}
	var watch context.Context
	watch, s.end = context.WithCancel(ctx)
	for i := range s.spec.services {
		if err := s.addService(ctx, watch, i); err != nil {
			return err
		}
	}
	for i := range s.spec.jobs {
		if err := s.addJob(ctx, watch, i, s.jobFlags...); err != nil {
			return err
		}
	}
	if err := s.addEdge(ctx, watch); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	return s.openStores(ctx)
}

func (s *stack) awaitReady(ctx context.Context) error {
	for _, u := range s.units() {
		if err := u.awaitReady(ctx, 60*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) flush(ctx context.Context) error {
	var addrs []string
	for _, n := range s.store().Nodes {
		addrs = append(addrs, n.Addr())
	}
	return process.Flush(ctx, addrs...)
}

// store returns the engine of the cache: a server or a cluster.
func (s *stack) store() *engine.Engine {
	if s.cluster {
		return s.es["redis_cluster"]
	}
	return s.es["redis"]
}

func (s *stack) storeAddr() string { return cmp.Or(s.front, s.store().Addr()) }

// product returns the commands without Redis; [stack.cacheFlags] adds its address.
func (s *stack) product() process.Product {
	return process.Product{Bin: s.opts.Bin, Name: s.name, Kafka: s.es["kafka"].Addr(), HBase: s.es["hbase"].Addr()}
}

func (s *stack) cacheFlags() []string {
	flags := []string{"--redis", s.storeAddr()}
	if s.cluster {
		flags = append(flags, "--redis-cluster")
	}
	if s.ttl > 0 {
		flags = append(flags, "--redis-ttl", s.ttl.String())
	}
	if s.keep > 0 {
		flags = append(flags, "--keep", strconv.Itoa(s.keep))
	}
	return flags
}

// cacheConfig configures the oracle's cache, and that of jobs in this process.
func (s *stack) cacheConfig() redis.Config {
	return redis.Config{Addrs: strings.Split(s.storeAddr(), ","), Cluster: s.cluster, TTL: s.ttl, Keep: s.keep}
}

// redisClient returns a client for cases with one server.
func (s *stack) redisClient() *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: s.es["redis"].Addr()})
}

func (s *stack) openStores(ctx context.Context) (err error) {
	if s.cache, err = redis.Open(ctx, s.cacheConfig()); err != nil {
		return err
	}
	s.archive, err = hbase.Open(ctx, hbase.Config{ZooKeeper: s.es["hbase"].Addr(), Table: s.name})
	return err
}

func (s *stack) backends() []*unit { return slices.Concat(s.services, s.jobs) }

func (s *stack) units() []*unit {
	all := s.backends()
	if s.bff != nil {
		all = append(all, s.bff)
	}
	return all
}

func (s *stack) surprises() (all []string) {
	for _, u := range s.units() {
		all = append(all, u.surprises()...)
	}
	return all
}

func (s *stack) close() error {
	if s.end != nil {
		s.end()
	}
	s.wg.Wait()
	var errs []error
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	if s.cache != nil {
		errs = append(errs, s.cache.Close())
	}
	if s.archive != nil {
		errs = append(errs, s.archive.Close())
	}
	return errors.Join(errs...)
}

func (s *stack) addService(ctx, watch context.Context, i int) error {
	flags := s.cacheFlags()
	if i < len(s.redis) {
		flags = []string{"--redis", s.redis[i]}
	}
	return s.startService(ctx, watch, i, append(flags, "--hold", s.hold.String(), "--deadline", "1.5s"))
}

func (s *stack) startService(ctx, watch context.Context, i int, flags []string) error {
	addr, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	u, err := s.unit(ctx, fmt.Sprintf("history-service-%d", i), append([]string{"--listen", addr}, flags...)...)
	if err != nil {
		return err
	}
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	s.services, s.conns = append(s.services, u), append(s.conns, conn)
	s.rpcs = append(s.rpcs, rpcClient{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn), ack: s.ack})
	s.wg.Go(func() { u.watch(watch) })
	return nil
}

func (s *stack) addJob(ctx, watch context.Context, i int, more ...string) error {
	return s.startJob(ctx, watch, i, slices.Concat(s.cacheFlags(), []string{"--sweep-age", s.sweep.String(), "--sweep-every", "1s"}, more))
}

func (s *stack) startJob(ctx, watch context.Context, i int, flags []string) error {
	u, err := s.unit(ctx, fmt.Sprintf("history-job-%d", i), flags...)
	if err != nil {
		return err
	}
	s.jobs = append(s.jobs, u)
	s.wg.Go(func() { u.watch(watch) })
	return nil
}

func (s *stack) addEdge(ctx, watch context.Context) (err error) {
	s.bff, s.edge, err = s.newEdge(ctx, watch, "bff")
	return err
}

// newEdge starts an edge in front of all services.
func (s *stack) newEdge(ctx, watch context.Context, name string, more ...string) (u *unit, c edgeClient, err error) {
	c.secret = []byte(strings.Repeat("s", 32))
	file := filepath.Join(s.opts.Dir, "secret")
	if err := os.WriteFile(file, c.secret, 0o600); err != nil {
		return nil, c, err
	}
	if c.addr, err = process.FreeAddr(ctx); err != nil {
		return nil, c, err
	}
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, c, err
	}
	var rpc []string
	for _, conn := range s.conns {
		rpc = append(rpc, conn.Target())
	}
	u = newUnit(s.opts.Log, name, admin, append(s.product().Edge(c.addr, admin, file, rpc), more...)...)
	s.wg.Go(func() { u.watch(watch) })
	return u, c, nil
}

// unit makes a service or job, named by command and number.
func (s *stack) unit(ctx context.Context, name string, more ...string) (*unit, error) {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	more = append(more, "--drain", s.drain.String(), "--hbase-regions", "4")
	if s.counted {
		more = append(more, "--counted-types", "all", "--kafka-counts-topic", s.counts(), "--plays-topic", s.plays())
	}
	argv := s.product().Command(name[:strings.LastIndexByte(name, '-')], admin, more...)
	return newUnit(s.opts.Log, name, admin, argv...), nil
}

func (s *stack) dead() string { return s.product().DeadTopic() }

func (s *stack) counts() string { return s.name + ".counts" }

func (s *stack) plays() string { return s.name + ".plays" }

// quiet waits until no work is left: the archive has every record, and the queue no message.
func (s *stack) quiet(ctx context.Context, limit time.Duration) error {
	return process.Await(ctx, limit, "quiet", func(ctx context.Context) error {
		if err := s.clean(ctx); err != nil {
			return err
		}
		return s.drained(ctx)
	})
}

func (s *stack) clean(ctx context.Context) error { return process.Clean(ctx, s.cache) }

func (s *stack) overdue(ctx context.Context) ([]history.Key, error) {
	return process.Marked(ctx, s.cache)
}

func (s *stack) drained(ctx context.Context) error {
	groups := map[string]string{s.name: s.name}
	if s.counted {
		groups[s.counts()] = s.name + "-counts"
	}
	for topic, group := range groups {
		committed, ends, err := s.offsets(ctx, topic, group)
		if err != nil {
			return err
		}
		for p, end := range ends {
			if max(committed[p], 0) < end {
				return fmt.Errorf("partition %d of %s is committed to %d of %d", p, topic, committed[p], end)
			}
		}
	}
	return nil
}

// offsets returns a group's committed offsets by partition, below zero for none, and the ends of the log.
func (s *stack) offsets(ctx context.Context, topic, group string) (committed, ends map[int]int64, err error) {
	c := s.kafka()
	var ask []kafka.OffsetRequest
	var partitions []int
	for p := range process.Partitions {
		ask, partitions = append(ask, kafka.LastOffsetOf(p)), append(partitions, p)
	}
	last, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return nil, nil, fmt.Errorf("ends of the log: %w", err)
	}
	done, err := c.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}})
	if err != nil {
		return nil, nil, fmt.Errorf("committed offsets: %w", err)
	}
	committed, ends = make(map[int]int64), make(map[int]int64)
	for _, p := range last.Topics[topic] {
		ends[p.Partition], err = p.LastOffset, errors.Join(err, p.Error)
	}
	for _, p := range done.Topics[topic] {
		committed[p.Partition], err = p.CommittedOffset, errors.Join(err, p.Error)
	}
	if err == nil && (len(ends) < process.Partitions || len(committed) < process.Partitions) {
		err = errors.New("not all partitions answer")
	}
	return committed, ends, errors.Join(err, done.Error)
}

// Options configure a run. Bin, Lib and Dir are required.
type Options struct {
	Bin      string // folder of the built commands
	Other    string // folder of another version's commands.
	Lib      string // folder of the engines' jars; filled if empty
	Dir      string // folder for data; the caller empties it
	PortBase int    // first port of the engines
	Seed     uint64
	Rounds   int           // of the case "kill"
	Players  int           // of the case "slow-waiting", each with a connection
	Limit    time.Duration // per case; "kill" has more for its rounds
	Log      *slog.Logger
}

// engines are the real servers of one run. They die with this process.
type engines map[string]*engine.Engine

// openEngines opens Redis, a Redis Cluster, Kafka and HBase in their own folder. Redis syncs its file at every
// write. With everysec a machine crash may lose acknowledged writes, and sometimes a process crash does.
func openEngines(o Options) (engines, error) {
	es := make(engines)
	for _, name := range []string{"redis", "redis_cluster", "kafka", "hbase"} {
		e, err := o.engine(name)
		if err != nil {
			return nil, err
		}
		es[name] = e
	}
	return es, nil
}

// engine opens one of the run's engines; HBase accepts extra properties.
func (o Options) engine(name string, hbase ...[2]string) (*engine.Engine, error) {
	return o.engineWith(engineConfig{name: name, hbase: hbase})
}

type engineConfig struct {
	name  string
	env   []string    // of Redis
	hbase [][2]string // properties
}

func (o Options) engineWith(c engineConfig) (*engine.Engine, error) {
	lib, err := filepath.Abs(o.Lib)
	if err != nil {
		return nil, fmt.Errorf("open engines: %w", err)
	}
	e, err := engine.Open(c.name, engine.Config{
		Dir: filepath.Join(o.Dir, "engines"), Lib: lib, PortBase: o.PortBase,
		Log: slog.New(slog.DiscardHandler), Redis: []string{"--appendfsync", "always"}, RedisEnv: c.env, HBase: c.hbase,
	})
	if err != nil {
		return nil, fmt.Errorf("open engines: %w", err)
	}
	return e, nil
}

// start starts the dead engines and resumes the suspended ones.
func (es engines) start(ctx context.Context) error {
	errs := make(chan error, len(es))
	for _, e := range es {
		go func() { errs <- errors.Join(e.Signal(syscall.SIGCONT), e.Start(ctx)) }()
	}
	var all error
	for range es {
		all = errors.Join(all, <-errs)
	}
	return all
}

// kill kills an engine.
func kill(e *engine.Engine) step { return func(context.Context) error { return e.Kill() } }

// kill kills all engines; their data belongs to the run.
func (es engines) kill() error {
	var all error
	for _, e := range es {
		all = errors.Join(all, e.Kill())
	}
	return all
}

// restartPause is the supervisor's delay before a restart.
const restartPause = 200 * time.Millisecond

// unit is one process of the product under a supervisor, which restarts it like systemd unless it is set down.
type unit struct {
	name, admin string
	argv        []string
	log         *slog.Logger

	mu     sync.Mutex
	p      *process.Process
	killed bool // deliberate: no surprise
	down   bool
	wake   chan struct{} // capacity 1: no longer down
	ready  bool
	ends   []string // surprising ones
}

func (u *unit) watch(ctx context.Context) {
	for ctx.Err() == nil {
		p := u.launch()
		if p != nil {
			u.await(ctx, p)
		}
		select {
		case <-u.wake:
		case <-time.After(restartPause):
		case <-ctx.Done():
		}
	}
}

func (u *unit) launch() *process.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		return nil
	}
	p, err := process.Start(u.argv[0], u.argv[1:]...)
	if err != nil {
		u.ends = append(u.ends, err.Error())
		return nil
	}
	u.p, u.killed, u.ready = p, false, false
	return p
}

// await returns when the process has ended, and kills it when ctx is done.
func (u *unit) await(ctx context.Context, p *process.Process) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch log := p.Log(); {
	case strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:"):
		u.ends = append(u.ends, u.name+" panicked: "+log)
	case !u.killed && u.ready:
		u.ends = append(u.ends, u.name+" ended by itself: "+lastLine(log))
	case !u.killed:
		u.log.Debug("does not start yet", "process", u.name, "says", lastLine(log))
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

// kill ends the process with SIGKILL; the supervisor restarts it.
func (u *unit) kill() {
	if p := u.signal(syscall.SIGKILL); p != nil {
		<-p.Done()
	}
}

func (u *unit) logTail() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return ""
	}
	return u.p.Log()
}

func (u *unit) alive() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return false
	}
	select {
	case <-u.p.Done():
		return false
	default:
		return true
	}
}

func (u *unit) signal(sig syscall.Signal) *process.Process {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.p == nil {
		return nil
	}
	u.killed = u.killed || sig == syscall.SIGKILL || sig == syscall.SIGTERM
	u.p.Signal(sig)
	return u.p
}

// crash ends the process with SIGKILL until up.
func (u *unit) crash() {
	u.setDown(true)
	if p := u.signal(syscall.SIGKILL); p != nil {
		<-p.Done()
	}
}

// setDown sets whether the process stays down once it has ended.
func (u *unit) setDown(down bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down = down
}

// up lets the supervisor restart a crashed process.
func (u *unit) up() {
	u.setDown(false)
	run.Wake(u.wake)
}

// crash ends processes until up.
func crash(units []*unit) {
	for _, u := range units {
		u.crash()
	}
}

// up lets the supervisors restart crashed processes.
func up(units []*unit) {
	for _, u := range units {
		u.up()
	}
}

func (u *unit) awaitReady(ctx context.Context, limit time.Duration) error {
	return process.Await(ctx, limit, u.name+" to be ready", func(ctx context.Context) error {
		u.mu.Lock()
		p := u.p
		u.mu.Unlock()
		if p == nil {
			return fmt.Errorf("not started")
		}
		select {
		case <-p.Done():
			return fmt.Errorf("ended: %s", lastLine(p.Log()))
		default:
		}
		if err := p.Ready(ctx, u.admin); err != nil {
			return err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.ready = u.p == p
		return nil
	})
}

func (u *unit) readyNow(ctx context.Context) error {
	u.mu.Lock()
	p := u.p
	u.mu.Unlock()
	if p == nil {
		return errors.New("not started")
	}
	return p.Ready(ctx, u.admin)
}

func (u *unit) surprises() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ends
}

func newUnit(log *slog.Logger, name, admin string, argv ...string) *unit {
	argv[0] = filepath.Clean(argv[0])
	return &unit{name: name, admin: admin, argv: argv, log: log, wake: make(chan struct{}, 1)}
}

// metric returns a metric of the current process, summed over its labels.
func (u *unit) metric(ctx context.Context, name string) (float64, error) {
	v, err := process.Metric(ctx, u.admin, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", u.name, err)
	}
	return v, nil
}

func total(ctx context.Context, units []*unit, name string) (sum float64, err error) {
	for _, u := range units {
		v, err := u.metric(ctx, name)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// atLeast fails while a metric, summed over processes, is below a minimum.
func atLeast(least float64, units []*unit, name string) step {
	return func(ctx context.Context) error {
		got, err := total(ctx, units, name)
		if err == nil && got < least {
			err = fmt.Errorf("%s is %.0f, want %.0f", name, got, least)
		}
		return err
	}
}

func (u *unit) resident() (int64, error) {
	u.mu.Lock()
	p := u.p
	u.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", u.name, err)
	}
	return pages * int64(os.Getpagesize()), nil
}
