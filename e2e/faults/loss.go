package faults

import (
	"bytes"
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
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// In these cases the cache loses acknowledged writes while services and jobs live. Records that these hold,
// announced in the last seconds, or archived last must return, deletes too.

// emptied empties Redis under load. The server lives on, with the same run id.
func emptied(ctx context.Context, t *trial) error {
	again := func(ctx context.Context) error { return inTurn(ctx, wait(3*time.Second), t.stack.flush, t.anew) }
	return t.run(ctx, spec{blind: true}, again, again, again, wait(3*time.Second))
}

// replicaLag is the lag of a replica, or a file, behind the server that dies.
const replicaLag = 1500 * time.Millisecond

// failover promotes a replica that has missed the last moments. Every process reaches Redis by one address, which
// then leads to the replica.
func failover(ctx context.Context, t *trial) error {
	redis := t.es["redis"]
	p, err := openProxy(ctx, redis.Addr())
	if err != nil {
		return err
	}
	t.after = p.close
	r, err := t.startReplica(ctx, redis.Addr())
	if err != nil {
		return err
	}
	t.after = func() error { return errors.Join(p.close(), r.close()) }
	return t.run(ctx, spec{front: p.addr(), blind: true}, t.lag(r), kill(redis), t.anew, wait(time.Second), r.follow("no", "one"),
		func(context.Context) error { p.redirect(r.addr); return nil }, wait(4*time.Second))
}

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

func (r *replica) close() error {
	r.process.Kill()
	return r.client.Close()
}

// following waits until the replica is in sync.
func (r *replica) following(ctx context.Context) error {
	return process.Await(ctx, 20*time.Second, "the replica to follow", func(ctx context.Context) error {
		info, err := r.client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New(info)
		}
		return err
	})
}

func (r *replica) follow(host, port string) step {
	return func(ctx context.Context) error { return r.client.ReplicaOf(ctx, host, port).Err() }
}

// lag makes a replica miss the last moments of its master, which end with the next step.
func (t *trial) lag(r *replica) step {
	return func(ctx context.Context) error {
		err := inTurn(ctx, wait(3*time.Second), r.follow("127.0.0.1", "1"))
		before := t.book.count()
		if err := errors.Join(err, pause(ctx, replicaLag)); err != nil {
			return err
		}
		t.res.note("the replica lacks the last %v, in which %d were acknowledged", replicaLag, t.book.count()-before)
		return nil
	}
}

// failback makes Redis follow a replica that has missed the last moments, and then the master again: the same
// process with older content.
func failback(ctx context.Context, t *trial) error {
	addr := t.es["redis"].Addr()
	r, err := t.startReplica(ctx, addr)
	if err != nil {
		return err
	}
	master := &replica{client: goredis.NewClient(&goredis.Options{Addr: addr, DisableIdentity: true})}
	t.after = func() error { return errors.Join(r.close(), master.client.Close()) }
	return t.run(ctx, spec{blind: true}, t.lag(r), r.follow("no", "one"), t.anew,
		master.follow("127.0.0.1", port(r.addr)), master.following, master.follow("no", "one"), wait(4*time.Second))
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// tornFile kills Redis and truncates its append-only file to its length some moments ago, in the middle of a
// record.
func tornFile(ctx context.Context, t *trial) error {
	return t.run(ctx, spec{blind: true}, wait(3*time.Second), t.cutFile, wait(4*time.Second))
}

func (t *trial) cutFile(ctx context.Context) error {
	file, size, err := t.appendOnly()
	if err != nil {
		return err
	}
	redis := t.es["redis"]
	before := t.book.count()
	if err := inTurn(ctx, wait(replicaLag), kill(redis), t.anew); err != nil {
		return err
	}
	_, end, err := t.appendOnly()
	t.res.note("%d of %d bytes cut off, in which %d were acknowledged", end-size-7, end, t.book.count()-before)
	if err := errors.Join(err, os.Truncate(file, size+7)); err != nil {
		return err
	}
	return inTurn(ctx, wait(time.Second), redis.Start)
}

// appendOnly returns the file that Redis appends to, and its size in bytes.
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

func number(file string) int {
	parts := strings.Split(filepath.Base(file), ".")
	n, _ := strconv.Atoi(parts[len(parts)-3]) // Redis names the files
	return n
}

// queuedLive loses all of Redis and all services while the jobs live and archive quickly.
func queuedLive(ctx context.Context, t *trial) error {
	lose := func(ctx context.Context) error {
		crash(t.stack.services)
		return inTurn(ctx, t.anew, t.loseRedis)
	}
	again := func(ctx context.Context) error {
		err := inTurn(ctx, wait(3*time.Second), lose)
		up(t.stack.services)
		return errors.Join(err, t.stack.awaitReady(ctx))
	}
	if err := t.run(ctx, spec{gentle: true, blind: true, direct: true, ack: historyv1.Ack_ACK_QUEUED}, again, again, again, wait(time.Second)); err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, restoredRecords)
	t.res.note("%.0f records given back by the jobs", restored)
	return err
}

