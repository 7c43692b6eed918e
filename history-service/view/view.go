// Package view converts records to API messages.
package view

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Item converts a visible record, with the rules of its type.
func Item(o history.Object, r *history.Record, book *history.Rulebook) *historyv1.Item {
	it := &historyv1.Item{
		Object: &historyv1.Object{Id: o.ID, Type: o.Type}, State: historyv1.State(r.State),
		EventTimeMs: r.Version.Time(), PositionMs: r.Resume(), DurationMs: r.Duration,
		FurthestMs: r.Furthest(), Plays: r.Plays(), CompletedAtMs: r.CompletedAt(), WatchedMs: r.Watched(),
		Session: r.Session, Device: r.Device, Meta: r.Meta.Map(), Incomplete: Incomplete(r),
		Completed: book.Of(o.Type).Completed(r), PlayedMs: r.Original.Time(), DismissedMs: r.DismissedAt(), Early: r.ResumesEarlier(),
	}
	if !it.Completed {
		it.ResumeMs = it.PositionMs
	}
	it.Etag = etag(it, r)
	return it
}

// Sessions converts the viewings of a visible record.
func Sessions(r *history.Record) []*historyv1.Session {
	all := make([]*historyv1.Session, 0, history.MaxSessions)
	for _, s := range r.Sessions() {
		one := &historyv1.Session{
			BeginMs: s.Begin, EndMs: s.End, State: historyv1.State(s.State), Device: s.Device,
			WatchedMs: s.Watched, CompletedAtMs: s.CompletedAt,
		}
		if s.Begin > 0 {
			one.FromMs = &s.From
		}
		if s.Known {
			one.ToMs = &s.To
		}
		all = append(all, one)
	}
	return all
}

// Whole converts a record for an export, without fields that are specific to this store.
func Whole(r *history.Record) (*historyv1.Record, error) {
	m := new(historyv1.Record)
	if err := proto.Unmarshal(wire.AppendRecord(nil, r), m); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	m.Revision, m.CellDriftMs, m.Partial = 0, 0, false
	return m, nil
}

// Record is the inverse of Whole. The result is partial and not validated: see [history.Record.Validate]. It fails
// with [wire.ErrCorrupt].
func Record(m *historyv1.Record) (*history.Record, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("record: %w: %w", wire.ErrCorrupt, err)
	}
	r, err := wire.Record(b)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = new(history.Record)
	}
	r.Revision, r.CellTime, r.Partial = 0, 0, true
	r.Meta, r.MetaVersion = history.MetaOf(r.MetaEntries())
	return r, nil
}

// Incomplete reports whether the archive may have parts that the record lacks. A clean record equals the archived
// one, unless the cached copy is damaged.
func Incomplete(r *history.Record) bool {
	return r != nil && r.Partial && !r.Clean() || Damaged(r)
}

// Damaged reports whether the cached content is unreadable. Such a record has at most the time of its latest event.
func Damaged(r *history.Record) bool { return r != nil && r.State == 0 }

// An etag hashes the visible fields of a record; the revision would also change with invisible ones. The upper half
// hashes the event with the playback position: a device must know it to continue. It does not change with late
// reports, archived parts or a playback that has just started.

// etag is never 0, and is equal in every service.
func etag(it *historyv1.Item, r *history.Record) uint64 {
	tag := leftOff(r)<<32 | seen(it)>>32
	return max(tag, 1)
}

// Names reports whether an etag has the same playback position event as r.
func Names(tag uint64, r *history.Record) bool { return leftOff(r)<<32 == tag>>32<<32 }

// leftOff hashes the event with the playback position.
func leftOff(r *history.Record) uint64 {
	var room [20]byte
	e := r.LeftOff()
	return xxhash.Sum64(binary.AppendVarint(binary.AppendVarint(room[:0], int64(e.Version)), e.Position))
}

// seen hashes the visible fields of the item.
func seen(it *historyv1.Item) uint64 {
	var room [512]byte
	b := room[:0]
	for _, n := range [...]int64{
		int64(it.State), it.EventTimeMs, it.PositionMs, it.DurationMs, it.FurthestMs,
		int64(it.Plays), it.CompletedAtMs, it.WatchedMs, it.PlayedMs, it.DismissedMs, //nolint:gosec // of any value
	} {
		b = binary.AppendVarint(b, n)
	}
	if it.Completed {
		b = append(b, 1)
	}
	if it.Early {
		b = append(b, 2)
	}
	b = appendText(appendText(b, it.Session), it.Device)
	for _, key := range slices.Sorted(maps.Keys(it.Meta)) {
		b = appendText(appendText(b, key), it.Meta[key])
	}
	return xxhash.Sum64(b)
}

// appendText appends a length-prefixed string, so that different sequences never collide.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Summary converts a summary.
func Summary(s history.Summary) *historyv1.Summary {
	title := s.Imported.Title()
	s = s.Total()
	return &historyv1.Summary{
		Title:   title,
		Object:  &historyv1.Object{Id: s.Object.ID, Type: s.Object.Type},
		FirstMs: s.First, LastMs: s.Last, Plays: s.Plays, WatchedMs: s.Watched, FurthestMs: s.Furthest, DurationMs: s.Duration, Completed: s.Finished,
	}
}
