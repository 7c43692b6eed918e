package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// randomKills kills processes of the product and the engines with SIGKILL at random moments of a random load. It
// restarts them, and compares at the end. A killed process restarts while the next one is killed.
//
// Redis is one server, or a cluster whose slots move meanwhile.
func randomKills(rounds int, cluster bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.start(ctx, spec{cluster: cluster}); err != nil {
			return err
		}
		k := newKiller(t)
		load := t.underLoad
		if cluster {
			load = t.moving
		}
		err := load(k.rounds(rounds))(ctx)
		k.wg.Wait()
		for _, v := range k.victims {
			t.res.note("killed %s %d times", v.name, v.killed)
		}
		if err := errors.Join(err, k.err); err != nil {
			return err
		}
		return t.markClean(ctx)
	}
}

type victim struct {
	name   string
	kill   func(context.Context) error
	alive  func() bool
	killed int
}

// killer deals rounds to the victims in shuffled turns: each is killed equally often, and a seed reproduces
// victims and moments.
type killer struct {
	*trial

	victims []*victim
	wg      sync.WaitGroup // restarts of engines

	mu   sync.Mutex
	err  error
	busy map[*engine.Engine]bool // restarting
}

func newKiller(t *trial) *killer {
	k := &killer{trial: t, busy: make(map[*engine.Engine]bool)}
	for _, u := range t.stack.units() {
		k.victims = append(k.victims, &victim{name: u.name, alive: u.alive, kill: func(context.Context) error {
			u.kill()
			return nil
		}})
	}
	for _, e := range []*engine.Engine{t.stack.store(), t.es["kafka"], t.es["hbase"]} {
		for i := range e.Nodes {
			name := e.Name()
			if len(e.Nodes) > 1 {
				name = fmt.Sprintf("%s-%d", name, i)
			}
			k.victims = append(k.victims, &victim{
				name:  name,
				alive: func() bool { return k.up(e) },
				kill:  func(ctx context.Context) error { return k.engine(ctx, e, i) },
			})
		}
	}
	return k
}

// rounds kills at random moments. Every other round has users of its own, whose last events are the ones around a
// kill.
func (k *killer) rounds(n int) step {
	return func(ctx context.Context) error {
		var deck []*victim
		for i := range n {
			if len(deck) == 0 {
				deck = slices.Clone(k.victims)
				k.rand.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
			}
			v := deck[0]
			deck = deck[1:]
			if err := k.one(ctx, v); err != nil {
				return fmt.Errorf("round %d: %w", i+1, err)
			}
			if i%2 == 0 {
				k.load.epoch.Add(1)
			}
		}
		return nil
	}
}

// one waits until a victim is up, and a random moment more.
func (k *killer) one(ctx context.Context, v *victim) error {
	moment := time.Duration(100+k.rand.IntN(900)) * time.Millisecond
	for {
		err := process.Await(ctx, 3*time.Minute, v.name+" to come back", func(context.Context) error {
			if !v.alive() {
				return errors.New("it is down")
			}
			return nil
		})
		if err := errors.Join(err, pause(ctx, moment)); err != nil {
			return err
		}
		if v.alive() { // it may have died because another was absent
			v.killed++
			k.Log.Info("kill", "victim", v.name)
			return v.kill(ctx)
		}
	}
}

func (k *killer) up(e *engine.Engine) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.busy[e]
}

// engine kills one process of an engine and restarts it after a while, concurrently with the next rounds.
func (k *killer) engine(ctx context.Context, e *engine.Engine, node int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy[e] = true
	down := time.Duration(k.rand.IntN(1000)) * time.Millisecond
	if err := e.Kill(node); err != nil {
		return err
	}
	k.wg.Go(func() {
		err := errors.Join(pause(ctx, down), e.Start(ctx))
		k.mu.Lock()
		defer k.mu.Unlock()
		k.busy[e] = false
		if err != nil {
			k.err = errors.Join(k.err, fmt.Errorf("restart: %w", err))
		}
	})
	return nil
}

// compacting restarts every process under load, one after the other, like an upgrade. Players use the edge, and
// one retry must suffice for each.
func compacting(ctx context.Context, t *trial) error {
	return t.rolling(ctx, spec{gentle: true}, func() []step { return t.each(func(*unit) {}) })
}

// upgraded begins with the version of --other. It replaces every process by one of this version, one after the other,
// and then goes back. Its load has removals, too.
func upgraded(ctx context.Context, t *trial) error {
	if t.Other == "" {
		return errors.New("which version to begin with? set --other, as make upgrade does")
	}
	ours := t.Bin
	t.Bin = t.Other
	return t.rolling(ctx, spec{}, func() []step { return slices.Concat(t.each(from(ours)), t.each(from(t.Other))) })
}

