package segment

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// Columns of records. The order is part of the format: only append.
const (
	colTime = iota // decrease from the previous record
	colState
	colType
	colCellTime
	colOriginal
	colDuration
	colDurationVersion
	colPosition
	colResumePointVersion
	colResumePointPosition
	colMetaVersion
	colPlaysBefore
	colPlaysBeforeAt
	colWatchedBefore
	colWatchedBeforeAt
	colRemoved
	colUnknownVersion
	colPeaks
	colPeakAt
	colPeakPosition
	colCompletions
	colCompletionAt
	colCompletionViewing
	colWatches
	colWatchAt
	colWatchViewing
	colWatched
	colViewing
	colID
	colSession   = colID + textColumns
	colDevice    = colSession + textColumns
	colMeta      = colDevice + textColumns
	colUnknown   = colMeta + textColumns
	colDismissed = colUnknown + textColumns
)

// Columns added later.
const (
	colStartAt = colDismissed + 1 + iota
	colStartPosition
	colViewings
	colViewingVersion
	colViewingID
	colViewingPosition
	colViewingState
	colViewingStartAt
	colViewingStartPosition
	colWatchBegan
	colWatchSpeed
	colAtEnd
	colEndLength
	colEndDuration
	colEndPosition
	colEndReach
	colEndBegan
	colEndSure
	colViewingAtEnd
	colLows
	colLowAt
	colLowViewing
	colLowLength
	colLowDuration
	colStarts
	colBeginAt
	colBeginViewing
	colBeginPosition
	colBeginDuration
	recordColumns
)

// maxList bounds a record's lists. The fold keeps fewer.
const maxList = 1024

// head codes the fields that select a record.
func (c *coder) head(o *history.Object, r *history.Record) {
	c.version(&r.Version)
	c.flags(r)
	c.typ(o)
}

// body codes the other fields except the id. It omits the texts of skipped records.
func (c *coder) body(r *history.Record) {
	at := r.Version.Time()
	c.text(1, &r.Session)
	c.text(2, &r.Device)
	meta, unknown := c.text(3, (*string)(&r.Meta)), c.text(4, &r.Unknown)
	c.number(colCellTime, &r.CellTime, at)
	c.rare(colOriginal, (*int64)(&r.Original), int64(r.Version))
	c.number(colDuration, &r.Duration, 0)
	c.versionOf(colDurationVersion, &r.DurationVersion, r.Duration != 0, r.Version)
	c.like(colPosition, &r.Position, r.Duration)
	c.rare(colResumePointVersion, (*int64)(&r.ResumePoint.Version), int64(r.Version))
	c.number(colResumePointPosition, &r.ResumePoint.Position, 0)
	c.versionOf(colMetaVersion, &r.MetaVersion, meta, r.Version)
	c.unsigned(colPlaysBefore, &r.PlaysBefore)
	c.rare(colPlaysBeforeAt, &r.PlaysBeforeAt, at)
	c.number(colWatchedBefore, &r.WatchedBefore, 0)
	c.rare(colWatchedBeforeAt, &r.WatchedBeforeAt, at)
	c.rare(colRemoved, &r.RemovedAt, at)
	c.versionOf(colUnknownVersion, &r.UnknownVersion, unknown, r.Version)
	c.rare(colDismissed, (*int64)(&r.Dismissed), int64(r.Version))
	c.lists(r)
}

