package rpc

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// item is a visible record as readers see it.
func item(o history.Object, r *history.Record) *historyv1.Item {
	it := &historyv1.Item{
		Object: &historyv1.Object{Id: o.ID, Type: o.Type}, State: historyv1.State(r.State),
		EventTimeMs: r.Version.Time(), PositionMs: r.Resume(), DurationMs: r.Duration,
		FurthestMs: r.Furthest(), Plays: r.Plays(), CompletedAtMs: r.CompletedAt(), WatchedMs: r.Watched(),
		Session: r.Session, Device: r.Device, Meta: r.Meta,
	}
	it.Etag = etag(it)
	return it
}

// etag names what readers see of a record, so that it is another one only when that is:
// the record's revision changes with things that nobody sees. It is never 0, and the
// same in every service.
func etag(it *historyv1.Item) uint64 {
	var room [512]byte
	b := room[:0]
	for _, n := range [...]int64{
		int64(it.State), it.EventTimeMs, it.PositionMs, it.DurationMs, it.FurthestMs,
		int64(it.Plays), it.CompletedAtMs, it.WatchedMs, //nolint:gosec // of any value
	} {
		b = binary.AppendVarint(b, n)
	}
	b = appendText(appendText(b, it.Session), it.Device)
	for _, key := range slices.Sorted(maps.Keys(it.Meta)) {
		b = appendText(appendText(b, key), it.Meta[key])
	}
	return max(xxhash.Sum64(b), 1)
}

// appendText appends a text and where it ends, so that no two pairs look the same.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
