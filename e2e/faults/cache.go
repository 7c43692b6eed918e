package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// storm makes Redis refuse every command for a while, with different errors, and forget its scripts. Services and
// jobs must recover and drain the backlog.
func storm(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	c := t.stack.redisClient()
	defer c.Close()
	do := func(args ...any) step { return func(ctx context.Context) error { return c.Do(ctx, args...).Err() } }
	allow := do("ACL", "SETUSER", "default", "+@all")
	err := t.underLoad(
		wait(2*time.Second), do("CONFIG", "SET", "maxmemory", "1"), wait(2*time.Second), do("CONFIG", "SET", "maxmemory", "0"),
		do("SCRIPT", "FLUSH"), wait(time.Second), do("SCRIPT", "FLUSH"),
		do("ACL", "SETUSER", "default", "-eval", "-evalsha"), wait(4*time.Second), allow, wait(2*time.Second),
	)(ctx)
	if err != nil {
		return errors.Join(err, allow(context.WithoutCancel(ctx)))
	}
	if err := inTurn(ctx, t.panics, t.markClean); err != nil {
		return err
	}
	retries, err := total(ctx, t.stack.jobs, "playhead_job_retries_total")
	t.res.note("%.0f exchanges of the jobs tried again", retries)
	if err == nil && retries == 0 {
		err = errors.New("no job has noticed")
	}
	return err
}

// panics makes every tenth call of a job's workers panic, and every other tenth fail, under load. The job must
// recover and count each one, and archive its share of the backlog.
func (t *trial) panics(ctx context.Context) error {
	var calls, panicked atomic.Int64
	var calm atomic.Bool
	job, err := t.stack.startInner(ctx, t.stack.name, func(_ context.Context, call string) error {
		switch n := calls.Add(1); {
		case calm.Load():
		case n%10 == 3:
			panicked.Add(1)
			panic("spoiled " + call)
		case n%10 == 8:
			return fmt.Errorf("spoiled %s: %w", call, history.ErrUnavailable)
		}
		return nil
	}, plain)
	if err != nil {
		return err
	}
	err = t.underLoad(wait(6 * time.Second))(ctx)
	calm.Store(true)
	before, err2 := job.counter("playhead_job_messages_total")
	works := func(context.Context) error {
		now, err := job.counter("playhead_job_messages_total")
		if err == nil && now == before {
			err = fmt.Errorf("%.0f messages, as before", now)
		}
		return err
	}
	if err := errors.Join(err, err2, t.underLoad(func(ctx context.Context) error {
		return process.Await(ctx, 40*time.Second, "the spoiled job to work again", works)
	})(ctx)); err != nil {
		return errors.Join(err, job.stop())
	}
	failures, err := job.counter("playhead_job_failures_total")
	t.res.note("a job panicked %d times, began anew %.0f times and works", panicked.Load(), failures)
	if err == nil && (failures == 0 || panicked.Load() == 0) {
		err = errors.New("no panic was counted")
	}
	return errors.Join(err, job.stop())
}

// stampede empties Redis and reads every user at once, one user hundreds of times. The archive must be read once
// per user.
func stampede(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	if err := inTurn(ctx, t.underLoad(wait(3*time.Second)), t.quiet, t.stack.flush); err != nil {
		return err
	}
	users := make(map[string][]*historyv1.Object)
	for k := range t.book.stories {
		users[k.UID] = append(users[k.UID], &historyv1.Object{Id: k.Object.ID, Type: k.Object.Type})
	}
	const rows = "playhead_read_warmed_users_total"
	before, err := total(ctx, t.stack.services, rows)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := t.poll(ctx, users); err != nil {
		return err
	}
	took := time.Since(began).Round(time.Millisecond)
	after, err := total(ctx, t.stack.services, rows)
	t.res.note("%d users polled back in %v, %.0f rows read", len(users), took, after-before)
	if err == nil && after-before != float64(len(users)) {
		err = errors.New("not one row for each user")
	}
	return errors.Join(err, t.markClean(ctx))
}