// from makes a process one of another folder.
func from(bin string) func(*unit) {
	return func(u *unit) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.argv[0] = filepath.Join(bin, filepath.Base(u.argv[0]))
	}
}

// each restarts all processes, one after the other, and changes each before.
func (t *trial) each(change func(*unit)) (steps []step) {
	for _, u := range t.stack.units() {
		steps = append(steps, wait(time.Second), func(ctx context.Context) error {
			change(u)
			return u.restart(ctx, t.stack.drain)
		})
	}
	return steps
}

// rolling restarts processes under load. One retry must suffice for each player.
func (t *trial) rolling(ctx context.Context, sp spec, restarts func() []step) error {
	if err := t.start(ctx, sp); err != nil {
		return err
	}
	return t.retried(ctx, t.stack.edge, restarts()...)
}

// retried is reported with one retry, which must suffice for each player.
func (t *trial) retried(ctx context.Context, to target, steps ...step) error {
	p := &retrier{target: to}
	if err := t.reported(ctx, p, steps...); err != nil {
		return err
	}
	t.res.note("of %d uploads %d needed a second try", p.all.Load(), p.second.Load())
	if n := p.refused.Load(); n > 0 {
		return fmt.Errorf("%d uploads were refused twice", n)
	}
	return nil
}

// reported takes steps while all players report to a target, and compares.
func (t *trial) reported(ctx context.Context, to target, steps ...step) error {
	t.load.edge, t.load.everyone = to, true
	if err := t.underLoad(append(steps, wait(time.Second))...)(ctx); err != nil {
		return err
	}
	return t.markClean(ctx)
}

// restart ends the process with SIGTERM, within its drain deadline, and waits until the supervisor has restarted
// it.
func (u *unit) restart(ctx context.Context, drain time.Duration) error {
	p := u.signal(syscall.SIGTERM)
	if p == nil {
		return fmt.Errorf("%s does not run", u.name)
	}
	select {
	case <-p.Done():
	case <-time.After(drain + 2*time.Second):
		return fmt.Errorf("%s has not ended %v after SIGTERM", u.name, drain)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return u.awaitReady(ctx, 20*time.Second)
}

// secondTry is a player's delay before its retry.
const secondTry = 2 * time.Second

type retrier struct {
	target               target
	all, second, refused atomic.Int64
}

func (p *retrier) apply(ctx context.Context, events []*event) ([]bool, error) {
	p.all.Add(1)
	ctx = context.WithoutCancel(ctx) // the context's deadline covers one try
	acked, err := p.try(ctx, events)
	if complete(acked, err) || errors.Is(err, errRefused) {
		return acked, err
	}
	p.second.Add(1)
	if err := pause(ctx, secondTry); err != nil {
		return nil, err
	}
	acked, err = p.try(ctx, events)
	if !complete(acked, err) {
		p.refused.Add(1)
	}
	return acked, err
}

func (p *retrier) try(ctx context.Context, events []*event) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.target.apply(ctx, events)
}

func complete(acked []bool, err error) bool { return err == nil && !slices.Contains(acked, false) }

// Settings under which jobs soon compact nearly every record of every user.
const (
	compactAbove  = 3
	compactAfter  = 5 * time.Second
	compactMargin = 15 * time.Second // longer than a put may take
)

func compactFlags() []string {
	return []string{"--compact-above", fmt.Sprint(compactAbove), "--compact-after", compactAfter.String(), "--compact-margin", compactMargin.String()}
}

// killedCompactions kills everything at random during compactions, and then only the jobs while they compact
// every user. The cache keeps few records per user, which forces pages to read the archive.
func killedCompactions(rounds int) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		if err := t.start(ctx, spec{keep: perUser / 2, pages: true, jobFlags: compactFlags()}); err != nil {
			return err
		}
		for _, u := range t.stack.services { // they started before the first job, without compaction
			if err := u.restart(ctx, t.stack.drain); err != nil {
				return err
			}
		}
		k := newKiller(t)
		err := t.underLoad(wait(3*compactMargin), k.rounds(rounds))(ctx)
		k.wg.Wait()
		if err := errors.Join(err, k.err); err != nil {
			return err
		}
		return inTurn(ctx, t.markClean, t.compactEverybody, t.stack.compact, t.markClean)
	}
}

// compactEverybody notes all users for compaction again and again, and kills jobs meanwhile.
func (t *trial) compactEverybody(ctx context.Context) error {
	users := make(map[string]bool)
	for k := range t.book.stories {
		users[k.UID] = true
	}
	records, kills := 0, 0
	for began := time.Now(); time.Since(began) < 5*compactMargin; kills++ {
		var err error
		if records, err = t.compacted(ctx, users); err != nil {
			return err
		}
		t.stack.jobs[t.rand.IntN(len(t.stack.jobs))].kill()
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
	}
	t.res.note("%d records of %d users in segments, jobs killed %d times meanwhile", records, len(users), kills)
	if records == 0 {
		return errors.New("nothing was compacted")
	}
	return nil
}

