package hbase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// ttlEvery is the interval between reads of the summaries' TTL.
const ttlEvery = time.Minute

// SummaryTTL returns the lifetime of summaries. The result may be a minute old, or older while HBase is unavailable.
func (a *Archive) SummaryTTL(ctx context.Context) (int64, error) {
	asked := a.summaries.asked.Load()
	if asked > 0 && a.now()-asked < ttlEvery.Milliseconds() {
		return a.summaries.ttl.Load(), nil
	}
	if asked > 0 { // a cached value needs only a short wait
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, slowAfter)
		defer cancel()
	}
	ttl, err := a.readSummaryTTL(ctx)
	if err != nil && asked > 0 {
		return a.summaries.ttl.Load(), nil
	}
	return ttl, err
}

func (a *Archive) readSummaryTTL(ctx context.Context) (int64, error) {
	now := a.now()
	if !a.prepared.Load() {
		return 0, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable)
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	get, err := hrpc.NewGet(ctx, a.summaries.table, []byte(markRow), hrpc.Families(map[string][]string{segmentFamily: {segmentColumn}}), hrpc.SkipBatch())
	if err != nil {
		return 0, err
	}
	r, err := a.client.Get(get)
	ttl := int64(0)
	switch {
	case errors.Is(err, gohbase.TableNotFound):
	case err != nil:
		return 0, fmt.Errorf("TTL of summaries: %w", classify(err))
	default:
		for _, cell := range r.Cells {
			if ttl, err = strconv.ParseInt(string(cell.Value), 10, 64); err != nil {
				return 0, fmt.Errorf("TTL of summaries %q: %w", cell.Value, segment.ErrNewer)
			}
		}
	}
	a.summaries.ttl.Store(ttl)
	a.summaries.asked.Store(now)
	return ttl, nil
}

// Summaries returns a page of a user's summaries. It reads the clear marks, the metadata, and the page's chunks.
func (a *Archive) Summaries(ctx context.Context, uid string, q history.Query) (page history.SummaryPage, err error) {
	err = a.readSummaries(ctx, uid, func(p *segment.Reader, u history.User, oldest int64) (err error) {
		page, err = p.Summaries(u, oldest, q)
		return err
	})
	return page, err
}

// SummariesOf returns a user's summaries of some objects. It reads the chunks that may have them.
func (a *Archive) SummariesOf(ctx context.Context, uid string, objects []history.Object) (found []history.Summary, err error) {
	err = a.readSummaries(ctx, uid, func(p *segment.Reader, u history.User, oldest int64) (err error) {
		found, err = p.SummariesOf(u, oldest, objects)
		return err
	})
	return found, err
}

func (a *Archive) readSummaries(ctx context.Context, uid string, read func(p *segment.Reader, u history.User, oldest int64) error) error {
	ttl, err := a.SummaryTTL(ctx)
	if err != nil || ttl == 0 {
		return err
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	c := a.contents(uid)
	marks := a.get(ctx, uid, hrpc.Families(map[string][]string{family: nil}), hrpc.Filters(filter.NewMultipleColumnPrefixFilter([][]byte{[]byte(markAll)})))
	cells, err := cellsOf(a.batch(ctx, a.servers.of(marks.Key()), []hrpc.Call{marks})[0])
	if err != nil {
		return fmt.Errorf("summaries of %s: %w", history.Pseudonym(uid), err)
	}
	c.add(cells)
	horizon, _ := a.config.Horizon() // without a trusted clock no summary has expired
	for tries := 0; ; tries++ {
		var p *segment.Reader
		if p, _, err = a.summariesOf(ctx, uid); err == nil {
			err = read(p, history.User{Cleared: c.cleared}, horizon.UnixMilli()-ttl)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errReplaced): // a newer list replaces this one before its chunks are deleted
			return fmt.Errorf("summaries of %s: %w", history.Pseudonym(uid), unavailable(err))
		case tries == summaryTries:
			a.segments.metrics.Damaged.Inc()
			return fmt.Errorf("summaries of %s: %w: %w", history.Pseudonym(uid), history.ErrUnavailable, err)
		}
	}
}

// summaryTries limits re-reads of a list after its chunks were replaced.
const summaryTries = 3