// poll reads every user's points, and one user's three hundred times.
func (t *trial) poll(ctx context.Context, users map[string][]*historyv1.Object) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(200)
	for i, uid := range slices.Sorted(maps.Keys(users)) {
		times := 1
		if i == 0 {
			times = 300
		}
		for range times {
			g.Go(func() error {
				target := t.stack.rpcs[history.BucketOf(uid)%2] // one service per user, like the edge
				_, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.PointsResponse, error) {
					return target.Points(ctx, &historyv1.PointsRequest{Uid: uid, Objects: users[uid]})
				})
				return err
			})
		}
	}
	return g.Wait()
}

// eviction removes records from Redis before a job reads them. They must be counted, and the archive must keep
// its own records.
func eviction(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{gentle: true, blind: true, direct: true}); err != nil {
		return err
	}
	load := t.underLoad(wait(2 * time.Second))
	if err := inTurn(ctx, load, t.quiet); err != nil {
		return err
	}
	crash(t.stack.jobs)
	if err := load(ctx); err != nil {
		return err
	}
	evicted, err := t.evict(ctx)
	if err != nil {
		return err
	}
	up(t.stack.jobs)
	if err := t.markClean(ctx); err != nil {
		return err
	}
	missing, err := total(ctx, t.stack.jobs, "playhead_job_missing_records_total")
	t.res.note("%d records evicted, %.0f found missing", len(evicted), missing)
	if err == nil && missing < float64(len(evicted)) {
		err = errors.New("not all evicted records were counted")
	}
	return errors.Join(err, t.kept(ctx, evicted))
}

// evict removes the records of some dirty keys, which the oracle then ignores. It returns the archive's records
// of these keys.
func (t *trial) evict(ctx context.Context) (map[history.Key]*history.Record, error) {
	dirty, err := t.stack.overdue(ctx)
	if err != nil || len(dirty) == 0 {
		return nil, errors.Join(err, errors.New("no key is marked"))
	}
	c := t.stack.redisClient()
	defer c.Close()
	evicted := make(map[history.Key]*history.Record)
	for _, k := range dirty[:len(dirty)/3] {
		n, err := c.Del(ctx, contentKey(k)).Result()
		if err != nil || n != 1 {
			return nil, fmt.Errorf("evict %s: %d deleted: %w", k, n, err)
		}
		old, err := t.stack.archive.Get(ctx, []history.Key{k})
		if err != nil {
			return nil, err
		}
		evicted[k] = old[0].Record
		delete(t.book.stories, k)
	}
	return evicted, nil
}

func contentKey(k history.Key) string {
	return fmt.Sprintf("{b%04d}:c:%s:%s", history.BucketOf(k.UID), k.UID, k.Object)
}

func (t *trial) kept(ctx context.Context, want map[history.Key]*history.Record) error {
	keys := slices.Collect(maps.Keys(want))
	got, err := t.stack.archive.Get(ctx, keys)
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !sameRecord(got[i].Record, want[k]) {
			t.res.count(k, "archive", lost("has %+v, want as before %+v", got[i].Record, want[k]))
		}
	}
	return nil
}

// shortTTL is the cache's TTL in the case expiry: longer than any wait for the archive, and shorter than the
// case.
const shortTTL = 15 * time.Second

// expiry has a cache with a short TTL. The archive must have the expired records, and readers must see no
// difference.
func expiry(ctx context.Context, t *trial) error { return t.forget(ctx, spec{ttl: shortTTL}) }

// dropping also bounds the cached records per user. Points skip the archive for dropped records; pages do not.
func dropping(ctx context.Context, t *trial) error {
	return t.forget(ctx, spec{ttl: shortTTL, keep: perUser / 2, pages: true})
}

func (t *trial) forget(ctx context.Context, sp spec) error {
	if err := t.run(ctx, sp, wait(shortTTL+10*time.Second)); err != nil {
		return err
	}
	return inTurn(ctx, t.expired, t.markClean) // every user is cold now
}