// compacted returns the number of records in segments, and notes users with many live records. Damaged segments
// are an error.
func (t *trial) compacted(ctx context.Context, users map[string]bool) (records int, err error) {
	for uid := range users {
		i, err := t.stack.archive.Inspect(ctx, uid, true)
		if err := errors.Join(append(i.Wrong, err)...); err != nil {
			return 0, fmt.Errorf("parts of %s: %w", uid, err)
		}
		for _, c := range i.Segments.Chunks {
			records += c.Count - len(c.Superseded)
		}
		if i.Live > compactAbove {
			err = t.stack.cache.Note(ctx, uid, time.Now().UnixMilli())
		}
		if err != nil {
			return 0, err
		}
	}
	return records, nil
}

// alone is the all-in-one under a supervisor, on one data directory.
type alone struct {
	*trial

	dir  string
	unit *unit
	conn *grpc.ClientConn
	end  context.CancelFunc
	wg   sync.WaitGroup
}

func startAlone(ctx context.Context, t *trial, dir string) (*alone, error) {
	var addrs [3]string
	for i := range addrs {
		var err error
		if addrs[i], err = process.FreeAddr(ctx); err != nil {
			return nil, err
		}
	}
	a := &alone{trial: t, dir: dir}
	secret := strings.Repeat("s", 32)
	file := filepath.Join(t.Dir, "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		return nil, err
	}
	a.unit = newUnit(t.Log, "all-in-one", addrs[2], filepath.Join(t.Bin, "playhead"), "serve", "--data", dir, "--hold", "2s", "--drain", "8s",
		"--listen", addrs[0], "--rpc", addrs[1], "--admin", addrs[2], "--token-secret-file", file, "--user-rate", "1e6", "--user-burst", "1e6")
	conn, err := dial(addrs[1])
	if err != nil {
		return nil, err
	}
	a.conn = conn
	t.load = &load{
		book: t.book, rpcs: []rpcClient{{HistoryServiceClient: historyv1.NewHistoryServiceClient(conn)}}, name: "c" + t.res.Case, seed: t.Seed, res: t.res,
		edge: edgeClient{addr: addrs[0], secret: []byte(secret)},
	}
	var watch context.Context
	watch, a.end = context.WithCancel(ctx)
	a.wg.Go(func() { a.unit.watch(watch) })
	if err := a.unit.awaitReady(ctx, 30*time.Second); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *alone) close() error {
	a.end()
	a.wg.Wait()
	var errs []error
	for _, s := range a.unit.surprises() {
		errs = append(errs, errors.New(s))
	}
	return errors.Join(append(errs, a.conn.Close())...)
}

// markClean stops the process, because only one may open its store, until no mark is left, and compares. Then it
// restarts the process and reads as users do.
func (a *alone) markClean(ctx context.Context) error {
	limit := time.Now().Add(60 * time.Second)
	for clean := false; !clean; {
		if err := a.unit.awaitReady(ctx, 30*time.Second); err != nil {
			return err
		}
		err := process.Await(ctx, 30*time.Second, "the last announcement", a.announced)
		if err != nil {
			return err
		}
		if clean, err = a.compare(ctx); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return errors.New("marks are left after a minute")
		}
	}
	a.res.QuietMS = time.Since(a.book.last).Milliseconds()
	return nil
}

func (a *alone) announced(ctx context.Context) error {
	held, err := a.unit.metric(ctx, "playhead_aggregate_held_keys")
	if err == nil && held > 0 {
		err = fmt.Errorf("%.0f keys are held", held)
	}
	return err
}

// compare opens the store of the stopped process. It returns false if dirty marks are left.
func (a *alone) compare(ctx context.Context) (clean bool, err error) {
	a.unit.setDown(true)
	took, err := measureEnd(ctx, a.unit, 10*time.Second, syscall.SIGTERM)
	if err != nil {
		return false, err
	}
	a.Log.Info("stopped", "took", took)
	db, err := pebble.Open(a.dir, pebble.Config{Logger: a.Log})
	if err != nil {
		return false, err
	}
	left, err := process.Marked(ctx, db.Cache())
	c := &checker{book: a.book, cache: db.Cache(), archive: db.Archive(), rpcs: a.load.rpcs, res: a.res}
	if err == nil && len(left) == 0 {
		err = c.records(ctx)
	}
	if err := errors.Join(err, db.Close()); err != nil {
		return false, err
	}
	a.unit.up()
	if len(left) > 0 {
		return false, nil
	}
	return true, errors.Join(a.unit.awaitReady(ctx, 30*time.Second), c.readers(ctx))
}

