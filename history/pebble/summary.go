package pebble

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/pebble/index"
	"github.com/playhead/playhead/history/pebble/wal"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// beginSummaries reads the TTL of summaries and changes it to [Config.Summary] if set. A store with summaries
// updates them even without that setting, so that deletes reach them.
func (d *DB) beginSummaries() error {
	err := get(d.pebble, []byte{spaceSummaries}, func(v []byte) error {
		if len(v) == 16 {
			d.summaryTTL = int64(binary.BigEndian.Uint64(v))       //nolint:gosec // as it was written
			d.counted.Store(int64(binary.BigEndian.Uint64(v[8:]))) //nolint:gosec // as above
		}
		return nil
	})
	ttl := d.config.Summary.Milliseconds()
	if err != nil || ttl == 0 || ttl == d.summaryTTL {
		return err
	}
	if d.summaryTTL == 0 { // records already expired are in no summary
		d.counted.Store(d.config.Rules.NamespaceExpired("", d.now()))
	}
	d.summaryTTL = ttl
	t := new(wal.Waiter)
	if err := d.storeCounted(t); err != nil {
		return err
	}
	return d.wait(t)
}

// storeCounted stores the TTL of summaries and the time before which all expired records are summarized.
func (d *DB) storeCounted(t *wal.Waiter) error {
	return d.Archive().change(t, func(e *edit) error {
		v := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(d.summaryTTL)), uint64(d.counted.Load())) //nolint:gosec // times
		return set(e.batch, []byte{spaceSummaries}, v)
	})
}

// SummaryTTL returns the lifetime of summaries.
func (a *Archive) SummaryTTL(context.Context) (int64, error) { return a.db.summaryTTL, nil }

// Summaries returns a page of a user's summaries.
func (a *Archive) Summaries(ctx context.Context, uid string, q history.Query) (page history.SummaryPage, err error) {
	err = a.readSummaries(ctx, uid, func(p *segment.Reader, u history.User, oldest int64) (err error) {
		page, err = p.Summaries(u, oldest, q)
		return err
	})
	return page, err
}

// SummariesOf returns a user's summaries of some objects.
func (a *Archive) SummariesOf(ctx context.Context, uid string, objects []history.Object) (found []history.Summary, err error) {
	err = a.readSummaries(ctx, uid, func(p *segment.Reader, u history.User, oldest int64) (err error) {
		found, err = p.SummariesOf(u, oldest, objects)
		return err
	})
	return found, err
}