// summariesOf returns a reader of a user's summaries and their stored list, nil for none.
func (a *Archive) summariesOf(ctx context.Context, uid string) (p *segment.Reader, stored []byte, err error) {
	p = &segment.Reader{Metadata: new(segment.Metadata)}
	if stored, err = a.summaryBytes(ctx, uid, ""); err != nil {
		return nil, nil, err
	}
	if stored != nil {
		if p.Metadata, err = segment.ParseMetadata(stored); err != nil {
			if errors.Is(err, segment.ErrCorrupt) {
				a.segments.metrics.Damaged.Inc()
			}
			return nil, stored, err
		}
	}
	p.Chunk = func(i *segment.Info) (*segment.Chunk, error) {
		return segment.Cached(a.segments.cache, uid+"\x00u"+i.Name, func() (*segment.Chunk, int, error) {
			b, err := a.summaryBytes(ctx, uid, i.Name)
			switch {
			case err != nil:
				return nil, 0, err
			case b == nil:
				return nil, 0, fmt.Errorf("chunk %q: %w", i.Name, errReplaced)
			}
			return openChunk(i, b)
		})
	}
	return p, stored, nil
}

func (a *Archive) summaryGet(ctx context.Context, row []byte) hrpc.Call {
	get, _ := hrpc.NewGet(ctx, a.summaries.table, row, hrpc.Families(map[string][]string{segmentFamily: {segmentColumn}}))
	return get
}

// summaryBytes reads a chunk, or the list if name is empty; nil if missing.
func (a *Archive) summaryBytes(ctx context.Context, uid, name string) ([]byte, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	get := a.summaryGet(ctx, segmentRow(uid, name))
	cells, err := cellsOf(a.batch(ctx, a.summaries.servers.of(get.Key()), []hrpc.Call{get})[0])
	if err != nil || len(cells) == 0 {
		return nil, err
	}
	return cells[0].Value, nil
}

func (a *Archive) summaryPut(ctx context.Context, row, value []byte, at int64) *hrpc.Mutate {
	put, _ := hrpc.NewPut(ctx, a.summaries.table, row, map[string]map[string][]byte{segmentFamily: {segmentColumn: value}},
		hrpc.TimestampUint64(uint64(at))) //nolint:gosec // a time
	return put
}

// Summarize adds a user's old records to the summaries. DESIGN.md says why it may stop halfway and run concurrently.
func (a *Archive) Summarize(ctx context.Context, uid string, all bool) error {
	ttl, err := a.SummaryTTL(ctx)
	if err == nil && ttl > 0 {
		if _, err = a.config.Horizon(); err == nil {
			err = a.summarize(ctx, uid, look{ttl: ttl, all: all})
		}
	}
	if err != nil {
		return fmt.Errorf("summarize %s: %w", history.Pseudonym(uid), unavailable(err))
	}
	return nil
}

// pastTries limits the repetitions of SummarizePast, each of which a concurrent writer has come before.
const pastTries = 10

// SummarizePast adds past viewings to a user's summaries and sets Kept.
func (a *Archive) SummarizePast(ctx context.Context, uid string, past []*history.PastViewing) error {
	ttl, err := a.SummaryTTL(ctx)
	if err != nil || ttl == 0 {
		return err
	}
	for tries := 0; ; tries++ {
		err := a.summarize(ctx, uid, look{ttl: ttl, all: true, past: past})
		if err == nil {
			return nil
		}
		if tries == pastTries || !errors.Is(err, history.ErrConflict) {
			return fmt.Errorf("summarize %s: %w", history.Pseudonym(uid), unavailable(err))
		}
	}
}

// summaryStep is the page size of Summarize, in records.
const summaryStep = 8192

// look selects the work of one summarize call.
type look struct {
	ttl  int64 // how long summaries are kept, in ms
	all  bool  // include every tombstone
	past []*history.PastViewing
	// Earlier records are summarized; 0 means those that the rules find old.
	before int64
	// Replaces the list even if it is unchanged or corrupt. Concurrent writers then lose their switch, and
	// abandoned chunks are found.
	anew bool
}

// summarize reads the list before the records, so a later list never has earlier records.
func (a *Archive) summarize(ctx context.Context, uid string, l look) error {
	now := a.now()
	horizon, _ := a.config.Horizon() // without a trusted clock an erasure expires nothing
	p, stored, err := a.summariesOf(ctx, uid)
	if l.anew && errors.Is(err, segment.ErrCorrupt) {
		p, err = &segment.Reader{Metadata: new(segment.Metadata)}, nil
	}
	kept := a.config.Rules.Summarized(uid)
	if err != nil || len(p.Chunks) == 0 && (l.all && len(l.past) == 0 || !kept && !l.anew) {
		return err
	}
	if !kept {
		l.ttl, l.past = 0, nil
	}
	before := l.before
	if before == 0 {
		before = a.config.Rules.SummaryBefore(now)
	}
	s := segment.Summing{Past: l.past, Before: before, Oldest: horizon.UnixMilli() - l.ttl, Rules: a.config.Rules, Version: max(p.Version+1, uint64(now))} //nolint:gosec // never before 1970
	if s.Items, s.Cleared, err = a.aging(ctx, uid, before, l); err != nil {
		return err
	}
	run := strconv.FormatInt(now, 10) + "." + rand.Text()[:13]
	s.Name = func(n int) string { return fmt.Sprintf("%s.%d", run, n) }
	plan, err := p.Summarize(s)
	if errors.Is(err, errReplaced) {
		return a.replacedOrLost(ctx, uid, stored, err)
	}
	if err != nil || !plan.Changed && !l.anew {
		return err
	}
	return a.replaceSummaries(ctx, uid, stored, plan)
}

