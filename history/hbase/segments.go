package hbase

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

func (m *mark) value() []byte {
	return fmt.Appendf(nil, "%d %d %d %d", m.since, m.above, m.after, m.margin)
}

// parseMarkValue is the inverse of value.
func parseMarkValue(b []byte) (*mark, error) {
	m := new(mark)
	if _, err := fmt.Sscanf(string(b), "%d %d %d %d", &m.since, &m.above, &m.after, &m.margin); err != nil || m.margin < 1 {
		return nil, fmt.Errorf("mark of compacting %q: %w", b, cmp.Or(err, segment.ErrNewer))
	}
	return m, nil
}

func (a *Archive) now() int64 { return a.config.Now().UnixMilli() }

// margin returns the compaction margin in milliseconds; see [Config.CompactMargin].
func (a *Archive) margin() int64 {
	if m := a.segments.mark.Load(); m != nil {
		return m.margin
	}
	return a.config.CompactMargin.Milliseconds()
}

// follow fails unless the mark was read within the last half margin, or is known. It tries to read the mark more
// often than that and ignores failures in between.
func (a *Archive) follow(ctx context.Context) error {
	if a.segments.known() || !a.prepared.Load() {
		return nil
	}
	now, tried, late := a.now(), a.segments.tried.Load(), a.now()-a.segments.read.Load() >= a.margin()/2
	if !late && (now-tried < a.margin()/12 || !a.segments.tried.CompareAndSwap(tried, now)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, slowAfter)
	defer cancel()
	if err := a.readMark(ctx); err != nil && late {
		return fmt.Errorf("mark of compacting: %w", classify(err))
	}
	return nil
}

func (a *Archive) readMark(ctx context.Context) error {
	now := a.now()
	get, err := hrpc.NewGet(ctx, a.table, []byte(markRow), hrpc.Families(map[string][]string{family: {markName}}), hrpc.SkipBatch())
	if err != nil {
		return err
	}
	r, err := a.client.Get(get)
	if err != nil {
		return err
	}
	for _, cell := range r.Cells {
		m, err := parseMarkValue(cell.Value)
		if err != nil {
			return err
		}
		a.segments.mark.Store(m)
	}
	a.segments.read.Store(now)
	return nil
}

// BeginCompacting writes the mark that enables compaction, as [Archive.Prepare] does. The first writer fixes the
// start.
func (a *Archive) BeginCompacting(ctx context.Context) error {
	for above := a.config.CompactAbove; ; {
		if err := a.readMark(ctx); err != nil {
			return err
		}
		var was []byte
		m := mark{a.now(), above, a.config.CompactAfter.Milliseconds(), a.config.CompactMargin.Milliseconds()}
		if old := a.segments.mark.Load(); old != nil {
			if was = old.value(); old.above == above {
				return nil
			}
			m = *old
			m.above = above
		}
		put, err := hrpc.NewPut(ctx, a.table, []byte(markRow), map[string]map[string][]byte{family: {markName: m.value()}},
			hrpc.TimestampUint64(uint64(a.now()+future)))
		if err != nil {
			return err
		}
		if _, err := a.client.CheckAndPut(put, family, markName, was); err != nil {
			return err
		}
	}
}

// lateness is the time before which records are old, and the current period of late columns.
type lateness struct{ before, period int64 }

func (a *Archive) lateBefore() (l lateness, err error) {
	now, m := a.now(), a.segments.mark.Load()
	if m == nil || now < m.since+m.margin {
		return l, nil
	}
	return lateness{before: now - m.after, period: now / m.margin}, a.config.ClockErr()
}

// compactionsIn returns the delay until all puts of processes without the mark have been applied.
func (a *Archive) compactionsIn() time.Duration {
	m := a.segments.mark.Load()
	if m == nil { // the table does not allow compaction yet
		return a.config.CompactMargin
	}
	return time.Duration(max(m.since+3*m.margin-a.now(), 0)) * time.Millisecond
}

// noteLong reports a user with too many live records to [Config.Long].
func (a *Archive) noteLong(ctx context.Context, uid string, records int) {
	a.segments.metrics.Live.Observe(float64(records))
	if m := a.segments.mark.Load(); m == nil || a.config.Long == nil || records <= m.above {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, slowAfter)
	defer cancel()
	if err := a.config.Long(ctx, uid); err != nil { // the next reader tries again
		a.config.Logger.Debug("long row not noted", "error", err)
	}
}

