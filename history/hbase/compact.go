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

// Compact moves what is old of a user into segments, a bounded number of records, if the live segment has more
// than [Config.CompactAbove], and removes from the segments what was deleted, cleared, or has expired. It says
// after how long the user is to be compacted again, 0 for not at all: while the live segment is longer, when enough of it will be old.
// Readers see no difference, wherever it ends.
// It fails with [history.ErrConflict] when another compaction came first.
//
// DESIGN.md numbers the steps, and says what they rest on.
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
		return 0, fmt.Errorf("compact %s: %w", uid, unavailable(err))
	}
	return again, nil
}

// mostLag is how far the horizon may be behind the present for a compaction. After a stop, or a step of the clock, compacts wait until it has
// caught up: they rest on processes that agree about the time.
const mostLag = 30 * time.Minute

// Tidy is Roll for a user of whom something was deleted or cleared. It costs little where there are no
// segments.
func (a *Archive) Tidy(ctx context.Context, uid string) (again time.Duration, err error) {
	if a.config.CompactAbove == 0 || a.compactionsIn() > 0 { // there are no segments
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

// compact is one run over a user.
type compact struct {
	*Archive
	uid   string
	began int64

	live *contents // 1
	more bool      // is left for the next run
	due  int64     // when the live segment can be short, 0 where it is now or cannot be

	bytes    []byte // 2, nil for none
	segments *segment.Reader

	items, staying []history.Item // these of objects that were deleted
	leaving        []content      // the columns that the items are of

	plan   segment.Plan
	chunks map[string]uint64 // that are there and not listed by the plan, where it removes something, with their cell times
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
	case r.plan.Changed && !r.plan.Removed: // to clean
		again = r.horizon() + r.horizon()/12
		if r.due > 0 {
			again = min(again, r.wait())
		}
		return again, nil
	}
	return r.wait(), nil
}

// wait is how long it is until the live segment can be short, 0 where nothing is to be waited for.
func (r *compact) wait() time.Duration {
	return time.Duration(max(r.due-r.began, 0)) * time.Millisecond
}

// horizon is how long a chunk stays that is not listed: another compaction may be about to list it, or a reader
// may have the list before. It is longer than two clocks differ.
func (r *compact) horizon() time.Duration { return time.Duration(r.margin()) * time.Millisecond }

// read does the steps 1 and 2, and finds what leaves the live segment.
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
		if r.live.cleared[typ] < until { // the live segment is from before a clear, and has what was erased since
			return fmt.Errorf("%w: the user was cleared meanwhile", history.ErrConflict)
		}
	}
	r.segments = r.reader(ctx, r.uid, m, false)
	r.choose()
	return nil
}

// choose finds the columns that leave the live segment: those into which nothing more can be put that is not
// later than what they have.
func (r *compact) choose() {
	live := slices.Clone(r.live.objects)
	slices.SortStableFunc(live, func(a, b content) int { return cmp.Compare(b.version, a.version) })
	keep, long := r.config.CompactAbove/2, len(live) > r.config.CompactAbove
	var old []content
	var later []int64 // when others will be old
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

// marksClean returns from when on a column may leave the live segment, if at all. A column under a clear mark stays, and HBase drops it.
func (r *compact) marksClean(o content) (at int64, may bool) {
	u := history.User{Cleared: r.live.cleared}
	if o.damage != nil || o.version.Time() <= u.ClearedAt(o.object.Type) || o.version.Time() < r.oldestOf(r.uid) {
		return 0, false
	}
	if o.late != "" {
		_, text, _ := strings.Cut(o.late, "\x00")
		period, err := strconv.ParseInt(text, 10, 64)
		return (period + 2) * r.margin(), err == nil
	}
	return max(o.version.Time(), o.at) + r.began - r.cleanBefore() + 1, true
}

// cleanBefore returns the time before which nothing more is put into the family of recent records.
func (r *compact) cleanBefore() int64 {
	return r.began - r.Archive.segments.mark.Load().after - r.margin()
}

// take decodes what leaves the live segment. A column that cannot be read stays.
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

// clean does step 8 for the compacts before: it removes chunks that have not been listed for so long that nobody
// reads them, and nobody is about to list them.
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

// write does the steps 3 to 6. Then the records are in both forms.
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

// planned is what is to be done to the segments.
func (r *compact) planned() segment.Compact {
	run := strconv.FormatInt(r.began, 10) + "." + rand.Text()[:13]
	return segment.Compact{
		Items: r.items, Staying: r.staying, Cleared: maps.Clone(r.live.cleared), Oldest: r.oldestOf(r.uid),
		Version: uint64(max(r.began, int64(r.segments.Version)+1)), //nolint:gosec // times
		Name:    func(n int) string { return fmt.Sprintf("%s.%d", run, n) },
	}
}

// announce does step 6: readers of the live segment take no metadata before this version, and know which chunks it lists.
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
		if err := r.inTime(); err != nil { // the switch that follows has the deadline of the call
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

// discard deletes the chunks of a compaction that has lost, which is an error, unless they are listed all the same: the client may have made
// the switch twice, and lost to itself.
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
	return errors.Join(fmt.Errorf("%w: another compaction or an erasure came first", history.ErrConflict), err) // a later compact finds what is left
}

// inTime fails when the chunks of the compaction may be taken for left behind.
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
			if len(cells) == 0 { // the user was erased meanwhile
				return cmp.Or(r.inTime(), r.discard(ctx))
			}
			if len(cells) != 1 || !bytes.Equal(cells[0].Value, chunks[i].Data) {
				return cmp.Or(r.inTime(), fmt.Errorf("chunk %q is not read back as it was written", chunks[i].Name))
			}
		}
		return nil
	})
}

// rememberCut keeps the cut time of what new clear marks remove from the segments, where it is later than the
// marks: what comes next must come after it.
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

// drop does step 7: the columns that were compacted go, up to where nothing more is put into them.
func (r *compact) drop(ctx context.Context) error {
	return r.deleteLive(ctx, r.cleanBefore()-1, func(n int) { r.Archive.segments.metrics.Compacted.Add(float64(n)) })
}

// remove does step 8 at once where something was deleted or cleared. A process that has written one of the chunks has read the
// metadata before the switch, and cannot list it any more. Readers find the chunk gone, and read the metadata again.
func (r *compact) remove(ctx context.Context) error { return r.deleteChunks(ctx, r.chunks) }

// deleteLive deletes the columns that leave the live segment, each up to what it had. Those that had nothing after a time go up to
// that, in one call for them all: it takes HBase a tenth.
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
