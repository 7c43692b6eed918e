package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// A cache that loses what it acknowledged, while services and jobs live: what they hold, have
// announced in the last seconds, or archived last must come back, deletes too.

// emptied empties Redis under load: the server lives on, under the same run id.
func emptied(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.blind = true
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for range 3 {
			if err := errors.Join(pause(ctx, 3*time.Second), t.stack.flush(ctx)); err != nil {
				return err
			}
			t.load.epoch.Add(1)
		}
		return pause(ctx, 3*time.Second)
	})
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

// replicaLag is by how much a replica, or a file, is behind the server that dies.
const replicaLag = 1500 * time.Millisecond

// failover lets a replica take over that has missed the last moments. Everybody reaches Redis
// by one address, which is the replica's afterwards.
func failover(ctx context.Context, t *trial) error {
	redis := t.es["redis"]
	p, err := openProxy(ctx, redis.Addr())
	if err != nil {
		return err
	}
	t.after = p.close
	if err := t.start(ctx, spec{front: p.addr()}); err != nil {
		return err
	}
	t.load.blind = true
	r, err := t.startReplica(ctx, redis.Addr())
	if err != nil {
		return err
	}
	t.after = func() error {
		err := errors.Join(p.close(), r.client.Close())
		r.process.Kill()
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error {
		if err := t.lag(ctx, r, func() error { return redis.Kill() }); err != nil {
			return err
		}
		if err := errors.Join(pause(ctx, time.Second), r.follow(ctx, "no", "one")); err != nil {
			return err
		}
		p.redirect(r.addr)
		return pause(ctx, 4*time.Second)
	})
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

// replica is a second server that follows the first.
type replica struct {
	process *process.Process
	client  *goredis.Client
	addr    string
}

func (t *trial) startReplica(ctx context.Context, of string) (*replica, error) {
	addr, err := process.FreeAddr(ctx)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(t.Dir, "replica-"+t.res.Case)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p, err := process.Start("redis-server", "--port", port(addr), "--bind", "127.0.0.1", "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--replicaof", "127.0.0.1", port(of))
	if err != nil {
		return nil, err
	}
	r := &replica{process: p, addr: addr, client: goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true})}
	return r, r.following(ctx)
}

// following waits until it has the contents of the server that it follows.
func (r *replica) following(ctx context.Context) error {
	return process.Await(ctx, 20*time.Second, "the replica to follow", func(ctx context.Context) error {
		info, err := r.client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New(info)
		}
		return err
	})
}

// follow makes it follow a server, or no one.
func (r *replica) follow(ctx context.Context, host, port string) error {
	return r.client.ReplicaOf(ctx, host, port).Err()
}

// lag has a replica miss the last moments of its master, which end with the given step.
func (t *trial) lag(ctx context.Context, r *replica, end func() error) error {
	if err := errors.Join(pause(ctx, 3*time.Second), r.follow(ctx, "127.0.0.1", "1")); err != nil {
		return err
	}
	before := t.book.count()
	if err := errors.Join(pause(ctx, replicaLag), end()); err != nil {
		return err
	}
	t.res.note("the replica lacks the last %v, in which %d were acknowledged", replicaLag, t.book.count()-before)
	t.load.epoch.Add(1) // of the users so far nobody hears again
	return nil
}

