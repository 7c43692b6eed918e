package hbase

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tsuna/gohbase/filter"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
)

// Held counts a user's stored items by place. It counts columns; a record may have several.
func (a *Archive) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	counts := func(at int64) bool { return until == 0 || at <= until }
	c, err := a.liveWithin(ctx, uid)
	if err != nil {
		return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
	}
	live, records, chunks := 0, 0, 0
	for _, o := range c.objects {
		if counts(o.version.Time()) && (o.damage == nil || counts(o.at)) {
			live++
		}
	}
	if a.segments.known() {
		m, _, err := a.listed(ctx, uid)
		if err != nil {
			return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
		}
		stored, err := a.unlisted(ctx, uid, new(segment.Metadata))
		if err != nil {
			return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
		}
		for i := range m.Chunks {
			_, there := stored[m.Chunks[i].Name]
			delete(stored, m.Chunks[i].Name)
			if there && counts(m.Chunks[i].Oldest.Time()) {
				records, chunks = records+m.Chunks[i].Count, chunks+1
			}
		}
		chunks += len(stored)
	}
	summaries, ofSummaries, err := a.heldSummaries(ctx, uid, counts)
	if err != nil {
		return nil, fmt.Errorf("count what there is of %s: %w", history.Pseudonym(uid), err)
	}
	return map[string]int{
		"archive: live records": live, "archive: records in segments": records, "archive: chunks": chunks,
		"archive: summaries": summaries, "archive: chunks of summaries": ofSummaries,
	}, nil
}

// Namespaces returns a user's namespaces with possible data. The rows of a user's namespaces follow the user's row.
func (a *Archive) Namespaces(ctx context.Context, uid string) (all []string, err error) {
	tables := [][]byte{a.table}
	if a.segments.known() {
		tables = append(tables, a.segments.table)
	}
	ttl, err := a.readSummaryTTL(ctx)
	if err != nil {
		return nil, fmt.Errorf("namespaces of %s: %w", history.Pseudonym(uid), err)
	}
	if ttl > 0 {
		tables = append(tables, a.summaries.table)
	}
	for _, table := range tables {
		some, err := a.namespacesIn(ctx, table, uid)
		if err != nil {
			return nil, fmt.Errorf("namespaces of %s: %w", history.Pseudonym(uid), err)
		}
		all = append(all, some...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (a *Archive) namespacesIn(ctx context.Context, table []byte, uid string) (all []string, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	prefix := history.RowKey(history.NamespacePrefix(uid))
	end := prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
	scan, err := hrpc.NewScanRange(ctx, table, []byte(prefix), []byte(end), hrpc.Filters(filter.NewFirstKeyOnlyFilter()))
	if err != nil {
		return nil, err
	}
	rows := a.client.Scan(scan)
	defer func() { _ = rows.Close() }()
	for {
		r, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, classify(err)
		}
		for _, cell := range r.Cells {
			namespace, _, _ := strings.Cut(string(cell.Row[digitsEnd:]), "\x00")
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
	}
}

// digitsEnd is the offset of the uid in a row key.
const digitsEnd = 2

// Erase removes a user's data up to a time. DESIGN.md proves it safe.
func (a *Archive) Erase(ctx context.Context, uid string, until int64) error {
	err := cmp.Or(a.config.ClockErr(), a.PutUser(ctx, uid, history.User{Cleared: map[uint32]int64{0: until}}))
	if err == nil {
		err = a.erase(ctx, uid, until)
	}
	for errors.Is(err, history.ErrConflict) && ctx.Err() == nil { // a compaction interfered
		err = a.erase(ctx, uid, until)
	}
	for again := err == nil; again; again = errors.Is(err, history.ErrConflict) && ctx.Err() == nil {
		err = a.eraseSummaries(ctx, uid)
	}
	if err != nil {
		return fmt.Errorf("erase %s: %w", history.Pseudonym(uid), unavailable(err))
	}
	return nil
}

// erase removes data that survives a clear's delete: segments, and cells with a time after the clear mark but an
// earlier record. It stores their cell times first, so no later put falls behind the delete markers.
func (a *Archive) erase(ctx context.Context, uid string, until int64) error {
	r := &compact{Archive: a, uid: uid, began: a.now()}
	var err error
	if r.live, err = a.liveWithin(ctx, uid); err != nil {
		return err
	}
	cut := int64(0)
	for _, o := range r.live.objects {
		if o.damage == nil && o.version.Time() <= until {
			r.leaving = append(r.leaving, o)
			cut = max(cut, o.at)
		}
	}
	var chunks map[string]uint64
	if a.segments.known() {
		if chunks, err = r.planErasure(ctx); err != nil {
			return err
		}
		cut = max(cut, cutIn(r.segments, r.live.cleared))
	}
	if err := a.putCut(ctx, uid, cut, max(until, r.live.cut)); err != nil {
		return err
	}
	r.live.cut = max(r.live.cut, cut)
	if err := r.deleteLive(ctx, 0, func(int) {}); err != nil || !a.segments.known() {
		return err
	}
	return r.replaceSegments(ctx, chunks)
}

// planErasure plans segments without cleared records and returns all stored chunks. A concurrent writer of one of
// them has read the old metadata and loses its switch.
func (r *compact) planErasure(ctx context.Context) (chunks map[string]uint64, err error) {
	if chunks, err = r.unlisted(ctx, r.uid, new(segment.Metadata)); err != nil {
		return nil, err
	}
	m, stored, err := r.listed(ctx, r.uid)
	if err != nil {
		return nil, err
	}
	r.bytes, r.segments = stored, r.reader(ctx, r.uid, m, true)
	r.plan, err = r.segments.Compact(r.planned())
	return chunks, err
}

// putCut stores a cut time if it is later than others.
func (a *Archive) putCut(ctx context.Context, uid string, cut, others int64) error {
	if cut <= others {
		return nil
	}
	return a.within(ctx, func(ctx context.Context) error {
		return a.all(ctx, []hrpc.Call{a.put(ctx, uid, map[string][]byte{cutColumn: nil}, uint64(cut+future))}) //nolint:gosec // a time
	})
}

// replaceSegments switches to the plan and deletes the chunks it does not list.
func (r *compact) replaceSegments(ctx context.Context, chunks map[string]uint64) error {
	if err := r.store(ctx); err != nil { // even without changes: a concurrent compaction must lose
		return err
	}
	if r.live.compacted > 0 {
		if err := r.announce(ctx, r.plan.Metadata); err != nil {
			return err
		}
	}
	listed := r.plan.Metadata.Names()
	maps.DeleteFunc(chunks, func(name string, _ uint64) bool { return listed[name] })
	return r.deleteChunks(ctx, chunks)
}

// Remains says where erased bytes stay.
func (a *Archive) Remains(context.Context) []string {
	tables := []string{a.config.Table}
	if a.segments.known() {
		tables = append(tables, string(a.segments.table))
	}
	if a.summaries.ttl.Load() > 0 {
		tables = append(tables, string(a.summaries.table))
	}
	remains := make([]string, len(tables))
	for i, table := range tables {
		remains[i] = "HBase table " + strconv.Quote(table) + ": in files until its next major compaction, and in snapshots that were made before"
	}
	return slices.Concat(remains, []string{"HBase: in write-ahead logs until they are removed"})
}
