package pebble_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble"
)

// TestFollowedMarkCleanSurvives: a clean record in a followed change log is still clean after a crash. The
// client never asks for that entry again, so the next write must add another.
func TestFollowedMarkCleanSurvives(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := open(t, "store", pebble.Config{}.On(fs))
	c, k, ctx := db.Cache(), viewing(1, 1), t.Context()
	log, err := c.Changes(ctx, k.UID, 0, 10)
	must(t, err)
	r := beat(now())
	r.Partial = true
	write := func(c *pebble.Cache, r *history.Record, base uint64) {
		t.Helper()
		if out := c.Write(ctx, []history.Write{{Key: k, Record: r, Base: base}})[0]; out.Status != history.Applied {
			t.Fatal(out)
		}
	}
	write(c, r, 0)
	must(t, c.MarkClean(ctx, []history.Content{{Key: k, Revision: r.Revision}}))
	if e := c.Load(ctx, []history.Key{k})[0]; !e.Record.Clean() {
		t.Fatalf("the record is %+v, want a clean one", e.Record)
	}
	again := open(t, "store", pebble.Config{}.On(fs.CrashClone(vfs.CrashCloneCfg{}))).Cache()
	e := again.Load(ctx, []history.Key{k})[0]
	if !e.Record.Clean() {
		t.Fatalf("after a crash the record is %+v, want a clean one", e.Record)
	}
	next := beat(now() + 1)
	write(again, next, e.Record.Revision)
	after, err := again.Changes(ctx, k.UID, 1, 10)
	must(t, err)
	if after.Log != log.Log || len(after.Entries) != 1 || after.Entries[0].Place != 2 {
		t.Errorf("after a crash the log is %+v, want the one of before with another entry", after)
	}
}

// TestUnaskedLogEnds: the sweep ends a log without readers.
func TestUnaskedLogEnds(t *testing.T) {
	at := time.UnixMilli(now())
	db := open(t, "store", pebble.Config{Now: func() time.Time { return at }}.On(vfs.NewMem()))
	c, ctx := db.Cache(), t.Context()
	asked, unasked := viewing(1, 1).UID, viewing(2, 1).UID
	logs := map[string]uint64{}
	for _, uid := range []string{asked, unasked} {
		l, err := c.Changes(ctx, uid, 0, 1)
		must(t, err)
		logs[uid] = l.Log
	}
	at = at.Add(history.ChangeLogTTL / 2)
	_, err := c.Changes(ctx, asked, 0, 1)
	must(t, err)
	at = at.Add(history.ChangeLogTTL/2 + 25*time.Hour)
	_, err = db.Sweep(ctx)
	must(t, err)
	for uid, goesOn := range map[string]bool{asked: true, unasked: false} {
		if l, err := c.Changes(ctx, uid, 0, 1); err != nil || (l.Log == logs[uid]) != goesOn {
			t.Errorf("%s: the log is %x (%v), before %x; goes on %v", uid, l.Log, err, logs[uid], goesOn)
		}
	}
}