// failback has Redis follow a replica that has missed the last moments, and makes it the master
// again: the same process, with older contents.
func failback(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.blind = true
	addr := t.es["redis"].Addr()
	r, err := t.startReplica(ctx, addr)
	if err != nil {
		return err
	}
	master := &replica{client: goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true})}
	t.after = func() error {
		err := errors.Join(r.client.Close(), master.client.Close())
		r.process.Kill()
		return err
	}
	err = t.underLoad(ctx, func(ctx context.Context) error {
		if err := t.lag(ctx, r, func() error { return r.follow(ctx, "no", "one") }); err != nil {
			return err
		}
		if err := errors.Join(master.follow(ctx, "127.0.0.1", port(r.addr)), master.following(ctx), master.follow(ctx, "no", "one")); err != nil {
			return err
		}
		return pause(ctx, 4*time.Second)
	})
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// tornFile kills Redis and cuts its append-only file in the middle of a record, where it was
// some moments ago.
func tornFile(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.blind = true
	err := t.underLoad(ctx, func(ctx context.Context) error {
		if err := pause(ctx, 3*time.Second); err != nil {
			return err
		}
		file, size, err := t.appendOnly()
		if err != nil {
			return err
		}
		redis := t.es["redis"]
		before := t.book.count()
		if err := errors.Join(pause(ctx, replicaLag), redis.Kill()); err != nil {
			return err
		}
		_, end, err := t.appendOnly()
		if err != nil {
			return err
		}
		t.load.epoch.Add(1)
		t.res.note("%d of %d bytes cut off, in which %d were acknowledged", end-size-7, end, t.book.count()-before)
		if err := errors.Join(os.Truncate(file, size+7), pause(ctx, time.Second), redis.Start(ctx)); err != nil {
			return err
		}
		return pause(ctx, 4*time.Second)
	})
	if err != nil {
		return err
	}
	return t.settle(ctx)
}

// appendOnly returns the file that Redis writes to now, and its size in bytes.
func (t *trial) appendOnly() (file string, size int64, err error) {
	_, dir, _ := t.redisFiles()
	files, err := filepath.Glob(filepath.Join(dir, "*.incr.aof"))
	if err != nil || len(files) == 0 {
		return "", 0, errors.Join(err, fmt.Errorf("no append-only file in %s", dir))
	}
	file = slices.MaxFunc(files, func(a, b string) int { return number(a) - number(b) })
	st, err := os.Stat(file)
	if err != nil {
		return "", 0, err
	}
	return file, st.Size(), nil
}

// number returns that of an append-only file, "appendonly.aof.7.incr.aof".
func number(file string) int {
	parts := strings.Split(filepath.Base(file), ".")
	n, _ := strconv.Atoi(parts[len(parts)-3]) // Redis names them
	return n
}

// queuedLive loses all of Redis and all services while the jobs live and archive quickly.
func queuedLive(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	for i := range t.load.rpcs {
		t.load.rpcs[i].ack = historyv1.Ack_ACK_QUEUED
	}
	redis, aof, _ := t.redisFiles()
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for range 3 {
			if err := pause(ctx, 3*time.Second); err != nil {
				return err
			}
			for _, u := range t.stack.services {
				u.crash()
			}
			t.load.epoch.Add(1)
			if err := errors.Join(redis.Kill(), os.RemoveAll(aof), redis.Start(ctx)); err != nil {
				return fmt.Errorf("lose all of redis: %w", err)
			}
			for _, u := range t.stack.services {
				u.up()
			}
			if err := t.stack.awaitReady(ctx); err != nil {
				return err
			}
		}
		return pause(ctx, time.Second)
	})
	if err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, "playhead_job_restored_records_total")
	t.res.note("%.0f records given back by the jobs", restored)
	return err
}

// queued loses all of Redis, its file included, and all services, while none of what
// was acknowledged as queued has been announced. The queue alone has it.
func queued(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 20 * time.Second, sweep: 42 * time.Second}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	for i := range t.load.rpcs {
		t.load.rpcs[i].ack = historyv1.Ack_ACK_QUEUED
	}
	for _, j := range t.stack.jobs { // nor has it been archived
		j.crash()
	}
	if err := t.underLoad(ctx, func(ctx context.Context) error { return pause(ctx, 3*time.Second) }); err != nil {
		return err
	}
	for _, u := range t.stack.services {
		u.crash()
	}
	redis, aof, _ := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(aof), redis.Start(ctx)); err != nil {
		return fmt.Errorf("lose all of redis: %w", err)
	}
	for _, u := range t.stack.units() {
		u.up()
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, "playhead_job_restored_records_total")
	t.res.note("%.0f records restored from the queue", restored)
	if err == nil && restored == 0 {
		err = errors.New("the queue has restored nothing")
	}
	return err
}

