package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// maxScore is the latest time that a score stores exactly.
const maxScore = 1 << 53

// Clear implements [history.Cache]. It blocks the server for about 3 us per removed record and 1 us per other
// record.
func (c *Cache) Clear(ctx context.Context, uid string, what history.Clear) (int64, error) {
	_, stateTTL := c.ttls(uid)
	cmd, err := c.overList(ctx, uid, func(contents []string) *goredis.Cmd {
		return c.scripts.clear.call(ctx, append(userKeys(uid), contents...),
			strconv.FormatUint(uint64(what.Type), 10), min(what.Until, maxScore), stateRevision(), stateTTL, revisionStep())
	})
	if err != nil {
		return 0, unavailable("clear", err)
	}
	until, err := cmd.Int64()
	return until, unavailable("clear", err)
}

// userKeys returns the list, the state and the dirty marks.
func userKeys(uid string) []string {
	return []string{listKey(uid), stateKey(uid), dirtyKey(history.BucketOf(uid))}
}

// Pause implements [history.Cache]. It blocks the server for about 1 us per record of the user.
func (c *Cache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	_, stateTTL := c.ttls(uid)
	cmd, err := c.overList(ctx, uid, func(contents []string) *goredis.Cmd {
		return c.scripts.pause.call(ctx, append(userKeys(uid), contents...),
			from.Since, from.Until, to.Since, to.Until, revisionStep(), stateRevision(), stateTTL, string(to.Earlier))
	})
	if err != nil {
		return unavailable("pause", err)
	}
	switch done, err := cmd.Int64(); {
	case err != nil:
		return unavailable("pause", err)
	case done == 0:
		return fmt.Errorf("pause: %w: another one is in force", history.ErrConflict)
	}
	return nil
}

// stateRevision returns a new revision of a user's state, with room for increments.
func stateRevision() uint64 { return history.NewRevision() >> 1 }

// revisionStep returns the eight bytes that a script adds to revisions.
func revisionStep() []byte { return binary.LittleEndian.AppendUint64(nil, history.NewRevision()) }

// Warm implements [history.Cache]. It blocks the server for about 4 us per record.
func (c *Cache) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	keys, args := c.warming(uid, w)
	if !c.overwrites(w) {
		return unavailable("warm", c.run(ctx, c.scripts.warm.call(ctx, keys, args...)))
	}
	_, err := c.overList(ctx, uid, func(contents []string) *goredis.Cmd {
		return c.scripts.warm.call(ctx, slices.Concat(keys, contents), args...)
	})
	return unavailable("warm", err)
}

// WarmAll warms several users in one exchange per node, except those of [Cache.overwrites].
func (c *Cache) WarmAll(ctx context.Context, uids []string, sets []history.WarmSet) []error {
	errs := make([]error, len(uids))
	var cmds []*goredis.Cmd
	var of []int
	for i, uid := range uids {
		if c.overwrites(sets[i]) {
			errs[i] = c.Warm(ctx, uid, sets[i])
			continue
		}
		keys, args := c.warming(uid, sets[i])
		cmds, of = append(cmds, c.scripts.warm.call(ctx, keys, args...)), append(of, i)
	}
	_ = c.runAll(ctx, cmds) // the commands carry the errors
	for n, i := range of {
		errs[i] = unavailable("warm", cmds[n].Err())
	}
	return errs
}

// overwrites reports whether a warm-up gives the user's cached records a new revision, or a longer TTL.
func (c *Cache) overwrites(w history.WarmSet) bool {
	return w.Pause != (history.Pause{}) || len(w.Cleared) > 0 || c.warmFor() != "0"
}

// warming returns the keys and arguments of a warm-up, without the contents of the user's list.
func (c *Cache) warming(uid string, w history.WarmSet) (keys []string, args []any) {
	args = make([]any, 0, 10+2*len(w.Cleared)+3*len(w.Items))
	ttl, stateTTL := c.ttls(uid)
	args = append(args, ttl, stateTTL, c.warmFor(), int64(w.LowWatermark), w.CutTime, w.Pause.Since, w.Pause.Until, revisionStep(), string(w.Pause.Earlier), len(w.Cleared))
	for typ, at := range w.Cleared {
		args = append(args, typ, at)
	}
	keys = make([]string, 0, 2+len(w.Items))
	keys = append(keys, listKey(uid), stateKey(uid))
	for _, item := range w.Items {
		clean := wire.AppendRecord(nil, item.Record)
		clean[wire.RevisionEnd-1] |= 0x80
		keys = append(keys, contentKey(history.Key{UID: uid, Object: item.Object}))
		args = append(args, appendObject(nil, item.Object), appendScore(nil, item.Record.Version), clean)
	}
	return keys, args
}