// errReplaced means that a chunk is missing, probably replaced by a later compaction.
var errReplaced = errors.New("chunk is replaced")

// errDropped means that HBase expired a chunk by its own clock, ahead of the trusted time.
var errDropped = errors.New("dropped by its age")

// reading calls read with the user's segments, nil without any. They are at least as new as the row, so no record
// is missing from both. If a chunk was replaced, reading calls read again with the current metadata. Records expire
// by the trusted time, or by the clock if HBase already dropped some.
func (a *Archive) reading(ctx context.Context, c *contents, q history.Query, read func(*segment.Reader) error) error {
	err := a.readingSince(ctx, c, q, a.oldest(c.uid), read)
	if errors.Is(err, errDropped) {
		err = a.readingSince(ctx, c, q, a.dropped(), read)
	}
	return err
}

func (a *Archive) readingSince(ctx context.Context, c *contents, q history.Query, oldest int64, read func(*segment.Reader) error) error { //nolint:revive // as reading, and since when
	if c.compacted == 0 || int64(c.compacted) < oldest { //nolint:gosec // a time
		return read(nil) // all segments have expired
	}
	if err := a.readMetadataAndChunks(ctx, c, q); err != nil {
		return unavailable(err)
	}
	for before := uint64(0); ; {
		segments, err := a.segmentsOf(ctx, c, oldest, before)
		if err == nil {
			err = read(segments)
		}
		if !errors.Is(err, errReplaced) {
			return unavailable(err)
		}
		before = segments.Version
	}
}

// readMetadataAndChunks prefetches the metadata and the page's likely chunks in one exchange, unless the metadata
// is cached. The chunk names come from the row's index, so newer metadata may list others.
func (a *Archive) readMetadataAndChunks(ctx context.Context, c *contents, q history.Query) error {
	if a.segments.cache.Has(metadataName(c.uid, c.compacted)) {
		return nil
	}
	chunks, err := segment.ParseIndex(c.index)
	if err != nil {
		return nil //nolint:nilerr // no index, or an unknown format: read the metadata first
	}
	may, first := segment.Ahead(chunks, q, c.hidden(q))
	if first > 0 && c.newerThan(may[0].Newest, q) {
		first = 0 // live records fill the page
	}
	names := []string{""}
	for _, i := range may[:first] {
		names = append(names, i.Name)
	}
	values, err := a.segmentsBytes(ctx, c.uid, names)
	if err != nil {
		return err
	}
	m, err := segment.Fresh(a.segments.cache, metadataName(c.uid, c.compacted), func() (*segment.Metadata, int, error) { return a.parseMetadata(values[0], c.compacted) })
	if err != nil {
		return err
	}
	for i := range m.Chunks {
		if n := slices.Index(names, m.Chunks[i].Name); n > 0 && values[n] != nil {
			a.segments.cache.Keep(storedName(c.uid, names[n]), values[n])
		}
	}
	return nil
}

// kept reports whether a chunk is cached, decoded or as prefetched bytes. Corrupt bytes fail only the reader that
// decodes them.
func (a *Archive) kept(uid, name string) bool {
	return a.segments.cache.Has(chunkName(uid, name)) || a.segments.cache.Has(storedName(uid, name))
}

// newerThan reports whether more live records than the query's limit are newer than a version.
func (c *contents) newerThan(v history.Version, q history.Query) bool {
	n := 0
	for _, o := range c.objects {
		if o.damage == nil && o.version > v && q.Wants(o.place()) {
			n++
		}
	}
	return n > q.Limit
}

func metadataName(uid string, version uint64) string {
	return uid + "\x00v" + strconv.FormatUint(version, 10)
}

func chunkName(uid, name string) string { return uid + "\x00" + name }

func storedName(uid, name string) string { return uid + "\x00s" + name }