// rollback brings Redis back with its file of a while ago, dirty marks included. All that
// the archive has of the time since must stay, and readers must see it.
func rollback(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	t.load.blind, t.load.edge = true, nil
	watch := func(ctx context.Context) error { return pause(ctx, 2*time.Second) }
	if err := errors.Join(t.underLoad(ctx, watch), t.keepFile(ctx), t.underLoad(ctx, watch), t.stack.quiet(ctx, t.Limit)); err != nil {
		return err
	}
	repairs, err := total(ctx, t.stack.jobs, cacheRepairs)
	if err != nil {
		return err
	}
	if err := t.backToFile(ctx); err != nil {
		return err
	}
	older, err := t.older(ctx)
	if err != nil {
		return err
	}
	t.res.note("%d of %d records are older in the cache than in the archive", older, len(t.book.stories))
	began := time.Now()
	err = process.Await(ctx, 30*time.Second, "a repair by each job", func(ctx context.Context) error {
		now, err := total(ctx, t.stack.jobs, cacheRepairs)
		if err == nil && now < repairs+float64(len(t.stack.jobs)) {
			err = fmt.Errorf("%.0f repairs, of %.0f before", now, repairs)
		}
		return err
	})
	if err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, "playhead_job_restored_records_total")
	t.res.note("%.0f given back to it, %v later", restored, time.Since(began).Round(100*time.Millisecond))
	return errors.Join(err, t.settle(ctx))
}

// rollbackHeld brings Redis back with its file of a while ago while nothing that was
// written since has been archived: the services still hold all of it.
func rollbackHeld(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 22 * time.Second}); err != nil {
		return err
	}
	t.load.gentle, t.load.blind, t.load.edge = true, true, nil
	watch := func(ctx context.Context) error { return pause(ctx, time.Second) }
	if err := errors.Join(t.underLoad(ctx, watch), t.keepFile(ctx)); err != nil {
		return err
	}
	t.load.epoch.Add(1)
	if err := errors.Join(t.underLoad(ctx, watch), t.backToFile(ctx)); err != nil {
		return err
	}
	const reclaimed = "compared with what is held"
	for _, u := range t.stack.services {
		err := process.Await(ctx, 20*time.Second, u.name+" to write again what it holds", func(context.Context) error {
			if strings.Count(u.logTail(), reclaimed) < 2 { // the file was kept by a restart, too
				return errors.New("it has not")
			}
			return nil
		})
		if err != nil {
			return err
		}
		line := u.logTail()[strings.LastIndex(u.logTail(), reclaimed)+len(reclaimed)+1:]
		t.res.note("%s, of what it holds: %s", u.name, strings.TrimSpace(strings.SplitN(line, "\n", 2)[0]))
	}
	return t.settle(ctx)
}

// keepFile keeps the file of Redis as it is now, by way of a restart.
func (t *trial) keepFile(ctx context.Context) error {
	redis, aof, old := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(old), os.CopyFS(old, os.DirFS(aof)), redis.Start(ctx)); err != nil {
		return fmt.Errorf("keep the file of redis: %w", err)
	}
	return nil
}

// backToFile restarts Redis with the file that was kept.
func (t *trial) backToFile(ctx context.Context) error {
	redis, aof, old := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(aof), os.CopyFS(aof, os.DirFS(old)), redis.Start(ctx)); err != nil {
		return fmt.Errorf("bring the file of redis back: %w", err)
	}
	return nil
}

func (t *trial) redisFiles() (redis *engine.Engine, aof, old string) {
	redis = t.es["redis"]
	return redis, filepath.Join(redis.Nodes[0].Dir, "appendonlydir"), filepath.Join(t.Dir, "older")
}

const cacheRepairs = "playhead_job_cache_repairs_total"

// older returns of how many records the cache and the archive say different things.
func (t *trial) older(ctx context.Context) (older int, err error) {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(t.book.stories)), checkBatch) {
		archived, err := t.stack.archive.Get(ctx, keys)
		if err != nil {
			return 0, err
		}
		for i, e := range t.stack.cache.Load(ctx, keys) {
			cleared := t.book.clearedFor(keys[i])
			if !sameRecord(e.Record.After(cleared), archived[i].Record.After(cleared)) {
				older++
			}
		}
	}
	return older, nil
}

// clearedFor returns the time to which an object is certainly cleared.
func (b *book) clearedFor(k history.Key) (at int64) {
	for _, c := range b.clears[k.UID] {
		if c.acked && (c.typ == 0 || c.typ == k.Object.Type) {
			at = max(at, c.until)
		}
	}
	return at
}
