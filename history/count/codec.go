package count

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// format is the newest known format of messages.
const format = 0

// AppendMessage appends an encoded message of history.counts.
func AppendMessage(dst []byte, statements []Statement) []byte {
	m := &historyv1.Statements{Statements: make([]*historyv1.Statement, len(statements))}
	for i := range statements {
		s := &statements[i]
		m.Statements[i] = &historyv1.Statement{
			Uid: s.UID, ObjectId: s.Object.ID, ObjectType: s.Object.Type, CellMs: s.CellTime, RemovedMs: s.RemovedAt, Played: encodePlayed(s.Played),
		}
	}
	return encode(dst, m)
}

// Message decodes a message of history.counts. It fails with [history.ErrPermanent], also for a newer format.
func Message(b []byte) ([]Statement, error) {
	var m historyv1.Statements
	if err := proto.Unmarshal(b, &m); err != nil {
		return nil, corrupt("message", b, err)
	}
	if m.GetFormat() > format {
		return nil, corrupt("message", b, fmt.Errorf("format %d is newer than %d", m.GetFormat(), format))
	}
	statements := make([]Statement, len(m.GetStatements()))
	for i, s := range m.GetStatements() {
		o := history.Object{ID: s.GetObjectId(), Type: s.GetObjectType()}
		played, err := decodePlayed(s.GetPlayed())
		if err == nil {
			err = o.Validate()
		}
		if err == nil {
			err = history.ValidateNamespace(s.GetUid())
		}
		if err == nil && s.GetCellMs() <= 0 {
			err = history.Invalid("cell_ms", "want a time")
		}
		if err != nil {
			return nil, corrupt("message", b, err)
		}
		statements[i] = Statement{UID: s.GetUid(), Object: o, CellTime: s.GetCellMs(), RemovedAt: s.GetRemovedMs(), Played: played}
	}
	return statements, nil
}

// AppendMark appends an encoded mark.
func AppendMark(dst []byte, m *Mark) []byte {
	p := &historyv1.CountedMark{CellMs: m.CellTime, RemovedMs: m.RemovedAt, Played: encodePlayed(m.Played)}
	for _, d := range m.Before {
		p.Before = append(p.Before, uint32(d)) //nolint:gosec // a day
	}
	return encode(dst, p)
}

// ParseMark decodes a mark, the zero one if empty. It fails with [history.ErrPermanent].
func ParseMark(b []byte) (m Mark, err error) {
	if len(b) == 0 {
		return m, nil
	}
	var p historyv1.CountedMark
	if err := proto.Unmarshal(b, &p); err != nil {
		return m, corrupt("mark", b, err)
	}
	m.CellTime, m.RemovedAt = p.GetCellMs(), p.GetRemovedMs()
	if m.Played, err = decodePlayed(p.GetPlayed()); err == nil && m.CellTime <= 0 {
		err = history.Invalid("cell_ms", "want a time")
	}
	if err != nil {
		return Mark{}, corrupt("mark", b, err)
	}
	for _, d := range p.GetBefore() {
		m.Before = append(m.Before, history.Day(d))
	}
	return m, nil
}

// Row is an object's totals as a store keeps them, or those of a part of its users.
type Row struct {
	Totals
	Version uint64 // changes with each write
	Users   uint64 // ever counted in this row
	Full    bool   // takes no more users
}

// AppendRow appends an encoded row.
func AppendRow(dst []byte, r *Row) []byte {
	p := &historyv1.CountedRow{Plays: r.All.Plays, Viewers: r.All.Viewers, WatchedMs: r.All.Watched, Version: r.Version, Users: r.Users, Full: r.Full}
	for _, d := range r.Days {
		p.Days = append(p.Days, uint32(d.Day)) //nolint:gosec // a day
		p.DayPlays = append(p.DayPlays, d.Plays)
		p.DayViewers = append(p.DayViewers, d.Viewers)
		p.DayWatchedMs = append(p.DayWatchedMs, d.Watched)
	}
	return encode(dst, p)
}