func (t *trial) expired(ctx context.Context) error {
	return process.Await(ctx, 2*shortTTL, "the cache to forget", func(ctx context.Context) error {
		left := 0
		for k := range t.book.stories {
			if t.stack.cache.Load(ctx, []history.Key{k})[0].Record != nil {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d records are there", left)
		}
		return nil
	})
}

// volatile configures Redis so that it may lose acknowledged writes. Each process must report this by its
// readiness and its gauge, and start on such a Redis only with a flag.
func volatile(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	c := t.stack.redisClient()
	defer c.Close()
	set := func(name, value string, more ...step) step {
		return func(ctx context.Context) error {
			if err := errors.Join(c.ConfigSet(ctx, name, value).Err(), inTurn(ctx, more...)); err != nil {
				return fmt.Errorf("%s %s: %w", name, value, err)
			}
			return nil
		}
	}
	err := t.underLoad(
		set("maxmemory-policy", "allkeys-lru", t.fit(false), t.startsOn), set("maxmemory-policy", "noeviction", t.fit(true)),
		set("appendonly", "no", t.fit(false)), set("appendonly", "yes", t.fit(true)),
	)(ctx)
	if err != nil {
		return errors.Join(err, inTurn(context.WithoutCancel(ctx), set("maxmemory-policy", "noeviction"), set("appendonly", "yes")))
	}
	return t.markClean(ctx)
}

// fit waits until every service and job reports Redis as fit, or as unfit.
func (t *trial) fit(want bool) step {
	return func(ctx context.Context) error {
		began := time.Now()
		err := process.Await(ctx, 30*time.Second, "the settings to be noticed", func(ctx context.Context) error {
			for _, u := range t.stack.backends() {
				gauge, err := u.metric(ctx, "playhead_engine_misconfigured")
				if err != nil {
					return err
				}
				if ready := u.readyNow(ctx); (ready == nil) != want || (gauge == 0) != want {
					return fmt.Errorf("%s: readiness %w, gauge %v", u.name, ready, gauge)
				}
			}
			return nil
		})
		t.res.note("all processes say after %v whether Redis is fit: %v", time.Since(began).Round(100*time.Millisecond), want)
		return err
	}
}

// startsOn starts a service on an unfit Redis: it must refuse without the flag and start with it.
func (t *trial) startsOn(ctx context.Context) error {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	s := t.stack
	argv := s.product().Command("history-service", admin, append(s.cacheFlags(), "--listen", "127.0.0.1:0")...)
	if err := refuses(argv, 20*time.Second, "maxmemory-policy allkeys-lru"); err != nil {
		return err
	}
	allowed, err := process.Start(argv[0], append(argv[1:], "--redis-allow-volatile")...)
	if err != nil {
		return err
	}
	defer allowed.Kill()
	return process.Await(ctx, 20*time.Second, "a service that may use a Redis that evicts", func(ctx context.Context) error { return allowed.Ready(ctx, admin) })
}

// mover moves the slots of some buckets between masters of the cluster as long as it runs. It moves them key by
// key: for a while a slot has keys on both sides.
type mover struct {
	masters []*goredis.Client
	ids     []string
	buckets []history.Bucket
	rand    *rand.Rand

	moves, keys atomic.Int64
}

// movedBuckets are the buckets whose slots move. All users of the load are in them.
var movedBuckets = []history.Bucket{7, 130, 391, 502, 713, 944}

const (
	migrated  = 5 // keys per exchange
	movePause = 3 * time.Millisecond
)

func (s *stack) newMover(ctx context.Context, r *rand.Rand) (*mover, error) {
	m := &mover{buckets: movedBuckets, rand: r}
	for _, n := range s.store().Nodes {
		c := goredis.NewClient(&goredis.Options{Addr: n.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true})
		m.masters = append(m.masters, c)
		id, err := c.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			return m, errors.Join(err, m.close())
		}
		m.ids = append(m.ids, id)
	}
	return m, nil
}

