package hbase

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

// Compact moves old records of a user into segments if more than [Config.CompactAbove] are live, and removes
// deleted, cleared and expired records from segments. One call moves a bounded number of records. It returns the
// delay until the next useful call, or 0. Readers see no difference, even if Compact stops halfway. It fails with
// [history.ErrConflict] if another compaction came first.
//
// DESIGN.md numbers the steps and proves them.
func (a *Archive) Compact(ctx context.Context, uid string) (again time.Duration, err error) {
	if a.config.CompactAbove == 0 {
		return 0, nil
	}
	if again = a.compactionsIn(); again > 0 {
		return again, nil
	}
	r := &compact{Archive: a, uid: uid, began: a.now()}
	horizon, err := a.config.Horizon()
	if err = cmp.Or(a.config.ClockErr(), err); err == nil {
		if lag := time.Duration(r.began-horizon.UnixMilli()) * time.Millisecond; lag > mostLag {
			return lag, nil
		}
		again, err = r.run(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("compact %s: %w", history.Pseudonym(uid), unavailable(err))
	}
	return again, nil
}

// mostLag is the largest lag of the horizon for a compaction. After downtime or a clock step, compactions wait for
// the horizon to catch up: they need processes that agree on the time.
const mostLag = 30 * time.Minute

// Tidy is [Archive.Compact] after a delete or clear. It is cheap for a user without segments.
func (a *Archive) Tidy(ctx context.Context, uid string) (again time.Duration, err error) {
	if a.config.CompactAbove == 0 || a.compactionsIn() > 0 { // no segments exist
		return 0, nil
	}
	var cells []*hrpc.Cell
	err = a.within(ctx, func(ctx context.Context) error {
		get := a.get(ctx, uid, hrpc.Families(map[string][]string{family: {compactedColumn}}))
		cells, err = cellsOf(a.batch(ctx, a.servers.of(get.Key()), []hrpc.Call{get})[0])
		return err
	})
	if err != nil || len(cells) == 0 {
		return 0, err
	}
	return a.Compact(ctx, uid)
}

// compact is one compaction of a user. The numbers are the steps of DESIGN.md.
type compact struct {
	*Archive
	uid   string
	began int64

	live *contents // step 1
	more bool      // a next run has more to move
	due  int64     // Unix ms when enough live records will be old; 0 if not needed or unknown

	bytes    []byte // step 2; nil without segments
	segments *segment.Reader

	items, staying []history.Item // staying: live records of deleted objects
	leaving        []content      // columns of items

	plan   segment.Plan
	chunks map[string]uint64 // unlisted chunks with their cell times, if the plan removes records
}

func (r *compact) run(ctx context.Context) (again time.Duration, err error) {
	if err := r.read(ctx); err != nil || r.bytes == nil && len(r.items) == 0 {
		return r.wait(), err
	}
	for _, steps := range []func(context.Context) error{r.clean, r.write, r.drop, r.remove} {
		if err := steps(ctx); err != nil {
			return 0, err
		}
	}
	switch {
	case r.more:
		return time.Millisecond, nil
	case r.plan.Changed && !r.plan.Removed: // a later run cleans up
		again = r.horizon() + r.horizon()/12
		if r.due > 0 {
			again = min(again, r.wait())
		}
		return again, nil
	}
	return r.wait(), nil
}

// wait returns the delay until enough live records are old, or 0.
func (r *compact) wait() time.Duration {
	return time.Duration(max(r.due-r.began, 0)) * time.Millisecond
}

// horizon is the least age of an unlisted chunk before deletion. Another compaction may be about to list it, or a
// reader may use an older list. It exceeds clock skew.
func (r *compact) horizon() time.Duration { return time.Duration(r.margin()) * time.Millisecond }

// read does steps 1 and 2, and chooses the records to move.
func (r *compact) read(ctx context.Context) (err error) {
	if r.live, err = r.liveWithin(ctx, r.uid); err != nil {
		return err
	}
	m := new(segment.Metadata)
	if r.bytes, err = r.segmentBytes(ctx, r.uid, ""); err == nil && r.bytes != nil {
		m, err = segment.ParseMetadata(r.bytes)
	}
	if errors.Is(err, segment.ErrCorrupt) {
		r.Archive.segments.metrics.Damaged.Inc()
	}
	if err != nil {
		return err
	}
	for typ, until := range m.Cleared {
		if r.live.cleared[typ] < until { // the row was read before a clear and holds records erased since
			return fmt.Errorf("%w: the user was cleared meanwhile", history.ErrConflict)
		}
	}
	r.segments = r.reader(ctx, r.uid, m, false)
	r.choose()
	return nil
}

// choose selects the columns to move: old enough that no put can still write an earlier cell.
func (r *compact) choose() {
	live := slices.Clone(r.live.objects)
	slices.SortStableFunc(live, func(a, b content) int { return cmp.Compare(b.version, a.version) })
	keep, long := r.config.CompactAbove/2, len(live) > r.config.CompactAbove
	var old []content
	var later []int64 // times when other records become old
	for i, o := range live {
		at, may := r.marksClean(o)
		if may = may && long && i >= keep; may && at <= r.began {
			old = append(old, o)
			continue
		}
		if may {
			later = append(later, at)
		}
		if r.bytes != nil && o.damage == nil && wire.RemovedAt(o.value) > 0 {
			if o = r.live.decoded(o); o.damage == nil {
				r.staying = append(r.staying, history.Item{Object: o.object, Record: o.record})
			}
		}
	}
	if excess := len(live) - len(old) - r.config.CompactAbove; excess > 0 && len(later) > 0 {
		slices.Sort(later)
		r.due = later[min(excess, len(later))-1]
	}
	if n := len(old) - r.config.compactStep; n > 0 {
		old, r.more = old[n:], true
	}
	r.take(old)
}

// marksClean returns when a column may move, if ever. Cleared and expired columns never move; HBase drops them.
func (r *compact) marksClean(o content) (at int64, may bool) {
	u := history.User{Cleared: r.live.cleared}
	if o.damage != nil || o.version.Time() <= u.ClearedAt(o.object.Type) || o.version.Time() < r.oldest(r.uid) {
		return 0, false
	}
	if o.late != "" {
		_, text, _ := strings.Cut(o.late, "\x00")
		period, err := strconv.ParseInt(text, 10, 64)
		return (period + 2) * r.margin(), err == nil
	}
	return max(o.version.Time(), o.at) + r.began - r.cleanBefore() + 1, true
}

// cleanBefore returns the time before which no put reaches the family of recent records.
func (r *compact) cleanBefore() int64 {
	return r.began - r.Archive.segments.mark.Load().after - r.margin()
}

// take decodes the columns to move. Unreadable ones stay.
func (r *compact) take(old []content) {
	at := make(map[history.Object]int, len(old))
	for _, o := range old {
		o = r.live.decoded(o)
		if o.damage != nil {
			continue
		}
		r.leaving = append(r.leaving, o)
		if i, again := at[o.object]; again {
			r.items[i].Record = segment.Resolve(r.items[i].Record, o.record)
			continue
		}
		at[o.object] = len(r.items)
		r.items = append(r.items, history.Item{Object: o.object, Record: o.record})
	}
	slices.SortFunc(r.items, history.NewestFirst)
}

// clean does step 8 for earlier compactions: it deletes chunks that have been unlisted for longer than any reader
// or writer may use them.
func (r *compact) clean(ctx context.Context) error {
	before := r.began - r.horizon().Milliseconds()
	if r.bytes == nil || int64(r.segments.Version) >= before { //nolint:gosec // a time
		return nil
	}
	unlisted, err := r.unlisted(ctx, r.uid, r.segments.Metadata)
	if err != nil {
		return err
	}
	maps.DeleteFunc(unlisted, func(name string, _ uint64) bool {
		began, _, _ := strings.Cut(name, ".")
		at, err := strconv.ParseInt(began, 10, 64)
		return err != nil || at >= before
	})
	return r.deleteChunks(ctx, unlisted)
}

// deleteChunks deletes chunks, each up to its cell time.
func (r *compact) deleteChunks(ctx context.Context, chunks map[string]uint64) error {
	ctx, cancel := r.bound(ctx)
	defer cancel()
	var dels []hrpc.Call
	for _, name := range slices.Sorted(maps.Keys(chunks)) {
		del, _ := hrpc.NewDel(ctx, r.Archive.segments.table, segmentRow(r.uid, name), map[string]map[string][]byte{segmentFamily: nil}, hrpc.TimestampUint64(chunks[name]))
		dels = append(dels, del)
	}
	return r.allTo(ctx, r.Archive.segments.servers.of(segmentRow(r.uid, "")), dels)
}

// write does steps 3 to 6. Afterwards the records are both live and in segments.
func (r *compact) write(ctx context.Context) (err error) {
	r.plan, err = r.segments.Compact(r.planned())
	if errors.Is(err, errReplaced) {
		return fmt.Errorf("%w: %w", history.ErrConflict, err)
	}
	if err == nil && r.plan.Removed {
		r.chunks, err = r.unlisted(ctx, r.uid, r.plan.Metadata)
	}
	if err != nil {
		return err
	}
	m := r.segments.Metadata
	if r.plan.Changed {
		m = r.plan.Metadata
		if err := r.store(ctx); err != nil {
			return err
		}
	}
	return r.announce(ctx, m)
}

// planned returns the changes to the segments.
func (r *compact) planned() segment.Compact {
	run := strconv.FormatInt(r.began, 10) + "." + rand.Text()[:13]
	return segment.Compact{
		Items: r.items, Staying: r.staying, Cleared: maps.Clone(r.live.cleared), Oldest: r.oldest(r.uid),
		Version: uint64(max(r.began, int64(r.segments.Version)+1)), //nolint:gosec // times
		Name:    func(n int) string { return fmt.Sprintf("%s.%d", run, n) },
	}
}

// announce does step 6: it writes the metadata version and the chunk index into the row. Readers of the row then
// require that version or a later one.
func (r *compact) announce(ctx context.Context, m *segment.Metadata) error {
	if r.live.compacted >= m.Version {
		return nil
	}
	return r.within(ctx, func(ctx context.Context) error {
		return r.all(ctx, []hrpc.Call{r.put(ctx, r.uid, map[string][]byte{compactedColumn: m.AppendIndex(nil)}, m.Version+future)})
	})
}

// store writes the chunks, reads them back, and switches the metadata.
func (r *compact) store(ctx context.Context) error {
	for chunks := range slices.Chunk(r.plan.New, 16) {
		if err := r.storeChunks(ctx, chunks); err != nil {
			return err
		}
	}
	if err := r.rememberCut(ctx); err != nil {
		return err
	}
	b, err := r.plan.Metadata.Append(nil)
	if err != nil {
		return err
	}
	won := false
	err = r.within(ctx, func(ctx context.Context) (err error) {
		if err := r.inTime(); err != nil { // the switch has the call's deadline
			return err
		}
		put := r.segmentPut(ctx, segmentRow(r.uid, ""), b, int64(r.plan.Metadata.Version)+r.margin()) //nolint:gosec // a time
		won, err = r.client.CheckAndPut(put, segmentFamily, segmentColumn, r.bytes)
		return classify(err)
	})
	r.Archive.segments.metrics.Written.Add(float64(len(b)))
	if err == nil && !won {
		return r.discard(ctx)
	}
	return err
}

// discard handles a lost switch: it deletes the run's unlisted chunks and returns [history.ErrConflict]. Listed
// chunks stay, because the client may send the switch twice and lose to itself.
func (r *compact) discard(ctx context.Context) error {
	m, _, err := r.listed(ctx, r.uid)
	if err == nil {
		listed, chunks := m.Names(), make(map[string]uint64, len(r.plan.New))
		for i := range r.plan.New {
			if c := &r.plan.New[i]; !listed[c.Name] {
				chunks[c.Name] = uint64(c.CellTime + r.margin()) //nolint:gosec // a time
			}
		}
		err = r.deleteChunks(ctx, chunks)
	}
	return errors.Join(fmt.Errorf("%w: another compaction or an erasure came first", history.ErrConflict), err) // a later compaction deletes the rest
}

// inTime fails once another compaction may delete this one's chunks as abandoned.
func (r *compact) inTime() error {
	if r.now()-r.began > r.horizon().Milliseconds()/2 {
		return fmt.Errorf("%w: the compaction took too long", history.ErrConflict)
	}
	return nil
}

func (r *compact) storeChunks(ctx context.Context, chunks []segment.Encoded) error {
	return r.within(ctx, func(ctx context.Context) error {
		server := r.Archive.segments.servers.of(segmentRow(r.uid, ""))
		puts, gets := make([]hrpc.Call, len(chunks)), make([]hrpc.Call, len(chunks))
		for i := range chunks {
			c := &chunks[i]
			row := segmentRow(r.uid, c.Name)
			puts[i], gets[i] = r.segmentPut(ctx, row, c.Data, c.CellTime+r.margin()), r.segmentGet(ctx, row)
			r.Archive.segments.metrics.Written.Add(float64(len(c.Data)))
		}
		if err := r.allTo(ctx, server, puts); err != nil {
			return err
		}
		for i, result := range r.batch(ctx, server, gets) {
			cells, err := cellsOf(result)
			if err != nil {
				return err
			}
			if len(cells) == 0 { // the user was erased concurrently
				return cmp.Or(r.inTime(), r.discard(ctx))
			}
			if len(cells) != 1 || !bytes.Equal(cells[0].Value, chunks[i].Data) {
				return cmp.Or(r.inTime(), fmt.Errorf("chunk %q is not read back as it was written", chunks[i].Name))
			}
		}
		return nil
	})
}

// rememberCut stores the cut time of records cleared from segments if it is later than the clear marks. Later
// records must get later cell times.
func (r *compact) rememberCut(ctx context.Context) error {
	cut, least := cutIn(r.segments, r.live.cleared), int64(0)
	for _, at := range r.live.cleared {
		if least == 0 || at < least {
			least = at
		}
	}
	if cut <= max(least, r.live.cut) || maps.Equal(r.live.cleared, r.segments.Cleared) {
		return nil
	}
	return r.within(ctx, func(ctx context.Context) error {
		return r.all(ctx, []hrpc.Call{r.put(ctx, r.uid, map[string][]byte{cutColumn: nil}, uint64(cut+future))}) //nolint:gosec // a time
	})
}

// drop does step 7: it deletes the moved columns, up to the time before which no put reaches them.
func (r *compact) drop(ctx context.Context) error {
	done := func(n int) { r.Archive.segments.metrics.Compacted.Add(float64(n)) }
	if err := r.deleteRecent(ctx, done); err != nil {
		return err
	}
	return r.deleteLive(ctx, r.cleanBefore()-1, done)
}

// deleteRecent deletes the moved columns of recent records with one marker, up to the earliest cell that stays. Until
// the next major compaction each reader of the row passes all markers.
func (r *compact) deleteRecent(ctx context.Context, done func(columns int)) error {
	leaves, until := make(map[history.Object]bool, len(r.leaving)), r.cleanBefore()-1
	for _, o := range r.leaving {
		leaves[o.object] = leaves[o.object] || o.late == ""
	}
	if r.live.foreign > 0 {
		until = min(until, r.live.foreign-1)
	}
	for _, o := range r.live.objects {
		if o.late == "" && !leaves[o.object] {
			until = min(until, o.at-1)
		}
	}
	left := slices.DeleteFunc(slices.Clone(r.leaving), func(o content) bool { return o.late == "" && o.at <= until })
	if len(left) == len(r.leaving) {
		return nil
	}
	err := r.within(ctx, func(ctx context.Context) error {
		return r.all(ctx, []hrpc.Call{r.del(ctx, r.uid, map[string]map[string][]byte{family: nil}, uint64(until))}) //nolint:gosec // a time
	})
	if err == nil {
		done(len(r.leaving) - len(left))
		r.leaving = left
	}
	return err
}

// remove does step 8 immediately if records were deleted or cleared. The writer of an unlisted chunk has read older
// metadata and loses its switch. A reader that misses a chunk reads the metadata again.
func (r *compact) remove(ctx context.Context) error { return r.deleteChunks(ctx, r.chunks) }

// deleteLive deletes the moved columns, each up to its cell time. Columns without a cell after until share one call
// up to until, which costs HBase a tenth.
func (r *compact) deleteLive(ctx context.Context, until int64, done func(columns int)) error {
	for columns := range slices.Chunk(r.leaving, chunkCalls) {
		err := r.within(ctx, func(ctx context.Context) error {
			var dels []hrpc.Call
			together := make(map[string]map[string][]byte)
			for _, o := range columns {
				in, column := family, o.object.String()
				if o.late != "" {
					in, column = lateFamily, o.late
				}
				if o.at > until {
					dels = append(dels, r.del(ctx, r.uid, map[string]map[string][]byte{in: {column: nil}}, uint64(o.at))) //nolint:gosec // a time
					continue
				}
				if together[in] == nil {
					together[in] = make(map[string][]byte)
				}
				together[in][column] = nil
			}
			if len(together) > 0 {
				dels = append(dels, r.del(ctx, r.uid, together, uint64(until))) //nolint:gosec // a time
			}
			return r.all(ctx, dels)
		})
		if err != nil {
			return err
		}
		done(len(columns))
	}
	return nil
}