const (
	mostNotes  = 1000 // per bucket
	noteTTL    = 90 * 24 * time.Hour
	removedTTL = 24 * time.Hour
)

// Note implements compaction.Notes of the job. A full bucket drops the note that is due last.
func (c *Cache) Note(ctx context.Context, uid string, due int64) error {
	key := longKey(history.BucketOf(uid))
	cmds := []goredis.Cmder{goredis.NewIntCmd(ctx, "zrem", key, uid)}
	if due != 0 {
		cmds = []goredis.Cmder{
			goredis.NewIntCmd(ctx, "zadd", key, due, uid), goredis.NewIntCmd(ctx, "zremrangebyrank", key, mostNotes, -1),
			goredis.NewIntCmd(ctx, "expire", key, int64(noteTTL.Seconds())),
		}
	}
	pipeline(ctx, c, cmds)
	return unavailable("note", firstErr(cmds))
}

// TakeNotes implements compaction.Notes of the job. It starts at a random bucket for fairness.
func (c *Cache) TakeNotes(ctx context.Context, buckets []history.Bucket, now int64, limit int) (uids []string, err error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	n := rand.IntN(len(buckets)) //nolint:gosec // no secret
	for some := range slices.Chunk(slices.Concat(buckets[n:], buckets[:n]), portion) {
		cmds := make([]*goredis.StringSliceCmd, len(some))
		for i, b := range some {
			cmds[i] = goredis.NewStringSliceCmd(ctx, "zrangebyscore", longKey(b), "-inf", now, "limit", 0, 1)
		}
		pipeline(ctx, c, cmds)
		var putOff []*goredis.IntCmd
		for _, cmd := range cmds {
			for _, uid := range cmd.Val() {
				uids = append(uids, uid)
				putOff = append(putOff, goredis.NewIntCmd(ctx, "zadd", longKey(history.BucketOf(uid)), "xx", now+history.NoteLease.Milliseconds(), uid))
			}
		}
		pipeline(ctx, c, putOff)
		if err = cmp.Or(firstErr(cmds), firstErr(putOff)); err != nil || len(uids) >= limit {
			break
		}
	}
	return uids, unavailable("take notes", err)
}

// NoteRemoved implements compaction.Notes of the job.
func (c *Cache) NoteRemoved(ctx context.Context, uids []string, at int64) error {
	cmds := make([]goredis.Cmder, 0, 2*len(uids))
	for _, uid := range uids {
		key := removedKey(history.BucketOf(uid))
		cmds = append(cmds, goredis.NewIntCmd(ctx, "zadd", key, at, uid), goredis.NewIntCmd(ctx, "expire", key, int64(removedTTL.Seconds())))
	}
	pipeline(ctx, c, cmds)
	return unavailable("note removals", firstErr(cmds))
}

// Removed implements compaction.Notes of the job.
func (c *Cache) Removed(ctx context.Context, buckets []history.Bucket, until int64) (uids []string, err error) {
	cmds := make([]*goredis.StringSliceCmd, len(buckets))
	for i, b := range buckets {
		cmds[i] = goredis.NewStringSliceCmd(ctx, "zrangebyscore", removedKey(b), "-inf", until)
	}
	pipeline(ctx, c, cmds)
	for _, cmd := range cmds {
		uids = append(uids, cmd.Val()...)
	}
	return uids, unavailable("notes of removals", firstErr(cmds))
}

// ForgetRemoved implements compaction.Notes of the job.
func (c *Cache) ForgetRemoved(ctx context.Context, buckets []history.Bucket, until int64) error {
	cmds := make([]*goredis.IntCmd, len(buckets))
	for i, b := range buckets {
		cmds[i] = goredis.NewIntCmd(ctx, "zremrangebyscore", removedKey(b), "-inf", until)
	}
	pipeline(ctx, c, cmds)
	return unavailable("forget removals", firstErr(cmds))
}