const restoredRecords = "playhead_job_restored_records_total"

func (t *trial) loseRedis(ctx context.Context) error {
	redis, aof, _ := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(aof), redis.Start(ctx)); err != nil {
		return fmt.Errorf("lose all of redis: %w", err)
	}
	return nil
}

// queued loses all of Redis, including its file, and all services. No queued record has been announced: only the
// queue has them.
func queued(ctx context.Context, t *trial) error {
	sp := spec{hold: 20 * time.Second, sweep: 42 * time.Second, gentle: true, blind: true, direct: true, ack: historyv1.Ack_ACK_QUEUED}
	if err := t.start(ctx, sp); err != nil {
		return err
	}
	crash(t.stack.jobs) // nothing is archived
	if err := t.underLoad(wait(3 * time.Second))(ctx); err != nil {
		return err
	}
	crash(t.stack.services)
	if err := t.loseRedis(ctx); err != nil {
		return err
	}
	up(t.stack.units())
	if err := t.markClean(ctx); err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, restoredRecords)
	t.res.note("%.0f records restored from the queue", restored)
	if err == nil && restored == 0 {
		err = errors.New("the queue has restored nothing")
	}
	return err
}

// rollback restores an earlier file of Redis, dirty marks included. The archive must keep its later records, and
// readers must see them.
func rollback(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{blind: true, direct: true}); err != nil {
		return err
	}
	load := t.underLoad(wait(2 * time.Second))
	if err := inTurn(ctx, load, t.keepFile, load, t.quiet); err != nil {
		return err
	}
	repairs, err := total(ctx, t.stack.jobs, cacheRepairs)
	if err := errors.Join(err, t.backToFile(ctx)); err != nil {
		return err
	}
	older, err := t.older(ctx)
	if err != nil {
		return err
	}
	t.res.note("%d of %d records are older in the cache than in the archive", older, len(t.book.stories))
	began := time.Now()
	err = process.Await(ctx, 30*time.Second, "a repair by each job", atLeast(repairs+float64(len(t.stack.jobs)), t.stack.jobs, cacheRepairs))
	if err != nil {
		return err
	}
	restored, err := total(ctx, t.stack.jobs, restoredRecords)
	t.res.note("%.0f given back to it, %v later", restored, time.Since(began).Round(100*time.Millisecond))
	return errors.Join(err, t.markClean(ctx))
}

