package segment

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Texts of a record. The last one has the fields without a column, as history/wire encodes them.
const (
	textID = iota
	textSession
	textDevice
	textOthers
	recordTexts
)

// Columns of a record, after the lengths of its texts.
const (
	colTime = recordTexts + iota // decrease from the record before
	colFlags
	colType
	colCellTime
	colDuration
	colDurationVersion
	colPosition
	colStartAt
	colStartPosition
	recordColumns
)

func recordCoder() *coder { return newCoder(recordColumns, recordTexts) }

// record codes the fields with columns. head has those that select a record.
func (c *coder) record(o *history.Object, r *history.Record) {
	c.head(o, r)
	at, own := r.Version.Time(), r.Version
	c.text(textID, &o.ID)
	c.text(textSession, &r.Session)
	c.text(textDevice, &r.Device)
	c.number(colCellTime, &r.CellTime, at)
	c.number(colDuration, &r.Duration, 0)
	if r.Duration == 0 {
		own = 0
	}
	c.number(colDurationVersion, (*int64)(&r.DurationVersion), int64(own))
	c.number(colPosition, &r.Position, r.Duration)
	c.rare(colStartAt, &r.Start.At, at)
	c.number(colStartPosition, &r.Start.Position, 0)
}

func (c *coder) head(o *history.Object, r *history.Record) {
	c.version(&r.Version)
	c.flags(r)
	c.typ(colType, o)
}

func (c *coder) typ(col int, o *history.Object) {
	t := uint64(o.Type)
	c.unsigned(col, &t)
	if o.Type = uint32(t); uint64(o.Type) != t { //nolint:gosec // it is looked at
		c.fail("type %d", t)
	}
}

// flags codes the version's rank, the record's flags and its state.
func (c *coder) flags(r *history.Record) {
	flags := uint64(r.Version)&3 | uint64(r.State)<<6
	all := [...]*bool{&r.Partial, &r.Early, &r.Restored, &r.AtEnd}
	for i, f := range all {
		if *f {
			flags |= 4 << i
		}
	}
	c.unsigned(colFlags, &flags)
	if !c.decodes {
		return
	}
	if flags>>6 > math.MaxUint8 {
		c.fail("state %d", flags>>6)
	}
	r.Version |= history.Version(flags & 3)   //nolint:gosec // two bits
	r.State = history.State(flags >> 6 & 255) //nolint:gosec // a byte
	for i, f := range all {
		*f = flags&(4<<i) != 0
	}
}

// encode appends a record.
func (c *coder) encode(it history.Item) {
	o, r := it.Object, *it.Record // records are shared
	c.record(&o, &r)
	others := othersOf(r)
	c.text(textOthers, &others)
}

// decode returns the record of the current row.
func (c *coder) decode() (it history.Item, err error) {
	it.Record = new(history.Record)
	if c.record(&it.Object, it.Record); c.err != nil {
		return history.Item{}, c.err
	}
	if others := c.bytes(textOthers); len(others) > 0 {
		if err := wire.Fields(it.Record, others); err != nil {
			return history.Item{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		relative(it.Record)
	}
	if err := storable(it.Object, it.Record); err != nil {
		return history.Item{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return it, nil
}

// othersOf returns the encoded fields of r without a column. The encoding of the others comes before them.
func othersOf(r history.Record) string {
	r.Completions, r.Watches, r.Starts = slices.Clone(r.Completions), slices.Clone(r.Watches), slices.Clone(r.Starts)
	r.Peaks, r.Viewings = slices.Clone(r.Peaks), slices.Clone(r.Viewings)
	relative(&r)
	start := len(wire.AppendRecord(nil, front(&r)))
	f := front(&r)
	r.Revision, r.CellTime, r.DurationVersion, r.Start = f.Revision, f.CellTime, f.DurationVersion, f.Start
	r.Partial, r.Early, r.Restored, r.AtEnd = false, false, false, false
	return string(wire.AppendRecord(nil, &r)[start:])
}

// front returns a record of the fields to which the encoding of other fields refers. They are encoded first.
func front(r *history.Record) *history.Record {
	return &history.Record{
		Version: r.Version, CellTime: r.Version.Time(), State: r.State, Position: r.Position,
		Duration: r.Duration, DurationVersion: r.Version, Session: r.Session, Device: r.Device,
	}
}

// relative turns times in lists into distances to the latest event, and the latest event's viewing into 0. Both take
// fewer bytes. Called twice, it restores the lists. It does not change stays below the end: their encoding is
// relative already.
func relative(r *history.Record) {
	at, own := r.Version.Time(), (&history.Event{Session: r.Session, Device: r.Device}).Viewing()
	for i := range r.Completions {
		c := &r.Completions[i]
		c.Began = moved(c.Began, at-2*c.At)
		c.At, c.Viewing = at-c.At, c.Viewing^own
	}
	for i := range r.Watches {
		w := &r.Watches[i]
		w.Began += at - 2*w.At
		w.At, w.Viewing = at-w.At, w.Viewing^own
	}
	for i := range r.Starts {
		s := &r.Starts[i]
		s.At, s.Viewing = at-s.At, s.Viewing^own
	}
	for i := range r.Peaks {
		r.Peaks[i].At = at - r.Peaks[i].At
	}
	for i := range r.Viewings {
		r.Viewings[i].Version = r.Version - r.Viewings[i].Version
	}
}

// moved adds to a time, but keeps 0, which means none. Subtracting the same restores every time.
func moved(t, by int64) int64 {
	switch t {
	case 0:
		return 0
	case -by:
		return by
	}
	return t + by
}

// maxList bounds a record's lists. The fold keeps fewer.
const maxList = 1024

// valid reports why no store can hold a record.
func valid(o history.Object, r *history.Record) error {
	if err := storable(o, r); err != nil || r.Meta == "" && r.Unknown == "" {
		return err
	}
	again, err := wire.Record([]byte(string(r.Meta) + r.Unknown))
	if err != nil || again.Meta != r.Meta || again.Unknown != r.Unknown {
		return history.Invalid("record", "want metadata and unknown fields as a store has them")
	}
	return nil
}

// storable is valid for a record whose metadata and unknown fields have just been decoded.
func storable(o history.Object, r *history.Record) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if max(len(r.Peaks), len(r.Completions), len(r.Watches), len(r.Viewings), len(r.Lows), len(r.Starts)) > maxList {
		return history.Invalid("record", fmt.Sprintf("want at most %d peaks, completions, watches, viewings, stays and starts", maxList))
	}
	if !utf8.ValidString(r.Session) || !utf8.ValidString(r.Device) || slices.ContainsFunc(r.Viewings, func(v history.Viewing) bool { return !utf8.ValidString(v.Device) }) {
		return history.Invalid("record", "want a session and a device in UTF-8")
	}
	return nil
}