// replacedOrLost explains a missing chunk: the list was replaced, or the chunk is lost.
func (a *Archive) replacedOrLost(ctx context.Context, uid string, stored []byte, missing error) error {
	now, err := a.summaryBytes(ctx, uid, "")
	switch {
	case err != nil:
		return err
	case !bytes.Equal(now, stored):
		return fmt.Errorf("%w: %w", history.ErrConflict, missing)
	}
	a.segments.metrics.Damaged.Inc()
	return fmt.Errorf("%w: %w", history.ErrUnavailable, missing)
}

// aging returns a user's records and tombstones before a time, and the clear marks. With all it adds later records
// of deleted objects, and of past viewings.
func (a *Archive) aging(ctx context.Context, uid string, before int64, l look) (items []history.Item, cleared map[uint32]int64, err error) {
	q := history.Query{Limit: summaryStep}
	if !l.all {
		q.Until = before - 1
	}
	for more := true; more; {
		page, err := a.Page(ctx, uid, q)
		if err != nil {
			return nil, nil, err
		}
		for _, it := range page.Items {
			if it.Record.Version.Time() < before || it.Record.RemovedAt > 0 ||
				slices.ContainsFunc(l.past, func(v *history.PastViewing) bool { return v.Object == it.Object }) {
				items = append(items, it)
			}
		}
		cleared, more, q.After = page.User.Cleared, page.More && len(page.Items) > 0, page.End()
	}
	return items, cleared, nil
}

// replaceSummaries writes the chunks, switches the list, and deletes chunks stored before and no longer listed.
// Their writers have read an older list and lose their switch.
func (a *Archive) replaceSummaries(ctx context.Context, uid string, stored []byte, plan segment.Plan) error {
	chunks, err := a.summaryChunks(ctx, uid)
	if err != nil {
		return err
	}
	m, err := plan.Metadata.Append(nil)
	if err != nil {
		return err
	}
	written := len(m)
	for some := range slices.Chunk(plan.New, 16) {
		err := a.within(ctx, func(ctx context.Context) error {
			puts := make([]hrpc.Call, len(some))
			for i := range some {
				written += len(some[i].Data)
				puts[i] = a.summaryPut(ctx, segmentRow(uid, some[i].Name), some[i].Data, some[i].CellTime)
			}
			return a.allTo(ctx, a.summaries.servers.of(segmentRow(uid, "")), puts)
		})
		if err != nil {
			return err
		}
	}
	won := false
	err = a.within(ctx, func(ctx context.Context) (err error) {
		put := a.summaryPut(ctx, segmentRow(uid, ""), m, int64(plan.Metadata.Version)) //nolint:gosec // a time
		won, err = a.client.CheckAndPut(put, segmentFamily, segmentColumn, stored)
		return classify(err)
	})
	if err != nil {
		return err
	}
	if !won {
		now, err := a.summaryBytes(ctx, uid, "")
		if err != nil {
			return err
		}
		won = bytes.Equal(now, m) // the client may send the switch twice
	}
	listed := plan.Metadata.Names()
	if !won {
		own := make(map[string]uint64, len(plan.New))
		for i := range plan.New {
			own[plan.New[i].Name] = uint64(plan.New[i].CellTime) //nolint:gosec // a time
		}
		return errors.Join(fmt.Errorf("%w: another one came first", history.ErrConflict), a.deleteSummaries(ctx, uid, own))
	}
	a.segments.metrics.Summarized.Add(float64(plan.Counted))
	a.segments.metrics.SummaryBytes.Add(float64(written))
	maps.DeleteFunc(chunks, func(name string, _ uint64) bool { return listed[name] })
	return a.deleteSummaries(ctx, uid, chunks)
}

// summaryChunks returns a user's stored chunks with their cell times.
func (a *Archive) summaryChunks(ctx context.Context, uid string) (map[string]uint64, error) {
	return a.chunksIn(ctx, a.summaries.table, uid, new(segment.Metadata))
}