// Held counts a user's stored items by place.
func (c *Cache) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	most := "+inf"
	if until > 0 {
		most = "(" + strconv.FormatInt(until+1, 10) // ranks are fractions of a millisecond
	}
	b := history.BucketOf(uid)
	members := goredis.NewStringSliceCmd(ctx, "zrangebyscore", listKey(uid), "-inf", most)
	named := goredis.NewStringCmd(ctx, "hget", stateKey(uid), "log")
	log := goredis.NewStringSliceCmd(ctx, "zrange", logKey(uid), 0, -1)
	seen := goredis.NewIntCmd(ctx, "hexists", stateKey(uid), "seen")
	notes := goredis.NewFloatCmd(ctx, "zscore", longKey(b), uid)
	state := goredis.NewFloatCmd(ctx, "zscore", dirtyKey(b), history.UserKey(uid).String())
	pipeline(ctx, c, []goredis.Cmder{members, named, log, seen, notes, state})
	if err := counting(firstErr([]goredis.Cmder{members, log, seen})); err != nil {
		return nil, err
	}
	marks, err := c.marksOf(ctx, uid, members.Val())
	if err != nil {
		return nil, counting(err)
	}
	places := map[string]int{
		"cache: records": len(members.Val()), "cache: dirty marks": marks, "cache: changes": 0, "cache: days": 0, "cache: notes": 0,
		history.StatePlace: 0,
	}
	for place, score := range map[string]*goredis.FloatCmd{history.StatePlace: state, "cache: notes": notes} {
		if err := score.Err(); err == nil {
			places[place] = 1
		} else if !errors.Is(err, goredis.Nil) {
			return nil, counting(err)
		}
	}
	entries := log.Val()
	if until == 0 {
		places["cache: days"] = int(seen.Val())
	} else if places["cache: notes"] = 0; len(entries) > 0 && entries[0] == named.Val() {
		entries = nil // a clear ends the log, so this one began later
	}
	places["cache: changes"] = max(0, len(entries)-1) // the first is its name
	return places, nil
}

func counting(err error) error { return unavailable("count what there is of a user", err) }

// marksOf counts the dirty marks of members of a user's list.
func (c *Cache) marksOf(ctx context.Context, uid string, members []string) (n int, err error) {
	cmds := make([]*goredis.FloatCmd, len(members))
	for i, member := range members {
		cmds[i] = goredis.NewFloatCmd(ctx, "zscore", dirtyKey(history.BucketOf(uid)), string(history.AppendUID(nil, uid))+"/"+member)
	}
	pipeline(ctx, c, cmds)
	for _, cmd := range cmds {
		if err := cmd.Err(); err == nil {
			n++
		} else if !errors.Is(err, goredis.Nil) {
			return 0, err
		}
	}
	return n, nil
}

// Namespaces returns a user's namespaces with possible data. It scans all keys of the user's server.
func (c *Cache) Namespaces(ctx context.Context, uid string) (all []string, err error) {
	b := history.BucketOf(uid)
	server, err := c.master(ctx, b)
	if err != nil {
		return nil, unavailable("namespaces", err)
	}
	for _, kind := range []string{"h:", "u:"} {
		prefix := string(appendBucket(nil, b)) + kind
		pattern := prefix + string(history.AppendUID(nil, history.NamespacePrefix(uid))) + "*"
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var keys []string
			if keys, cursor, err = server.Scan(ctx, cursor, pattern, scanStep).Result(); err != nil {
				return nil, unavailable("namespaces", err)
			}
			for _, key := range keys {
				namespace, err := history.ParseUID(key[len(prefix):])
				if err == nil && !slices.Contains(all, namespace) {
					all = append(all, namespace)
				}
			}
		}
	}
	return all, nil
}

// scanStep is the SCAN count per call; larger calls block other clients.
const scanStep = 1000

// Erase removes a user's data up to a time, including what a clear keeps. If a log begins concurrently, its reader finds
// it gone and begins another.
func (c *Cache) Erase(ctx context.Context, uid string, _ int64) error {
	cmds := []goredis.Cmder{
		goredis.NewIntCmd(ctx, "del", logKey(uid)),
		goredis.NewIntCmd(ctx, "hdel", stateKey(uid), "seen"),
		goredis.NewIntCmd(ctx, "zrem", longKey(history.BucketOf(uid)), uid),
	}
	pipeline(ctx, c, cmds)
	return unavailable("erase", firstErr(cmds))
}

// Remains says where erased bytes stay.
func (c *Cache) Remains(context.Context) []string {
	return []string{"Redis: in the append-only file until it is written again (BGREWRITEAOF), and in snapshots that were made before"}
}