// lists codes a record's lists, newest first.
func (c *coder) lists(r *history.Record) {
	c.viewings = append(c.viewings[:0], 0)
	if !c.skips {
		c.viewings[0] = (&history.Event{Session: r.Session, Device: r.Device}).Viewing()
	}
	at := r.Version.Time()
	r.Peaks = list(c, colPeaks, r.Peaks)
	for i := range slices.Backward(r.Peaks) {
		p := &r.Peaks[i]
		at = c.chain(colPeakAt, &p.At, at)
		c.number(colPeakPosition, &p.Position, 0)
	}
	at = r.Version.Time()
	r.Completions = list(c, colCompletions, r.Completions)
	for i := range slices.Backward(r.Completions) {
		p := &r.Completions[i]
		at = c.chain(colCompletionAt, &p.At, at)
		c.viewing(colCompletionViewing, &p.Viewing)
		c.number(colEndLength, &p.Length, 0)
		c.number(colEndDuration, &p.Duration, r.Duration)
		c.like(colEndPosition, &p.Position, p.Duration)
		c.number(colEndReach, &p.Reach, history.ReachOf(p.Position))
		c.rare(colEndBegan, &p.Began, at)
		c.flag(colEndSure, &p.Sure)
	}
	c.watches(r)
	c.sessions(r)
	c.flag(colAtEnd, &r.AtEnd)
	c.lows(r)
	c.starts(r)
}

// lows codes the times at which viewings were below their ends.
func (c *coder) lows(r *history.Record) {
	at := r.Version.Time()
	r.Lows = list(c, colLows, r.Lows)
	for i := range slices.Backward(r.Lows) {
		p := &r.Lows[i]
		at = c.chain(colLowAt, &p.At, at)
		c.viewing(colLowViewing, &p.Viewing)
		c.number(colLowLength, &p.Length, 0)
		c.number(colLowDuration, &p.Duration, r.Duration)
	}
}

// starts codes the starts of viewings.
func (c *coder) starts(r *history.Record) {
	at := r.Version.Time()
	r.Starts = list(c, colStarts, r.Starts)
	for i := range slices.Backward(r.Starts) {
		p := &r.Starts[i]
		at = c.chain(colBeginAt, &p.At, at)
		c.viewing(colBeginViewing, &p.Viewing)
		c.number(colBeginPosition, &p.Position, 0)
		c.number(colBeginDuration, &p.Duration, 0)
	}
}

// flag codes a flag that is usually unset.
func (c *coder) flag(col int, p *bool) {
	n := uint64(0)
	if *p {
		n = 1
	}
	c.unsigned(col, &n)
	*p = n != 0
}

// watches codes the watched times of viewings.
func (c *coder) watches(r *history.Record) {
	at := r.Version.Time()
	r.Watches = list(c, colWatches, r.Watches)
	for i := range slices.Backward(r.Watches) {
		p := &r.Watches[i]
		at = c.chain(colWatchAt, &p.At, at)
		c.viewing(colWatchViewing, &p.Viewing)
		c.number(colWatched, &p.Watched, 0)
		c.number(colWatchBegan, &p.Began, at-p.Watched)
		c.number(colWatchSpeed, &p.Speed, 0)
	}
}

// sessions codes the start of the record's viewing, and its other viewings.
func (c *coder) sessions(r *history.Record) {
	c.rare(colStartAt, &r.Start.At, r.Version.Time())
	c.number(colStartPosition, &r.Start.Position, 0)
	version := int64(r.Version)
	r.Viewings = list(c, colViewings, r.Viewings)
	for i := range slices.Backward(r.Viewings) {
		v := &r.Viewings[i]
		version = c.chain(colViewingVersion, (*int64)(&v.Version), version)
		c.viewing(colViewingID, &v.Viewing)
		c.number(colViewingPosition, &v.Position, 0)
		state := uint64(v.State)
		c.unsigned(colViewingState, &state)
		if v.State = history.State(min(state, math.MaxUint8)); uint64(v.State) != state {
			c.fail("state %d", state)
		}
		c.text(2, &v.Device)
		c.rare(colViewingStartAt, &v.Start.At, version>>2)
		c.number(colViewingStartPosition, &v.Start.Position, v.Position)
		c.flag(colViewingAtEnd, &v.AtEnd)
	}
}

