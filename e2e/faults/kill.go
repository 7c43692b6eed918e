package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
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
