// Package view turns records into what readers see.
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

// Item returns a visible record as readers see it, by the rules of its type.
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

// Sessions returns the viewings of a visible record as readers see them.
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

// Whole returns a record as exports carry it: all of it that is not of this store alone.
func Whole(r *history.Record) (*historyv1.Record, error) {
	m := new(historyv1.Record)
	if err := proto.Unmarshal(wire.AppendRecord(nil, r), m); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	m.Revision, m.CellDriftMs, m.Partial = 0, 0, false
	return m, nil
}

// Record is the inverse. The record is partial and not yet validated: see
// [history.Record.Validate]. It fails with [wire.ErrCorrupt].
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

// Incomplete reports whether the archive may hold a part of a record that the record lacks.
// A clean record is what the archive has, unless the cache's copy is damaged: that says
// nothing at all.
func Incomplete(r *history.Record) bool {
	return r != nil && r.Partial && !r.Clean() || Damaged(r)
}

// Damaged reports whether the cache cannot read the content that it has. It says at most
// when the latest event was.
func Damaged(r *history.Record) bool { return r != nil && r.State == 0 }

// An etag names what readers see of a record, so that it is another one only when that is:
// the record's revision changes with things that nobody sees. Its upper half names the
// event that says where the user left off. That is what a device must have seen to go on: what the
// archive adds to a record, a late report, or somebody who has only just begun, does not put the user anywhere else.

// etag is never 0, and the same in every service.
func etag(it *historyv1.Item, r *history.Record) uint64 {
	tag := leftOff(r)<<32 | seen(it)>>32
	return max(tag, 1)
}

// Names reports whether an etag was that of a record that the user has left off at the same event as r.
func Names(tag uint64, r *history.Record) bool { return leftOff(r)<<32 == tag>>32<<32 }

// leftOff hashes the event that says where the user left off.
func leftOff(r *history.Record) uint64 {
	var room [20]byte
	e := r.LeftOff()
	return xxhash.Sum64(binary.AppendVarint(binary.AppendVarint(room[:0], int64(e.Version)), e.Position))
}

// seen hashes all that readers see of the record.
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

// appendText appends a text and where it ends, so that no two pairs look the same.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Summary returns a summary as readers see it.
func Summary(s history.Summary) *historyv1.Summary {
	s = s.Total()
	return &historyv1.Summary{
		Object:  &historyv1.Object{Id: s.Object.ID, Type: s.Object.Type},
		FirstMs: s.First, LastMs: s.Last, Plays: s.Plays, WatchedMs: s.Watched, FurthestMs: s.Furthest, DurationMs: s.Duration, Completed: s.Finished,
	}
}