// list codes a list's length and returns the list to code. A skipped record's list is reused.
func list[T any](c *coder, col int, all []T) []T {
	n := uint64(len(all))
	c.unsigned(col, &n)
	switch {
	case !c.decodes:
		return all
	case n > maxList:
		c.fail("a list of %d", n)
		return nil
	case c.skips && uint64(cap(all)) >= n:
		return all[:n]
	case n == 0:
		return nil
	}
	return make([]T, n)
}

// version codes a version's time, which is at most the previous record's. flags adds the rank.
func (c *coder) version(p *history.Version) {
	if c.decodes {
		c.time -= int64(c.get(colTime)) //nolint:gosec // bits
		*p = history.Version(c.time << 2)
		return
	}
	c.put(colTime, uint64(c.time-p.Time())) //nolint:gosec // bits
	c.time = p.Time()
}

// versionOf codes the version of an optional field: if present, usually the record's own.
func (c *coder) versionOf(col int, p *history.Version, present bool, own history.Version) {
	if !present {
		own = 0
	}
	c.number(col, (*int64)(p), int64(own))
}

func (c *coder) typ(o *history.Object) {
	t := uint64(o.Type)
	c.unsigned(colType, &t)
	if o.Type = uint32(t); uint64(o.Type) != t { //nolint:gosec // it is looked at
		c.fail("type %d", t)
	}
}

// flags codes the state, the record's flags and its version's rank.
func (c *coder) flags(r *history.Record) {
	flags := uint64(r.Version)&3 | uint64(r.State)<<5
	all := [...]*bool{&r.Partial, &r.Early, &r.Restored}
	for i, f := range all {
		if *f {
			flags |= 4 << i
		}
	}
	c.unsigned(colState, &flags)
	if !c.decodes {
		return
	}
	if flags>>5 > math.MaxUint8 {
		c.fail("state %d", flags>>5)
	}
	r.Version |= history.Version(flags & 3)   //nolint:gosec // two bits
	r.State = history.State(flags >> 5 & 255) //nolint:gosec // a byte
	for i, f := range all {
		*f = flags&(4<<i) != 0
	}
}

// viewing codes a viewing's id: usually the record's own or one that the record has named before.
func (c *coder) viewing(col int, p *uint64) {
	if c.decodes {
		c.decodeViewing(col, p)
		return
	}
	for i, v := range c.viewings {
		if v == *p {
			c.put(col, uint64(i))
			return
		}
	}
	c.put(col, uint64(len(c.viewings)))
	c.put(colViewing, *p)
	c.viewings = append(c.viewings, *p)
}

func (c *coder) decodeViewing(col int, p *uint64) {
	i := c.get(col)
	switch {
	case i < uint64(len(c.viewings)):
		*p = c.viewings[i]
		return
	case i > uint64(len(c.viewings)):
		c.fail("viewing %d of %d", i, len(c.viewings))
		return
	}
	*p = c.get(colViewing)
	c.viewings = append(c.viewings, *p)
}

// valid reports why no store can hold a record.
func valid(o history.Object, r *history.Record) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if max(len(r.Peaks), len(r.Completions), len(r.Watches), len(r.Viewings), len(r.Lows), len(r.Starts)) > maxList {
		return history.Invalid("record", fmt.Sprintf("want at most %d peaks, completions, watches, viewings, stays and starts", maxList))
	}
	if !utf8.ValidString(r.Session) || !utf8.ValidString(r.Device) || slices.ContainsFunc(r.Viewings, func(v history.Viewing) bool { return !utf8.ValidString(v.Device) }) {
		return history.Invalid("record", "want a session and a device in UTF-8")
	}
	if r.Meta == "" && r.Unknown == "" {
		return nil
	}
	again, err := wire.Record([]byte(string(r.Meta) + r.Unknown))
	if err != nil || again.Meta != r.Meta || again.Unknown != r.Unknown {
		return history.Invalid("record", "want metadata and unknown fields as a store has them")
	}
	return nil
}

func recordCoder() *coder {
	return newCoder(recordColumns, colID, colSession, colDevice, colMeta, colUnknown)
}