func (a *Archive) readSummaries(ctx context.Context, uid string, read func(p *segment.Reader, u history.User, oldest int64) error) error {
	if err := a.db.enter(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	snapshot := a.db.pebble.NewSnapshot()
	defer snapshot.Close()
	var u history.User
	err := get(snapshot, appendUser(nil, a.space, uid), func(v []byte) (err error) {
		u, err = wire.User(v)
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	p, err := a.db.summariesOf(snapshot, uid)
	if err != nil {
		return err
	}
	return read(p, u, a.db.now()-a.db.summaryTTL)
}

// summariesOf returns a reader of a user's summaries in a snapshot.
func (d *DB) summariesOf(from pebble.Reader, uid string) (*segment.Reader, error) {
	prefix := appendUser(nil, spaceSummaries, uid)
	r := &segment.Reader{Metadata: new(segment.Metadata), Chunk: func(i *segment.Info) (*segment.Chunk, error) {
		return cached(d, uid+"\x00u"+i.Name, func() (*segment.Chunk, int, error) { return readChunk(from, prefix, i) })
	}}
	err := get(from, prefix, func(v []byte) error {
		if v == nil {
			return nil
		}
		m, err := segment.ParseMetadata(bytes.Clone(v))
		if err != nil {
			if errors.Is(err, segment.ErrCorrupt) {
				d.segmentMetrics.Damaged.Inc()
			}
			return unavailable(err)
		}
		r.Metadata = m
		return nil
	})
	return r, err
}

// Summarize adds a user's old records to the summaries. It is not synced. A crash that loses summaries also loses the later
// deletes of their records, so those are summarized again.
func (a *Archive) Summarize(ctx context.Context, uid string, all bool) error {
	return a.summarizeWith(ctx, uid, look{all: all})
}

// SummarizePast adds past viewings to a user's summaries and sets Kept. Unlike Summarize, it is on disk when it returns.
func (a *Archive) SummarizePast(ctx context.Context, uid string, past []*history.PastViewing) error {
	t := new(wal.Waiter)
	if err := a.summarizeWith(ctx, uid, look{all: true, past: past, durable: t}); err != nil {
		return err
	}
	return a.db.wait(t)
}

// look selects the work of a summarize call.
type look struct {
	all     bool // include every tombstone
	past    []*history.PastViewing
	durable *wal.Waiter // nil is not synced
}

func (a *Archive) summarizeWith(ctx context.Context, uid string, l look) error {
	if a.db.summaryTTL == 0 {
		return nil
	}
	if err := a.db.enterWriting(ctx); err != nil {
		return err
	}
	defer a.db.leave()
	a.db.compactions.Lock()
	defer a.db.compactions.Unlock()
	if err := a.summarize(uid, l); err != nil {
		return fmt.Errorf("summarize %s: %w", history.Pseudonym(uid), err)
	}
	return nil
}

// summarize also counts expired records that still exist. The caller holds d.compactions.
func (a *Archive) summarize(uid string, l look) error {
	snapshot := a.db.pebble.NewSnapshot()
	defer snapshot.Close()
	p, err := a.db.summariesOf(snapshot, uid)
	kept, ttl := a.db.config.Rules.Summarized(uid), a.db.summaryTTL
	if err != nil || len(p.Chunks) == 0 && (l.all && len(l.past) == 0 || !kept) { // nothing to remove from
		return err
	}
	if !kept {
		ttl, l.past = 0, nil
	}
	now := a.db.now()
	before := a.db.config.Rules.SummaryBefore(now)
	page, err := a.aging(uid, snapshot, before, l)
	if err != nil {
		return err
	}
	run := rand.Text()[:13]
	plan, err := p.Summarize(segment.Summing{
		Items: page.Items, Past: l.past, Before: before, Cleared: page.User.Cleared, Oldest: now - ttl, Rules: a.db.config.Rules,
		Version: max(p.Version+1, uint64(now)), //nolint:gosec // never before 1970
		Name:    func(n int) string { return fmt.Sprintf("%s.%d", run, n) },
	})
	if err != nil || !plan.Changed {
		return err
	}
	return a.replaceSummaries(uid, plan, l.durable)
}

// aging returns a user's records and tombstones from before a time, expired ones included. With all it adds
// deleted objects of any age, and those of past viewings.
//
// It omits records counted by the sweep: some may be gone, and a segment may have earlier copies of others.
func (a *Archive) aging(uid string, snapshot *pebble.Snapshot, before int64, l look) (history.Page, error) {
	longer := *a
	longer.counting = true
	m := moment{prefix: appendUser(nil, a.space, uid), snapshot: snapshot, asked: new(index.Row)}
	q := history.Query{Limit: math.MaxInt}
	if !l.all {
		q.Until = before - 1
	}
	page, err := longer.pageOf(uid, m, q)
	page.Items = slices.DeleteFunc(page.Items, func(it history.Item) bool {
		return it.Record.Version.Time() >= before && it.Record.RemovedAt == 0 &&
			!slices.ContainsFunc(l.past, func(v *history.PastViewing) bool { return v.Object == it.Object })
	})
	return page, err
}

func (a *Archive) replaceSummaries(uid string, plan segment.Plan, durable *wal.Waiter) error {
	return a.change(durable, func(e *edit) error {
		written, err := writeChunks(e.batch, appendUser(nil, spaceSummaries, uid), plan)
		if err != nil {
			return err
		}
		a.db.segmentMetrics.Summarized.Add(float64(plan.Counted))
		a.db.segmentMetrics.SummaryBytes.Add(float64(written))
		return nil
	})
}

// summing is a sweep that summarizes users with old records. It drops an expired record only after counting it.
type summing struct {
	archive *Archive
	failed  map[string]bool // users whose summary failed
	aging   []string        // users found by the current step
	began   int64           // start of the sweep, Unix ms
	before  int64           // the previous sweep counted records from before this time
}

// dropCounted notes users with old records and drops expired records counted by the previous sweep.
func (s *summing) dropCounted(drop dropper) dropper {
	last, before := "", s.archive.db.config.Rules.SummaryBefore(s.began)
	return func(e *edit, key, value []byte) (bool, error) {
		version := wire.Peek(value).Version
		if key[len(key)-1] == endOfUID || version == 0 || version.Time() >= before {
			return drop(e, key, value)
		}
		uid := uidOf(key)
		if !s.archive.db.config.Rules.Summarized(uid) {
			return drop(e, key, value)
		}
		if last != uid {
			last = uid
			s.aging = append(s.aging, uid)
		}
		if version.Time() >= s.before || s.failed[uid] {
			return false, nil
		}
		return drop(e, key, value)
	}
}

// step summarizes the users found by a step, after the step has released its lock.
func (s *summing) step(ctx context.Context) error {
	for _, uid := range s.aging {
		s.one(ctx, uid)
	}
	s.aging = s.aging[:0]
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// one summarizes a user. A failure is only logged, so it blocks no other user.
func (s *summing) one(ctx context.Context, uid string) {
	delete(s.failed, uid)
	if err := s.archive.Summarize(ctx, uid, false); err != nil {
		s.failed[uid] = true
		if ctx.Err() == nil {
			s.archive.db.config.Logger.Error("summary failed; expired records of the user kept", "error", err)
		}
	}
}

// sweepSummaries sweeps the archive. It summarizes old records, including those in segments, and removes stale
// summaries.
func (a *Archive) sweepSummaries(ctx context.Context) (swept int, err error) {
	d := a.db
	s := &summing{archive: a, failed: d.uncounted, began: d.now(), before: d.counted.Load()}
	drop := a.noteLongRows(s.dropCounted(a.dropExpired()))
	for from := []byte{a.space}; from != nil; {
		var n int
		if n, from, err = a.sweepFrom(ctx, from, drop); err != nil {
			return swept, err
		}
		swept += n
		if err := s.step(ctx); err != nil {
			return swept, err
		}
	}
	old, err := d.usersOf(spaceSegments, func(string, *segment.Metadata) bool { return true })
	if err != nil {
		return swept, err
	}
	stale, err := d.usersOf(spaceSummaries, a.isStale)
	if err != nil {
		return swept, err
	}
	s.aging = append(old, stale...)
	if err := s.step(ctx); err != nil {
		return swept, err
	}
	d.counted.Store(max(s.before, d.config.Rules.NamespaceExpired("", s.began)))
	return swept, d.storeCounted(nil)
}

// isStale reports whether a user's summaries need a removal.
func (a *Archive) isStale(uid string, m *segment.Metadata) bool {
	a.lock.Lock()
	u, _, err := a.stored(uid)
	a.lock.Unlock()
	return err != nil || !a.db.config.Rules.Summarized(uid) || !maps.Equal(u.Cleared, m.Cleared) || len(m.Chunks) == 0 ||
		m.Chunks[len(m.Chunks)-1].Newest.Time() < a.db.now()-a.db.summaryTTL
}

// usersOf returns the users of a keyspace whose metadata matches asked or is unreadable.
func (d *DB) usersOf(space byte, asked func(uid string, m *segment.Metadata) bool) (uids []string, err error) {
	for uid, v := range d.users([]byte{space, 0}, []byte{space + 1}, &err) {
		if m, err := segment.ParseMetadata(v); err != nil || asked(uid, m) {
			uids = append(uids, uid)
		}
	}
	return uids, err
}

// noteSummaries notes a user with deletes or clears. The delay lets deletes accumulate.
func (a *Archive) noteSummaries(uid string) {
	if a.db.summaryTTL > 0 {
		a.db.removals.Add(uid, a.db.now()+removeAfter.Milliseconds())
	}
}

// summarizeNext summarizes the next noted users. After a failure the sweep retries them.
func (d *DB) summarizeNext(ctx context.Context) {
	for notes, all := range map[*segment.Notes]bool{&d.removals: true, &d.old: false} {
		uid, ok := notes.Take(d.now())
		if !ok {
			continue
		}
		if err := d.Archive().Summarize(ctx, uid, all); err != nil && ctx.Err() == nil {
			d.config.Logger.Warn("summary failed", "error", err)
		}
	}
}

// eraseSummaries removes the summaries under clear marks, or all summaries if unreadable. The caller holds
// d.compactions.
func (a *Archive) eraseSummaries(uid string) error {
	if a.db.summaryTTL == 0 {
		return nil
	}
	err := a.summarize(uid, look{})
	if !errors.Is(err, segment.ErrCorrupt) {
		return err
	}
	return a.change(nil, func(e *edit) error { return delRow(e.batch, appendUser(nil, spaceSummaries, uid)) })
}