// twoProcesses starts a second process on the directory of the first. It must refuse with a reason, and the first
// must go on.
func twoProcesses(ctx context.Context, t *trial) error {
	a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-two"))
	if err != nil {
		return err
	}
	return a.run(ctx, func(ctx context.Context) error {
		p, err := process.Start(filepath.Join(t.Bin, "playhead"), "serve", "--data", a.dir,
			"--listen", "127.0.0.1:0", "--rpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer p.Kill()
		select {
		case <-p.Done():
		case <-time.After(10 * time.Second):
			return errors.New("a second process runs on the same directory")
		}
		t.res.note("the second process says: %s", lastLine(p.Log()))
		if !strings.Contains(p.Log(), "in use") {
			return fmt.Errorf("the second process says %q", p.Log())
		}
		return pause(ctx, time.Second)
	})
}

func (a *alone) run(ctx context.Context, steps ...step) error {
	return errors.Join(a.underLoad(steps...)(ctx), a.markClean(ctx), a.close())
}

// diskFull fills the store's file system. The process must not acknowledge failed writes, and must resume once
// there is room, at the latest after a restart.
func diskFull(ctx context.Context, t *trial) error {
	dir := filepath.Join(t.Dir, "small")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=96m"); err != nil {
		return fmt.Errorf("a small file system needs root: %w", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }() // the run's folder is removed later
	a, err := startAlone(ctx, t, filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	return a.run(ctx, wait(2*time.Second), func(ctx context.Context) error { return a.fill(ctx, filepath.Join(dir, "ballast")) })
}

// fill takes all room, waits until acknowledgements stop, and frees the room.
func (a *alone) fill(ctx context.Context, ballast string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(ballast), &st); err != nil {
		return err
	}
	if err := os.WriteFile(ballast, make([]byte, int64(st.Bavail)*st.Bsize), 0o600); err != nil { //nolint:gosec // a small file system
		return fmt.Errorf("fill the file system: %w", err)
	}
	stuck := func(ctx context.Context) error {
		before := a.book.count()
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		if n := a.book.count() - before; n > 0 {
			return fmt.Errorf("%d more acknowledged", n)
		}
		return nil
	}
	if err := process.Await(ctx, 40*time.Second, "a full file system to be noticed", stuck); err != nil {
		return err
	}
	before, began := a.book.count(), time.Now()
	if err := os.Remove(ballast); err != nil {
		return err
	}
	goes := func(context.Context) error {
		if a.book.count() == before {
			return errors.New("nothing is acknowledged")
		}
		return nil
	}
	if err := process.Await(ctx, 10*time.Second, "acknowledgements once there is room", goes); err != nil {
		a.res.note("with room again it needs a restart: %v", err)
		a.unit.kill()
		return a.unit.awaitReady(ctx, 20*time.Second)
	}
	a.res.note("with room again it acknowledges after %v", time.Since(began).Round(100*time.Millisecond))
	return nil
}

// killedAlone kills the all-in-one in a loop under load. If torn, the newest log ends in half a write at each
// restart.
func killedAlone(torn bool) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		a, err := startAlone(ctx, t, filepath.Join(t.Dir, "alone-"+t.res.Case))
		if err != nil {
			return err
		}
		return a.run(ctx, func(ctx context.Context) error {
			for range 12 {
				if err := pause(ctx, time.Duration(200+t.rand.IntN(1000))*time.Millisecond); err != nil {
					return err
				}
				a.unit.crash()
				if torn {
					if err := a.tear(); err != nil {
						return err
					}
				}
				a.unit.up()
				t.load.epoch.Add(1)
				if err := a.unit.awaitReady(ctx, 20*time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// tear appends half a write to the newest log of the store.
func (a *alone) tear() error {
	logs, err := filepath.Glob(filepath.Join(a.dir, "*.log"))
	if more, _ := filepath.Glob(filepath.Join(a.dir, "*", "*.log")); err == nil {
		logs = append(logs, more...)
	}
	var newest string
	var at time.Time
	for _, path := range logs {
		if st, err := os.Stat(path); err == nil && st.ModTime().After(at) {
			newest, at = path, st.ModTime()
		}
	}
	f, err := os.OpenFile(newest, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("tear the log: %w", err)
	}
	garbage := make([]byte, 1+a.rand.IntN(300))
	for i := range garbage {
		garbage[i] = byte(a.rand.Uint32())
	}
	_, err = f.Write(garbage)
	return errors.Join(err, f.Close())
}