func (a *Archive) deleteSummaries(ctx context.Context, uid string, chunks map[string]uint64) error {
	return a.within(ctx, func(ctx context.Context) error {
		var dels []hrpc.Call
		for _, name := range slices.Sorted(maps.Keys(chunks)) {
			del, _ := hrpc.NewDel(ctx, a.summaries.table, segmentRow(uid, name), map[string]map[string][]byte{segmentFamily: nil}, hrpc.TimestampUint64(chunks[name]))
			dels = append(dels, del)
		}
		return a.allTo(ctx, a.summaries.servers.of(segmentRow(uid, "")), dels)
	})
}

// eraseSummaries removes summaries under clear marks, or all summaries if they are corrupt.
func (a *Archive) eraseSummaries(ctx context.Context, uid string) error {
	ttl, err := a.readSummaryTTL(ctx)
	if err != nil || ttl == 0 {
		return err
	}
	return a.summarize(ctx, uid, look{ttl: ttl, anew: true})
}

// heldSummaries counts the summaries in chunks whose oldest time counts, and those chunks plus unlisted ones.
func (a *Archive) heldSummaries(ctx context.Context, uid string, counts func(at int64) bool) (records, chunks int, err error) {
	ttl, err := a.SummaryTTL(ctx)
	if err != nil || ttl == 0 {
		return 0, 0, err
	}
	stored, err := a.summaryChunks(ctx, uid)
	if err != nil {
		return 0, 0, err
	}
	p, _, err := a.summariesOf(ctx, uid)
	if errors.Is(err, segment.ErrCorrupt) {
		p, err = &segment.Reader{Metadata: new(segment.Metadata)}, nil
	}
	if err != nil {
		return 0, 0, err
	}
	for i := range p.Chunks {
		_, there := stored[p.Chunks[i].Name]
		delete(stored, p.Chunks[i].Name)
		if there && counts(p.Chunks[i].Oldest.Time()) {
			records, chunks = records+p.Chunks[i].Count, chunks+1
		}
	}
	return records, chunks + len(stored), nil
}

// Shares is the number of shares of users for [Archive.Aging].
const Shares = maxRegions

// shareWithin bounds the scan for one share, 1/256 of each table.
const shareWithin = 10 * time.Minute

// Aging returns the users of a share who may need summaries or removals. These are users with segments and, if summaries
// are kept, users with summaries or with cells in the last week of their TTL. It reads row keys only.
func (a *Archive) Aging(ctx context.Context, share int) (uids []string, err error) {
	return a.usersBefore(ctx, share, a.config.Rules.SummaryBefore(a.now()))
}

// usersBefore is Aging for records from before a time.
func (a *Archive) usersBefore(ctx context.Context, share int, before int64) (uids []string, err error) {
	ttl, err := a.SummaryTTL(ctx)
	if err == nil {
		err = a.follow(ctx)
	}
	if err != nil {
		return nil, err
	}
	search := func(table []byte, options ...func(hrpc.Call) error) {
		if err == nil {
			var some []string
			some, err = a.rowsOf(ctx, table, share, options...)
			uids = append(uids, some...)
		}
	}
	lists := hrpc.Families(map[string][]string{segmentFamily: {segmentColumn}})
	if a.segments.known() {
		search(a.segments.table, lists)
	}
	if ttl > 0 {
		columns := make(map[string][]string)
		for _, f := range a.families() {
			columns[f] = nil
		}
		if from := a.config.Rules.NamespaceExpired("", a.now()); from < before {
			search(a.table, hrpc.Families(columns), hrpc.TimeRangeUint64(uint64(from), uint64(before))) //nolint:gosec // times
		}
		search(a.summaries.table, lists)
	}
	if err != nil {
		return nil, fmt.Errorf("look for what grows old: %w", unavailable(err))
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// rowsOf returns the users of a share with rows in a table.
func (a *Archive) rowsOf(ctx context.Context, table []byte, share int, options ...func(hrpc.Call) error) (uids []string, err error) {
	from, to := fmt.Appendf(nil, "%02x", share), fmt.Appendf(nil, "%02x", share+1)
	if share+1 == Shares {
		to = []byte("g")
	}
	ctx, cancel := context.WithTimeout(ctx, shareWithin)
	defer cancel()
	names := filter.NewList(filter.MustPassAll, filter.NewFirstKeyOnlyFilter(), filter.NewKeyOnlyFilter(false))
	scan, err := hrpc.NewScanRange(ctx, table, from, to, append(options, hrpc.Filters(names))...)
	if err != nil {
		return nil, err
	}
	err = a.scanRows(scan, func(cells []*hrpc.Cell) {
		row, _, _ := strings.Cut(string(cells[0].Row), "\x00")
		if uid := row[min(len(row), 2):]; history.RowKey(uid) == row {
			uids = append(uids, uid)
		}
	})
	return slices.Compact(uids), err
}