func unavailable(err error) error {
	if err == nil || errors.Is(err, history.ErrUnavailable) || errors.Is(err, history.ErrPermanent) {
		return err
	}
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

// dropped returns the time before which HBase may have expired cells.
func (a *Archive) dropped() int64 { return a.config.Rules.NamespaceExpired("", a.now()) }

// oldest returns the time before which records of a user or namespace have expired. Without a trusted clock only
// those from before an earlier, shorter retention have.
func (a *Archive) oldest(uid string) int64 {
	horizon, _ := a.config.Horizon()
	return a.config.Rules.NamespaceExpired(uid, horizon.UnixMilli())
}

// segmentsOf returns a reader of a user's segments, at least as new as the row. before is the version whose chunk
// was missing, or 0. If the current version is the same, the chunk is damaged.
func (a *Archive) segmentsOf(ctx context.Context, c *contents, oldest int64, before uint64) (*segment.Reader, error) {
	uid, version := c.uid, c.compacted
	look := segment.Cached[*segment.Metadata]
	if before > 0 {
		look = segment.Fresh[*segment.Metadata]
	}
	m, err := look(a.segments.cache, metadataName(uid, version), func() (*segment.Metadata, int, error) {
		b, err := a.segmentBytes(ctx, uid, "")
		if err != nil {
			return nil, 0, err
		}
		return a.parseMetadata(b, version)
	})
	if err != nil {
		return nil, err
	}
	r := a.reader(ctx, uid, living(m, oldest), m.Version == before)
	r.Oldest = oldest
	return r, nil
}

func (a *Archive) parseMetadata(b []byte, version uint64) (*segment.Metadata, int, error) {
	if b == nil && int64(version) < a.dropped() { //nolint:gosec // a time
		return nil, 0, fmt.Errorf("metadata of segments: %w", errDropped)
	}
	m, err := segment.ParseMetadata(b)
	if err == nil && m.Version < version {
		err = fmt.Errorf("metadata of segments: %w: version %d, want %d", segment.ErrCorrupt, m.Version, version)
	}
	return m, len(b), err
}

// living returns the metadata without expired chunks.
func living(m *segment.Metadata, oldest int64) *segment.Metadata {
	l := *m
	l.Chunks = nil
	for _, c := range m.Chunks {
		if c.Newest.Time() >= oldest {
			l.Chunks = append(l.Chunks, c)
		}
	}
	return &l
}

func (a *Archive) reader(ctx context.Context, uid string, m *segment.Metadata, fresh bool) *segment.Reader {
	r := &segment.Reader{Metadata: m, Oldest: a.oldest(uid)}
	r.Chunk = func(i *segment.Info) (*segment.Chunk, error) {
		return segment.Cached(a.segments.cache, chunkName(uid, i.Name), func() (*segment.Chunk, int, error) {
			if stored := a.segments.cache.Take(storedName(uid, i.Name)); stored != nil {
				return openChunk(i, stored)
			}
			return a.readChunk(ctx, uid, i, fresh)
		})
	}
	r.Ahead = func(infos []*segment.Info) error { return a.readAhead(ctx, uid, infos) }
	r.Has = func(i *segment.Info) bool { return a.kept(uid, i.Name) }
	return r
}

// readAhead reads the uncached chunks in one exchange. It skips missing chunks; their reader fails later.
func (a *Archive) readAhead(ctx context.Context, uid string, infos []*segment.Info) error {
	infos = slices.DeleteFunc(slices.Clone(infos), func(i *segment.Info) bool { return a.kept(uid, i.Name) })
	if len(infos) < 2 {
		return nil // its reader reads it
	}
	names := make([]string, len(infos))
	for n, i := range infos {
		names[n] = i.Name
	}
	values, err := a.segmentsBytes(ctx, uid, names)
	if err != nil {
		return err
	}
	for n := range infos {
		if values[n] != nil {
			a.segments.cache.Keep(storedName(uid, names[n]), values[n])
		}
	}
	return nil
}

func (a *Archive) readChunk(ctx context.Context, uid string, i *segment.Info, fresh bool) (*segment.Chunk, int, error) {
	b, err := a.segmentBytes(ctx, uid, i.Name)
	switch {
	case err != nil:
		return nil, 0, err
	case b == nil && i.Newest.Time() < a.dropped():
		return nil, 0, fmt.Errorf("chunk %q: %w", i.Name, errDropped)
	case b == nil && !fresh:
		return nil, 0, fmt.Errorf("chunk %q: %w", i.Name, errReplaced)
	}
	return openChunk(i, b)
}

func openChunk(i *segment.Info, b []byte) (*segment.Chunk, int, error) {
	c, err := i.Open(b)
	if err != nil {
		return nil, 0, err
	}
	return c, c.Size(), nil
}

// segmentRow returns the row of a chunk; without a name, the row of the metadata.
func segmentRow(uid, name string) []byte {
	row := []byte(history.RowKey(uid))
	if name == "" {
		return row
	}
	return append(append(row, 0), name...)
}

// segmentBytes reads the metadata or a chunk; nil if missing.
func (a *Archive) segmentBytes(ctx context.Context, uid, name string) ([]byte, error) {
	values, err := a.segmentsBytes(ctx, uid, []string{name})
	if err != nil {
		return nil, err
	}
	return values[0], nil
}

// segmentsBytes is segmentBytes for several names in one exchange.
func (a *Archive) segmentsBytes(ctx context.Context, uid string, names []string) ([][]byte, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	gets, values := make([]hrpc.Call, len(names)), make([][]byte, len(names))
	for n, name := range names {
		gets[n] = a.segmentGet(ctx, segmentRow(uid, name))
	}
	for n, r := range a.batch(ctx, a.segments.servers.of(gets[0].Key()), gets) {
		cells, err := cellsOf(r)
		if err != nil {
			return nil, err
		}
		if len(cells) > 0 {
			values[n] = cells[0].Value
		}
	}
	return values, nil
}

func (a *Archive) segmentGet(ctx context.Context, row []byte) hrpc.Call {
	get, _ := hrpc.NewGet(ctx, a.segments.table, row, hrpc.Families(map[string][]string{segmentFamily: {segmentColumn}}))
	return get
}

func (a *Archive) segmentPut(ctx context.Context, row, value []byte, at int64) *hrpc.Mutate {
	put, _ := hrpc.NewPut(ctx, a.segments.table, row, map[string]map[string][]byte{segmentFamily: {segmentColumn: value}},
		hrpc.TimestampUint64(uint64(at))) //nolint:gosec // a time
	return put
}

// listed returns a user's metadata, parsed and as stored. Corrupt metadata counts as empty.
func (a *Archive) listed(ctx context.Context, uid string) (*segment.Metadata, []byte, error) {
	stored, err := a.segmentBytes(ctx, uid, "")
	if err != nil || stored == nil {
		return new(segment.Metadata), stored, err
	}
	m, err := segment.ParseMetadata(stored)
	if errors.Is(err, segment.ErrCorrupt) {
		return new(segment.Metadata), stored, nil
	}
	return m, stored, err
}

// unlisted returns a user's chunks that are missing from the metadata, with their cell times.
func (a *Archive) unlisted(ctx context.Context, uid string, m *segment.Metadata) (chunks map[string]uint64, err error) {
	return a.chunksIn(ctx, a.segments.table, uid, m)
}

// chunksIn is unlisted for a table.
func (a *Archive) chunksIn(ctx context.Context, table []byte, uid string, m *segment.Metadata) (chunks map[string]uint64, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	prefix := append(segmentRow(uid, ""), 0)
	end := append(segmentRow(uid, ""), 1)
	chunks = make(map[string]uint64)
	listed := m.Names()
	scan, err := hrpc.NewScanRange(ctx, table, prefix, end,
		hrpc.Families(map[string][]string{segmentFamily: {segmentColumn}}), hrpc.Filters(filter.NewKeyOnlyFilter(false)))
	if err != nil {
		return nil, err
	}
	return chunks, a.scanRows(scan, func(cells []*hrpc.Cell) {
		for _, cell := range cells {
			if name := string(bytes.TrimPrefix(cell.Row, prefix)); !listed[name] {
				chunks[name] = *cell.Timestamp
			}
		}
	})
}

// scanRows calls use for each row of a scan.
func (a *Archive) scanRows(scan *hrpc.Scan, use func(cells []*hrpc.Cell)) error {
	rows := a.client.Scan(scan)
	defer func() { _ = rows.Close() }()
	for {
		r, err := rows.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return classify(err)
		case len(r.Cells) > 0:
			use(r.Cells)
		}
	}
}