// ParseRow decodes a row, the zero one if empty. It fails with [history.ErrPermanent].
func ParseRow(b []byte) (r Row, err error) {
	if len(b) == 0 {
		return r, nil
	}
	var p historyv1.CountedRow
	if err := proto.Unmarshal(b, &p); err != nil {
		return r, corrupt("row", b, err)
	}
	n := len(p.GetDays())
	if len(p.GetDayPlays()) != n || len(p.GetDayViewers()) != n || len(p.GetDayWatchedMs()) != n {
		return r, corrupt("row", b, fmt.Errorf("%d days with %d, %d and %d totals", n, len(p.GetDayPlays()), len(p.GetDayViewers()), len(p.GetDayWatchedMs())))
	}
	r = Row{Totals{All: Sum{p.GetPlays(), p.GetViewers(), p.GetWatchedMs()}}, p.GetVersion(), p.GetUsers(), p.GetFull()}
	for i, d := range p.GetDays() {
		if i > 0 && d <= p.GetDays()[i-1] {
			return Row{}, corrupt("row", b, fmt.Errorf("day %d after %d", d, p.GetDays()[i-1]))
		}
		r.Days = append(r.Days, DaySum{history.Day(d), Sum{p.GetDayPlays()[i], p.GetDayViewers()[i], p.GetDayWatchedMs()[i]}})
	}
	return r, nil
}

func encodePlayed(all []history.Played) *historyv1.Played {
	if len(all) == 0 {
		return nil
	}
	p, at := new(historyv1.Played), int64(0)
	for _, e := range all {
		p.LaterMs = append(p.LaterMs, uint64(e.At-at)) //nolint:gosec // ascending
		p.Plays = append(p.Plays, e.Plays)
		p.WatchedMs = append(p.WatchedMs, e.Watched)
		at = e.At
	}
	return p
}

func decodePlayed(p *historyv1.Played) (all []history.Played, err error) {
	n := len(p.GetLaterMs())
	if len(p.GetPlays()) != n || len(p.GetWatchedMs()) != n {
		return nil, fmt.Errorf("%d times with plays of %d and watched time of %d", n, len(p.GetPlays()), len(p.GetWatchedMs()))
	}
	at := int64(0)
	for i, later := range p.GetLaterMs() {
		if later == 0 || later > uint64(maxTime-at) { //nolint:gosec // at is at most maxTime
			return nil, fmt.Errorf("time %d ms after %d", later, at)
		}
		at += int64(later) //nolint:gosec // bounded
		if p.GetPlays()[i] > maxPlays || p.GetWatchedMs()[i] < 0 {
			return nil, fmt.Errorf("%d plays and %d ms at one time", p.GetPlays()[i], p.GetWatchedMs()[i])
		}
		all = append(all, history.Played{At: at, Plays: p.GetPlays()[i], Watched: p.GetWatchedMs()[i]})
	}
	return all, nil
}

// maxTime is later than any report, in Unix milliseconds.
const maxTime = 1 << 43

// maxPlays is more than a user can complete, and keeps sums from overflowing.
const maxPlays = 1 << 31

// encode appends a message by generated code, without reflection.
func encode(dst []byte, m interface {
	SizeVT() int
	MarshalToSizedBufferVT(b []byte) (int, error)
},
) []byte {
	n := m.SizeVT()
	all := slices.Grow(dst, n)[:len(dst)+n]
	if _, err := m.MarshalToSizedBufferVT(all[len(dst):]); err != nil { // never: the buffer is large enough
		panic(fmt.Sprintf("encode %T: %v", m, err))
	}
	return all
}

func corrupt(what string, b []byte, err error) error {
	return fmt.Errorf("%s of %d bytes of counts: %w: %w", what, len(b), history.ErrPermanent, err)
}
