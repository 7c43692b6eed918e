package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

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