// rollbackHeld restores an earlier file of Redis while no later write is archived: the services still hold all of
// them.
func rollbackHeld(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{hold: 10 * time.Second, sweep: 22 * time.Second, gentle: true, blind: true, direct: true}); err != nil {
		return err
	}
	load := t.underLoad(wait(time.Second))
	if err := inTurn(ctx, load, t.keepFile, t.anew, load, t.backToFile); err != nil {
		return err
	}
	const reclaimed = "comparing it with held records"
	for _, u := range t.stack.services {
		err := process.Await(ctx, 20*time.Second, u.name+" to write again what it holds", func(context.Context) error {
			if strings.Count(u.logTail(), reclaimed) < 2 { // keepFile's restart counts too
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
	return t.markClean(ctx)
}

// keepFile copies the current file of Redis, during a restart.
func (t *trial) keepFile(ctx context.Context) error {
	redis, aof, old := t.redisFiles()
	if err := errors.Join(redis.Kill(), os.RemoveAll(old), os.CopyFS(old, os.DirFS(aof)), redis.Start(ctx)); err != nil {
		return fmt.Errorf("keep the file of redis: %w", err)
	}
	return nil
}

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

// older returns the number of records that differ between the cache and the archive.
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

// clearedFor returns the time up to which an object is certainly cleared.
func (b *book) clearedFor(k history.Key) (at int64) {
	for _, c := range b.clears[k.UID] {
		if c.acked && (c.typ == 0 || c.typ == k.Object.Type) {
			at = max(at, c.until)
		}
	}
	return at
}

var garbage = []byte("\xff\xff by hand \xff")

// damage corrupts cells of the archive and some cached records, one of them unarchived. All other records must be
// served, archived and deleted as usual. A corrupt cell must reach the dead letters before it is overwritten.
func damage(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	load := t.underLoad(wait(2 * time.Second))
	return inTurn(ctx, load, t.quiet, t.spoilRecords, t.anew, load, t.markClean, t.spoilCell)
}

// spoilRecords corrupts archived records in the cache, and one unarchived record. Only that record's event may be
// lost.
func (t *trial) spoilRecords(ctx context.Context) error {
	c := t.stack.redisClient()
	defer c.Close()
	spoilt := 0
	for k, s := range t.book.stories {
		if _, acked := s.after(t.book.clearedFor(k)); latest(acked) == nil || spoilt == 5 {
			continue
		}
		if err := overwrite(ctx, c, k); err != nil {
			return err
		}
		spoilt++
		if err := t.put(ctx, t.stack.rpcs[spoilt%2], k, history.KindProgress, time.Now().UnixMilli(), 70_000); err != nil {
			return err
		}
	}
	alone := history.Key{UID: "c25-alone", Object: objectOf(0)}
	beside := history.Key{UID: "c25-alone", Object: objectOf(1)}
	for _, k := range []history.Key{alone, beside} {
		if err := t.put(ctx, t.stack.rpcs[0], k, history.KindProgress, time.Now().UnixMilli()-lag, 50_000); err != nil {
			return err
		}
	}
	if spoilt == 0 {
		return errors.New("no record to spoil")
	}
	delete(t.book.stories, alone)
	t.res.note("%d archived records of the cache spoilt, and one that nobody else has", spoilt)
	return overwrite(ctx, c, alone)
}

// overwrite corrupts a cached record and keeps its TTL.
func overwrite(ctx context.Context, c *goredis.Client, k history.Key) error {
	return c.SetXX(ctx, contentKey(k), garbage, goredis.KeepTTL).Err()
}

// spoilCell corrupts one cell of a row, and reads the row from the archive alone. The other cells must be served, and
// the damage counted.
func (t *trial) spoilCell(ctx context.Context) error {
	uid, spoilt := t.richest()
	if err := errors.Join(t.overwriteCell(ctx, history.Key{UID: uid, Object: spoilt}), t.stack.flush(ctx)); err != nil {
		return err
	}
	c := &checker{book: t.book, cache: t.stack.cache, archive: t.stack.archive, rpcs: t.stack.rpcs, res: t.res, visible: map[string]map[history.Object]*history.Record{}}
	row, err := t.stack.archive.Page(ctx, uid, history.Query{Limit: 10_000})
	if err != nil {
		return err
	}
	if len(row.Damaged) != 1 || row.Damaged[0].Object != spoilt {
		return fmt.Errorf("the row of %s tells of damage %v, want %s", uid, row.Damaged, spoilt)
	}
	for _, it := range row.Items {
		k := history.Key{UID: uid, Object: it.Object}
		cleared := t.book.clearedFor(k)
		r := it.Record.After(cleared)
		if f := t.book.stories[k].judge(r, cleared); f != nil {
			t.res.count(k, "archive", f)
		}
		c.show(k, visible(r))
	}
	if err := c.pages(ctx, uid); err != nil {
		return err
	}
	damaged, err := total(ctx, t.stack.services, "playhead_stores_damaged_cells_total")
	if t.res.note("one of %d cells of a row spoilt: %.0f times come across, the others served", len(row.Items)+1, damaged); err == nil && damaged == 0 {
		err = errors.New("the damage was not counted")
	}
	if err := errors.Join(err, t.healCell(ctx, history.Key{UID: uid, Object: spoilt})); err != nil {
		return err
	}
	return t.buryCell(ctx, row.Items[0].Object, uid)
}

func (t *trial) overwriteCell(ctx context.Context, k history.Key) error {
	client := gohbase.NewClient(t.es["hbase"].Addr())
	defer client.Close()
	put, err := hrpc.NewPut(ctx, []byte(t.stack.name), []byte(history.RowKey(k.UID)),
		map[string]map[string][]byte{"info": {k.Object.String(): garbage}}, hrpc.TimestampUint64(uint64(time.Now().UnixMilli()))) //nolint:gosec // after 1970
	if err == nil {
		_, err = client.Put(put)
	}
	return err
}

// buryCell has a report overwrite a corrupt cell without a cached copy. The dead letters must have the bytes
// first.
func (t *trial) buryCell(ctx context.Context, o history.Object, uid string) error {
	k := history.Key{UID: uid, Object: o}
	if err := errors.Join(t.overwriteCell(ctx, k), t.forgetUser(ctx, uid)); err != nil {
		return err
	}
	delete(t.book.stories, k) // both copies are deliberately corrupt
	at := time.Now().UnixMilli()
	if err := errors.Join(t.put(ctx, t.stack.rpcs[0], k, history.KindStop, at, 80_000), t.stack.quiet(ctx, t.Limit)); err != nil {
		return err
	}
	row, err := t.stack.archive.Page(ctx, uid, history.Query{Limit: 10_000})
	if err == nil && len(row.Damaged) > 0 {
		err = fmt.Errorf("a report leaves the damage: %v", row.Damaged)
	}
	letters, readErr := t.stack.deadLetters(ctx)
	if err := errors.Join(err, readErr); err != nil {
		return err
	}
	for _, l := range letters {
		if l.Key == k && bytes.Equal(l.Cell, garbage) && l.Reason != "" {
			t.res.note("another one, of which only the archive had anything, gave way to a report and lies with the dead letters")
			return nil
		}
	}
	return fmt.Errorf("the damaged cell of %s is gone, and is not among the %d dead letters", k, len(letters))
}

// forgetUser removes a user from the cache, like expiry.
func (t *trial) forgetUser(ctx context.Context, uid string) error {
	c := t.stack.redisClient()
	defer c.Close()
	tag := fmt.Sprintf("{b%04d}:", history.BucketOf(uid))
	keys := []string{tag + "h:" + uid, tag + "u:" + uid}
	for k := range t.book.stories {
		if k.UID == uid {
			keys = append(keys, tag+"c:"+uid+":"+k.Object.String())
		}
	}
	return c.Del(ctx, keys...).Err()
}

// healCell deletes the corrupt object, as its user may. It must be gone, and the others must stay.
func (t *trial) healCell(ctx context.Context, k history.Key) error {
	target := t.stack.rpcs[0]
	_, err := untilAnswered(ctx, func(ctx context.Context) (*historyv1.DeleteResponse, error) {
		return target.Delete(ctx, &historyv1.DeleteRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: k.Object.ID, Type: k.Object.Type}}})
	})
	if err := errors.Join(err, t.stack.quiet(ctx, t.Limit)); err != nil {
		return fmt.Errorf("delete of a spoilt cell: %w", err)
	}
	row, err := t.stack.archive.Page(ctx, k.UID, history.Query{Limit: 10_000})
	if err == nil && len(row.Damaged) > 0 {
		err = fmt.Errorf("the delete leaves the damage: %v", row.Damaged)
	}
	return err
}

// richest returns the user with the most certainly existing objects, and one of these.
func (t *trial) richest() (uid string, o history.Object) {
	count := make(map[string]int)
	for k, s := range t.book.stories {
		if _, acked := s.after(t.book.clearedFor(k)); latest(acked) != nil && latest(acked).Kind != history.KindDelete {
			if count[k.UID]++; count[k.UID] > count[uid] {
				uid, o = k.UID, k.Object
			}
		}
	}
	return uid, o
}
