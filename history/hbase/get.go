package hbase

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/internal/trace"
)

// columnWeight is a generous size of a column in a reply, in bytes.
const columnWeight = 4 << 10

// Get implements [history.Archive] with one read per user, columns by name, and one batch per server.
func (a *Archive) Get(ctx context.Context, keys []history.Key) (_ []history.Entry, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	ctx, span := trace.Store(ctx, "hbase", "get", len(keys))
	defer func() { span.End(err) }()
	if err := a.follow(ctx); err != nil {
		return nil, err
	}
	entries := make([]history.Entry, len(keys))
	err = parallel(a.rowGets(keys), func(server *server, some []*rowGet) error {
		return a.fetch(ctx, server, some, func(key int, e history.Entry) { entries[key] = e })
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// rowGet is a read of columns of one row.
type rowGet struct {
	uid     string
	server  *server
	columns []string
	named   bool                   // read only the columns, though these are many
	types   map[uint32]bool        // types whose clear marks are read too
	keys    map[int]history.Object // objects by index of their keys
}

func (q *rowGet) destination() *server { return q.server }

func (q *rowGet) weight() int { return len(q.columns) * columnWeight }

// manyColumns is the number of columns from which a get reads the whole row, if it has at most rowShare times as many.
// HBase seeks each column by name, which takes several times as long as to read the next one.
const (
	manyColumns = 16
	rowShare    = 4
)

// most returns the number of cells from which the row is too long to be read whole, 0 if it is not to be.
func (q *rowGet) most() int {
	if q.named || len(q.columns) < manyColumns {
		return 0
	}
	return rowShare * len(q.columns)
}

// options select the columns. With late columns a prefix filter also matches the late family.
func (q *rowGet) options(late bool) []func(hrpc.Call) error {
	if !late {
		return []func(hrpc.Call) error{hrpc.Families(map[string][]string{family: q.columns})}
	}
	columns := slices.Compact(slices.Sorted(slices.Values(append(q.columns, compactedColumn, cutColumn))))
	prefixes := make([][]byte, len(columns))
	for i, column := range columns {
		prefixes[i] = []byte(column)
	}
	return []func(hrpc.Call) error{
		hrpc.Families(map[string][]string{family: columns, lateFamily: nil}),
		hrpc.Filters(filter.NewMultipleColumnPrefixFilter(prefixes)),
	}
}

// rowGets groups keys into gets, at least one per user.
func (a *Archive) rowGets(keys []history.Key) []*rowGet {
	var all []*rowGet
	open := map[string]*rowGet{}
	for i, k := range keys {
		q := open[k.UID]
		if q == nil || len(q.columns) >= getColumns {
			q = &rowGet{uid: k.UID, server: a.servers.of([]byte(history.RowKey(k.UID))), columns: []string{markColumn(0), pauseColumn}, types: map[uint32]bool{0: true}, keys: map[int]history.Object{}}
			all, open[k.UID] = append(all, q), q
		}
		if typ := k.Object.Type; !q.types[typ] {
			q.types[typ] = true
			q.columns = append(q.columns, markColumn(typ))
		}
		q.columns = append(q.columns, k.Object.String())
		q.keys[i] = k.Object
	}
	return all
}

// fetch sends the gets in one batch and calls answer once per key index. Segments are read concurrently per user,
// so unavailable segments delay only their own user.
func (a *Archive) fetch(ctx context.Context, server *server, gets []*rowGet, answer func(key int, e history.Entry)) error {
	calls := make([]hrpc.Call, len(gets))
	for i, q := range gets {
		if most := q.most(); most > 0 {
			calls[i] = a.pageGet(ctx, q.uid, filter.NewColumnPaginationFilter(int32(most), 0, nil), a.families()...) //nolint:gosec // a few thousand
		} else {
			calls[i] = a.get(ctx, q.uid, q.options(a.segments.known())...)
		}
	}
	var segments errgroup.Group // of users who have segments
	segments.SetLimit(usersAtOnce)
	var failed error
	var long []*rowGet
	for i, r := range a.batch(ctx, server, calls) {
		cells, err := cellsOf(r)
		if err != nil {
			failed = fmt.Errorf("get %s: %w", history.Pseudonym(gets[i].uid), err)
			break
		}
		if most := gets[i].most(); most > 0 && len(cells) >= most {
			gets[i].named = true
			long = append(long, gets[i])
			continue
		}
		c := a.contents(gets[i].uid)
		c.add(cells)
		if c.compacted > 0 {
			segments.Go(func() error {
				a.getSegments(ctx, gets[i], &c, answer)
				return nil
			})
			continue
		}
		gets[i].answer(&c, answer)
	}
	_ = segments.Wait() // errors are answered per user
	if failed == nil && len(long) > 0 {
		return a.fetch(ctx, server, long, answer)
	}
	return failed
}

// getSegments answers keys of a user from live records and segments.
func (a *Archive) getSegments(ctx context.Context, q *rowGet, c *contents, answer func(key int, e history.Entry)) {
	objects := slices.Collect(maps.Values(q.keys))
	err := a.reading(ctx, c, history.Query{}, func(segments *segment.Reader) error { return c.addSegments(objects, segments) })
	if err == nil {
		q.answer(c, answer)
		return
	}
	for key := range q.keys {
		answer(key, history.Entry{Err: fmt.Errorf("%w: get %s: %s", history.ErrUnavailable, history.Pseudonym(q.uid), brief(err))})
	}
}

// answer answers the get's keys by their index.
func (q *rowGet) answer(c *contents, answer func(key int, e history.Entry)) {
	found := c.entries()
	for key, o := range q.keys {
		e, ok := found[o]
		if !ok {
			e = c.entry(o.Type)
		}
		answer(key, e)
	}
}

const (
	usersAtOnce = 64   // Users whose segments one get reads concurrently.
	getColumns  = 1000 // Columns per get by name.
	rowColumns  = 2500 // Columns per page of a row; one page holds a row below the default compaction threshold.
)

// Page implements [history.Archive]. HBase cannot read a row by time, so Page reads the whole row in pages and
// decodes only the requested records. Concurrent puts may or may not appear. Rows of users with segments
// are short.
func (a *Archive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if err := a.follow(ctx); err != nil {
		return history.Page{}, err
	}
	c, err := a.live(ctx, uid)
	if err != nil {
		return history.Page{}, fmt.Errorf("page of %s: %w", history.Pseudonym(uid), err)
	}
	return a.pageOf(ctx, c, q)
}

// pageOf returns a page from a user's row and segments.
func (a *Archive) pageOf(ctx context.Context, c *contents, q history.Query) (history.Page, error) {
	uid := c.uid
	a.noteLong(ctx, uid, len(c.objects))
	q.Since = max(q.Since, (&history.User{Cleared: c.cleared}).ClearedAt(q.Type)+1)
	var page history.Page
	err := a.reading(ctx, c, q, func(segments *segment.Reader) (err error) {
		page, err = c.page(q, segments)
		return err
	})
	if err != nil {
		return history.Page{}, fmt.Errorf("page of %s: %w", history.Pseudonym(uid), err)
	}
	for _, d := range page.Damaged {
		a.config.Logger.Error("unreadable cell skipped", "table", a.config.Table, "user", history.Pseudonym(uid), "column", columnOf(d.Object), "error", d.Err)
	}
	return page, nil
}

// Pages returns a page per user. One batch per server reads the first page of each row, usually the whole row.
func (a *Archive) Pages(ctx context.Context, uids []string, q history.Query) ([]history.Page, []error) {
	pages, errs := make([]history.Page, len(uids)), make([]error, len(uids))
	rows := make([]*rowPage, len(uids))
	for i, uid := range uids {
		rows[i] = &rowPage{uid: uid, server: a.servers.of([]byte(history.RowKey(uid))), page: &pages[i], err: &errs[i]}
	}
	within, cancel := a.bound(ctx)
	defer cancel()
	if err := a.follow(within); err != nil {
		return pages, slices.Repeat([]error{err}, len(uids))
	}
	_ = parallel(rows, func(server *server, some []*rowPage) error {
		calls := make([]hrpc.Call, len(some))
		for i, r := range some {
			calls[i] = a.pageGet(within, r.uid, pageFrom(nil), a.families()...)
		}
		for i, result := range a.batch(within, server, calls) {
			r := some[i]
			cells, err := cellsOf(result)
			switch {
			case err != nil:
				*r.err = fmt.Errorf("page of %s: %w", history.Pseudonym(r.uid), err)
			case len(cells) >= rowColumns: // there may be more
				*r.page, *r.err = a.Page(ctx, r.uid, q)
			default:
				c := a.contents(r.uid)
				c.peeks = true
				c.add(cells)
				*r.page, *r.err = a.pageOf(within, &c, q)
			}
		}
		return nil
	})
	return pages, errs
}

// rowPage is the read of one row's page.
type rowPage struct {
	uid    string
	server *server
	page   *history.Page
	err    *error
}

func (r *rowPage) destination() *server { return r.server }

func (r *rowPage) weight() int { return rowColumns * columnWeight / 100 } // long rows are rare

// live reads a user's row.
func (a *Archive) live(ctx context.Context, uid string) (*contents, error) {
	c := a.contents(uid)
	c.peeks = true
	for cells, err := range a.pages(ctx, uid) {
		if err != nil {
			return nil, err
		}
		c.add(cells)
	}
	return &c, nil
}

func (a *Archive) liveWithin(ctx context.Context, uid string) (c *contents, err error) {
	err = a.within(ctx, func(ctx context.Context) error {
		c, err = a.live(ctx, uid)
		return err
	})
	return c, err
}

// pages yields the cells of a row, sorted by column within each family. Pages start at a column because HBase scans
// what an offset skips. Later pages read #compacted again, last: it must be as new as any deleted cells.
func (a *Archive) pages(ctx context.Context, uid string) iter.Seq2[[]*hrpc.Cell, error] {
	return func(yield func([]*hrpc.Cell, error) bool) {
		families := a.families()
		asked := []hrpc.Call{a.pageGet(ctx, uid, pageFrom(nil), families...)}
		for len(asked) > 0 {
			var cells []*hrpc.Cell
			var next []hrpc.Call
			for _, r := range a.batch(ctx, a.servers.of(asked[0].Key()), asked) {
				some, err := cellsOf(r)
				if err != nil {
					yield(nil, err)
					return
				}
				cells = append(cells, some...)
				if len(some) < rowColumns {
					continue
				}
				last := some[len(some)-1]
				start := append(append([]byte(nil), last.Qualifier...), 0) // the next possible column
				next = append(next, a.pageGet(ctx, uid, pageFrom(start), string(last.Family)))
				if len(families) > 1 && string(last.Family) == family {
					next = append(next, a.pageGet(ctx, uid, pageFrom(nil), lateFamily))
				}
			}
			if !yield(cells, nil) {
				return
			}
			if asked = next; len(next) > 0 && a.segments.known() {
				asked = append(asked, a.get(ctx, uid, hrpc.Families(map[string][]string{family: {compactedColumn}})))
			}
			families = nil
		}
	}
}

// families returns the families of user rows.
func (a *Archive) families() []string {
	families := []string{family}
	if a.segments.known() {
		families = append(families, lateFamily)
	}
	return families
}

// pageFrom selects one page of a row, from a start column on.
func pageFrom(start []byte) *filter.ColumnPaginationFilter {
	return filter.NewColumnPaginationFilter(rowColumns, 0, start)
}

// pageGet reads one page of a row.
func (a *Archive) pageGet(ctx context.Context, uid string, page *filter.ColumnPaginationFilter, families ...string) hrpc.Call {
	columns := make(map[string][]string, len(families))
	for _, f := range families {
		columns[f] = nil
	}
	return a.get(ctx, uid, hrpc.Families(columns), hrpc.Filters(page))
}

// Inspect describes a user's data. With verify it also reads all chunks and compares them with checksums and
// metadata.
func (a *Archive) Inspect(ctx context.Context, uid string, verify bool) (i segment.Inspection, err error) {
	c, err := a.liveWithin(ctx, uid)
	if err != nil {
		return i, fmt.Errorf("inspect %s: %w", history.Pseudonym(uid), err)
	}
	c.resolve()
	if i.Live, i.Segments = len(c.objects), new(segment.Metadata); !a.segments.known() {
		return i, nil
	}
	b, err := a.segmentBytes(ctx, uid, "")
	if err == nil && b != nil {
		i.Segments, err = segment.ParseMetadata(b)
	}
	if err != nil {
		return i, fmt.Errorf("inspect %s: %w", history.Pseudonym(uid), err)
	}
	unlisted, err := a.unlisted(ctx, uid, i.Segments)
	if err != nil {
		return i, fmt.Errorf("inspect %s: %w", history.Pseudonym(uid), err)
	}
	i.Unlisted = slices.Sorted(maps.Keys(unlisted))
	if !verify {
		return i, nil
	}
	reader := &segment.Reader{Metadata: living(i.Segments, a.dropped()), Chunk: func(info *segment.Info) (*segment.Chunk, error) {
		c, _, err := a.readChunk(ctx, uid, info, true)
		return c, err
	}}
	objects, wrong := reader.Verify()
	i.Wrong = wrong
	for _, o := range c.objects {
		if objects[o.object.String()] > 0 {
			i.Both++
		}
	}
	return i, nil
}
