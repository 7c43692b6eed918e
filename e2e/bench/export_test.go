package bench

import (
	"context"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// Fold returns the heartbeats of a batch that PostgreSQL's client sends.
func Fold(l *Load, beats []int32) (keys []history.Key, at []int64) {
	s := &pgSession{last: newLastOf(l)}
	s.fold(beats)
	for i, uid := range s.uid {
		keys = append(keys, history.Key{UID: uid, Object: history.Object{ID: s.object[i], Type: uint32(s.typ[i])}}) //nolint:gosec // small
	}
	return keys, s.at
}

// Send sends a load through one session for each worker.
func Send(ctx context.Context, l *Load, shape Shape, session Session) (time.Duration, []time.Duration, error) {
	w, err := prepare(shape, l.Share(shape.Workers), func([]int32) (Session, error) { return session, nil })
	if err != nil {
		return 0, nil, err
	}
	defer w.close()
	return w.run(ctx)
}

// AllStored exports allStored.
var AllStored = allStored

// JSON returns heartbeat i in a player's JSON.
func (l *Load) JSON(i int) string { return string(l.appendJSON(nil, i)) }

// Text returns the metadata of heartbeat i in a table's format.
func (l *Load) Text(i int) string { return l.metadata[l.Event(i).Key.Object].text }

// Planned returns the names of all variants of a run.
func Planned(o Options) (names []string) {
	for _, v := range slices.Concat(o.alone(), o.together(), []Variant{onDisk, onFill}) {
		names = append(names, v.String())
	}
	return names
}

// Per exports per.
func (m *Meter) Per(f Figures, name string, n int) error { return m.per(f, name, n) }