func (m *mover) close() error {
	var errs []error
	for _, c := range m.masters {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// run moves one slot after the other until stopped is closed. It completes the last move.
func (m *mover) run(ctx context.Context, stopped <-chan struct{}) error {
	for {
		select {
		case <-stopped:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if err := m.move(ctx, m.buckets[m.rand.IntN(len(m.buckets))]); err != nil {
			return err
		}
		m.moves.Add(1)
	}
}

// move moves the slot of a bucket to another master. If a server dies, it waits and retries the step.
func (m *mover) move(ctx context.Context, b history.Bucket) error {
	var from, to int
	var slot int64
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"find", func(ctx context.Context) (err error) {
			slot, from, err = m.owner(ctx, b)
			to = (from + 1 + m.rand.IntN(len(m.masters)-1)) % len(m.masters)
			return err
		}},
		{"import", func(ctx context.Context) error { return m.setslot(ctx, to, slot, "importing", m.ids[from]) }},
		{"migrate", func(ctx context.Context) error { return m.setslot(ctx, from, slot, "migrating", m.ids[to]) }},
		{"keys", func(ctx context.Context) error { return m.carry(ctx, slot, from, to) }},
		{"give", func(ctx context.Context) error {
			err := m.setslot(ctx, to, slot, "node", m.ids[to]) // first: the new owner announces the change
			for i := range m.masters {
				if err == nil {
					err = m.setslot(ctx, i, slot, "node", m.ids[to])
				}
			}
			return err
		}},
	}
	for _, step := range steps {
		if err := process.Await(ctx, 90*time.Second, "a slot to move: "+step.name, step.do); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) owner(ctx context.Context, b history.Bucket) (slot int64, at int, err error) {
	tag := fmt.Sprintf("{b%04d}", b)
	for i, c := range m.masters {
		if slot, err = c.ClusterKeySlot(ctx, tag).Result(); err != nil {
			return 0, 0, err
		}
		if err = c.Get(ctx, tag).Err(); errors.Is(err, goredis.Nil) {
			return slot, i, nil
		}
	}
	return 0, 0, fmt.Errorf("nobody has the slot: %w", err)
}

func (m *mover) setslot(ctx context.Context, i int, slot int64, what ...any) error {
	return m.masters[i].Do(ctx, append([]any{"cluster", "setslot", slot}, what...)...).Err()
}

// carry migrates all keys of a slot. If an interrupted exchange left a key on both sides, the source's copy wins:
// the source has served it.
func (m *mover) carry(ctx context.Context, slot int64, from, to int) error {
	host, port, err := net.SplitHostPort(m.masters[to].Options().Addr)
	if err != nil {
		return err
	}
	if err := m.masters[to].ScriptFlush(ctx).Err(); err != nil { // like a server that has just joined
		return err
	}
	for {
		keys, err := m.masters[from].ClusterGetKeysInSlot(ctx, int(slot), 100_000).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		m.rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		for part := range slices.Chunk(keys, migrated) {
			args := []any{"migrate", host, port, "", 0, 2000, "replace", "keys"}
			for _, k := range part {
				args = append(args, k)
			}
			if err := m.masters[from].Do(ctx, args...).Err(); err != nil && !strings.HasPrefix(err.Error(), "NOKEY") {
				return err
			}
			m.keys.Add(int64(len(part)))
			if err := pause(ctx, movePause); err != nil {
				return err
			}
		}
	}
}

// moving takes steps while the load runs and slots move.
func (t *trial) moving(steps ...step) step {
	return func(ctx context.Context) error {
		m, err := t.stack.newMover(ctx, rand.New(rand.NewPCG(t.Seed, 1))) //nolint:gosec // repeatable
		if err != nil {
			return err
		}
		t.load.buckets = movedBuckets
		stopped, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- m.run(ctx, stopped) }()
		err = t.underLoad(steps...)(ctx)
		close(stopped)
		err = errors.Join(err, <-done, m.close())
		t.res.note("%d slots moved, with %d keys", m.moves.Load(), m.keys.Load())
		if err == nil && m.keys.Load() == 0 {
			err = errors.New("no key moved")
		}
		return err
	}
}

func slots(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{cluster: true}); err != nil {
		return err
	}
	again := func(ctx context.Context) error { return inTurn(ctx, wait(3*time.Second), t.anew) }
	return inTurn(ctx, t.moving(again, again, again, again), t.markClean)
}
