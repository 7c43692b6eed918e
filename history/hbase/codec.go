package hbase

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/segment"
	"github.com/playhead/playhead/history/wire"
)

const (
	family          = "info"
	lateFamily      = "late" // of records that were old when they were put
	markAll         = "#cleared"
	markPrefix      = markAll + ":"
	pauseColumn     = "#paused"
	compactedColumn = "#compacted" // its cell time is the version of the segments, in the future as that of marks
	cutColumn       = "#cut"       // its cell time is the cut time of what segments had, in the future too
	maxRegions      = 256
)

// splitKeys returns the n-1 keys that divide the two hexadecimal digits which begin
// every row into n even regions.
func splitKeys(n int) [][]byte {
	var keys [][]byte
	for i := 1; i < n; i++ {
		keys = append(keys, fmt.Appendf(nil, "%02x", i*maxRegions/n))
	}
	return keys
}

// markColumn returns the column of the clear mark of a type, 0 for all.
func markColumn(typ uint32) string {
	if typ == 0 {
		return markAll
	}
	return markPrefix + strconv.FormatUint(uint64(typ), 10)
}

// future is how far in the future the cells of marks and pauses are, in milliseconds: a
// hundred years. However long the user stays away, the table does not forget them, and
// the delete of everything up to a mark's time leaves the mark.
const future = 100 * 365 * 24 * 3600 * 1000

// markTime is the cell time of a clear mark: of two marks the later one stays.
func markTime(at int64) uint64 { return uint64(at + future) }

// pauseTime is the cell time of a pause: of two that were not changed at one moment the one that was changed last stays.
func pauseTime(p history.Pause) uint64 { return uint64(p.Changed() + future) }

func pauseValue(p history.Pause) []byte {
	value := strconv.AppendInt(append(strconv.AppendInt(nil, p.Since, 10), ' '), p.Until, 10)
	if p.Earlier != "" {
		value = append(append(value, ' '), p.Earlier...)
	}
	return value
}

// parsePause is the inverse of pauseValue.
func parsePause(value []byte) (p history.Pause, err error) {
	since, rest, _ := strings.Cut(string(value), " ")
	until, earlier, _ := strings.Cut(rest, " ")
	if p.Earlier = history.Pauses(earlier); !p.Earlier.Valid() {
		return p, fmt.Errorf("%q: %w", earlier, errNoPauses)
	}
	if p.Since, err = strconv.ParseInt(since, 10, 64); err == nil {
		p.Until, err = strconv.ParseInt(until, 10, 64)
	}
	return p, err
}

// columnOf returns the column of damage: an object's, or that of the pause.
func columnOf(o history.Object) string {
	if o == (history.Object{}) {
		return pauseColumn
	}
	return o.String()
}

// parseMark is the inverse of markColumn.
func parseMark(column string) (typ uint32, ok bool) {
	if column == markAll {
		return 0, true
	}
	text, ok := strings.CutPrefix(column, markPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && markColumn(uint32(n)) == column
}

// lateColumn returns the column of an object in the late family: it also names the period of the put,
// so that nothing more is put into it once the period is over. NUL is in no object.
func lateColumn(o history.Object, period int64) string {
	return o.String() + "\x00" + strconv.FormatInt(period, 10)
}

// contents is what the cells of a user's row hold, before the clear marks are applied.
type contents struct {
	uid       string
	peeks     bool // a cell is decoded when it is needed
	cleared   map[uint32]int64
	pause     history.Pause
	compacted uint64 // the version of the segments, or an earlier one, 0 for none
	index     []byte // of the segments of that version, see [segment.ParseIndex]; nil from processes of before
	cut       int64  // the latest cell time of what was cleared in segments
	late      bool   // an object may have several columns
	objects   []content
	damaged   []history.Damage // of the user's own
}

// content is the cell of an object: a record, or damage. A record that is only to be ordered is not
// decoded yet, and has its version.
type content struct {
	object  history.Object
	late    string // the column, where it is in the late family
	record  *history.Record
	at      int64
	damage  *history.DamageError
	lost    int64                // the cell time of a damaged cell of the object, beside this one
	beside  *history.DamageError // and what it holds
	value   []byte               // where it is not decoded
	version history.Version
}

// add adds what the cells say. Columns that are neither objects nor marks are someone
// else's and left out.
func (c *contents) add(cells []*hrpc.Cell) {
	c.objects = slices.Grow(c.objects, len(cells))
	for _, cell := range cells {
		column, at := string(cell.Qualifier), int64(*cell.Timestamp)
		if string(cell.Family) == lateFamily {
			c.addLate(column, cell.Value, at)
		} else if column == pauseColumn {
			c.addPause(cell.Value, at)
		} else if column == compactedColumn && at > future {
			c.addCompacted(uint64(at-future), cell.Value) //nolint:gosec // a version
		} else if column == cutColumn && at > future {
			c.cut = at - future
		} else if typ, ok := parseMark(column); ok && at > future {
			if c.cleared == nil {
				c.cleared = map[uint32]int64{}
			}
			c.cleared[typ] = at - future
		} else if o, err := history.ParseObject(column); err == nil {
			c.objects = append(c.objects, c.content(o, cell.Value, at))
		}
	}
}

func (c *contents) addCompacted(version uint64, index []byte) {
	if version >= c.compacted {
		c.compacted, c.index = version, index
	}
}

func (c *contents) addLate(column string, value []byte, at int64) {
	text, _, _ := strings.Cut(column, "\x00")
	if o, err := history.ParseObject(text); err == nil {
		one := c.content(o, value, at)
		one.late, c.late = column, true
		c.objects = append(c.objects, one)
	}
}

// resolve leaves of each object the content that counts. A cell that cannot be read counts where
// there is no other, and is named in any case.
func (c *contents) resolve() {
	if !c.late {
		return
	}
	c.late = false
	at := make(map[history.Object]int, len(c.objects))
	kept := c.objects[:0]
	for _, o := range c.objects {
		if i, again := at[o.object]; again {
			kept[i] = c.later(kept[i], o)
			continue
		}
		at[o.object] = len(kept)
		kept = append(kept, o)
	}
	c.objects = kept
}

// later returns which of two contents of an object counts, see [segment.Resolve].
func (c *contents) later(a, b content) content {
	if a.at == b.at {
		a, b = c.decoded(a), c.decoded(b)
	}
	if a.damage != nil || b.damage == nil && b.at > a.at {
		a, b = b, a // b gives way
	}
	if b.damage != nil {
		c.damaged = append(c.damaged, b.damaged())
		a.lost, a.beside = max(a.lost, b.lost, b.at), b.damage
	} else if a.at == b.at {
		a.record = segment.Resolve(a.record, b.record)
		a.version = a.record.Version
	}
	a.lost, a.beside = max(a.lost, b.lost), cmp.Or(a.beside, b.beside)
	return a
}

// decoded decodes what is not.
func (c *contents) decoded(o content) content {
	if o.record != nil || o.damage != nil {
		return o
	}
	d := decode(history.Key{UID: c.uid, Object: o.object}, o.value, o.at)
	d.late, d.lost, d.beside = o.late, o.lost, o.beside
	return d
}

// content returns the cell of an object, not decoded where that is not needed yet.
func (c *contents) content(o history.Object, value []byte, at int64) content {
	if c.peeks {
		if v := wire.Peek(value).Version; v.Time() > 0 {
			return content{object: o, at: at, value: value, version: v}
		}
	}
	return decode(history.Key{UID: c.uid, Object: o}, value, at)
}

// addPause takes a pause that cannot be read for one that still lasts: nothing is recorded
// of the user until the pause is switched again.
func (c *contents) addPause(value []byte, at int64) {
	var err error
	if c.pause, err = parsePause(value); err == nil {
		return
	}
	c.pause = history.Pause{Since: max(at-future, 0)}
	damage := &history.DamageError{Key: history.UserKey(c.uid), Bytes: value, Cause: fmt.Errorf("pause: %w", err)}
	c.damaged = append(c.damaged, history.Damage{Bytes: value, Err: damage})
}

var errNoPauses = errors.New("want since and until of each earlier pause")

var errNoRecord = errors.New("no record with an event time")

// decode reads the cell of an object. It is ordered by the time of the cell, also
// where its value has another one.
func decode(k history.Key, value []byte, at int64) content {
	r, err := wire.Record(value)
	if err == nil && (r == nil || r.Version.Time() <= 0) {
		err = errNoRecord
	}
	if err != nil {
		return content{object: k.Object, at: at, damage: &history.DamageError{Key: k, Bytes: value, Cause: err}}
	}
	r.CellTime = at
	return content{object: k.Object, record: r, at: at, version: r.Version}
}

// after returns what the clear marks leave of the record, and the cell time of what
// they hide of the object, 0 without such.
func (c *content) after(u *history.User) (r *history.Record, cut int64) {
	if r = c.record.After(u.ClearedAt(c.object.Type)); r == nil {
		cut = c.at
	}
	return r, cut
}

// page applies the marks to all that there is, and decodes what the query asks for. The segments are nil
// for a user who has none.
func (c *contents) page(q history.Query, segments *segment.Reader) (history.Page, error) {
	c.resolve()
	u := history.User{Cleared: c.cleared, Pause: c.pause, CutTime: max(c.cut, cutIn(segments, c.cleared))}
	p := history.Page{Damaged: c.damaged}
	var asked []content
	for _, o := range c.objects {
		u.CutTime = max(u.CutTime, o.lost)
		switch {
		case o.damage != nil:
			u.CutTime = max(u.CutTime, o.at)
			p.Damaged = append(p.Damaged, o.damaged())
		case o.version.Time() <= u.ClearedAt(o.object.Type):
			u.CutTime = max(u.CutTime, o.at)
		default:
			if q.Wants(o.place()) {
				asked = append(asked, o)
			}
		}
	}
	slices.SortFunc(asked, func(a, b content) int { return a.place().Compare(b.place()) })
	if p.User = u; q.After != (history.Cursor{}) {
		p.Damaged = nil
	}
	if q.Limit <= 0 {
		return p, nil
	}
	for it, err := range c.stitch(c.items(asked, &p), q, segments) {
		if err != nil {
			return p, err
		}
		if it.Record = it.Record.After(u.ClearedAt(it.Object.Type)); it.Record == nil {
			continue
		}
		if len(p.Items) == q.Limit {
			p.More = true
			break
		}
		p.Items = append(p.Items, it)
	}
	return p, nil
}

// items yields contents, decoded. Those that cannot be read are left out and named.
func (c *contents) items(asked []content, p *history.Page) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) {
		for _, o := range asked {
			if o = c.decoded(o); o.damage != nil {
				p.User.CutTime = max(p.User.CutTime, o.at)
				p.Damaged = append(p.Damaged, o.damaged())
			} else if !yield(history.Item{Object: o.object, Record: o.record}, nil) {
				return
			}
		}
	}
}

// stitch yields live items together with those of segments.
func (c *contents) stitch(live iter.Seq2[history.Item, error], q history.Query, segments *segment.Reader) iter.Seq2[history.Item, error] {
	if segments == nil {
		return live
	}
	segments.Hidden = c.hidden(q)
	at := make(map[history.Object]int, len(c.objects))
	for i, o := range c.objects {
		at[o.object] = i
	}
	get := func(o history.Object) (*history.Record, error) {
		if i, ok := at[o]; ok {
			return c.decoded(c.objects[i]).record, nil
		}
		return nil, nil
	}
	return segment.Stitch(segment.Live{Items: live, Get: get}, segments, q)
}

// hidden returns how many records of a query in segments the live segment may hide: those of which it has the object.
func (c *contents) hidden(q history.Query) (n int) {
	for i := range c.objects {
		if q.Type == 0 || q.Type == c.objects[i].object.Type {
			n++
		}
	}
	return n
}

// cutIn returns the cut time of what clear marks hide in segments, or a little more: that of all in each
// chunk where they may hide something.
func cutIn(segments *segment.Reader, cleared map[uint32]int64) (cut int64) {
	if segments == nil {
		return 0
	}
	at := int64(0)
	for _, until := range cleared {
		at = max(at, until)
	}
	for _, i := range segments.Chunks {
		if i.Oldest.Time() <= at {
			cut = max(cut, i.CellTime)
		}
	}
	return cut
}

// addSegments adds what segments have of objects. They are nil where all that they had has expired.
func (c *contents) addSegments(objects []history.Object, segments *segment.Reader) error {
	c.resolve()
	if segments == nil {
		return nil
	}
	at := make(map[history.Object]int, len(c.objects))
	for i, o := range c.objects {
		at[o.object] = i
	}
	live := make([]*history.Record, len(objects))
	for n, o := range objects {
		if i, ok := at[o]; ok {
			live[n] = c.objects[i].record
		}
	}
	found, err := segments.Find(objects, live)
	if err != nil {
		return err
	}
	c.cut = max(c.cut, cutIn(segments, c.cleared))
	for n, o := range objects {
		r := segment.Resolve(live[n], found[n])
		if r == nil || r == live[n] {
			continue
		}
		one := content{object: o, record: r, at: r.CellTime, version: r.Version}
		if i, ok := at[o]; ok {
			c.objects[i] = c.later(one, c.objects[i])
		} else {
			at[o] = len(c.objects)
			c.objects = append(c.objects, one)
		}
	}
	return nil
}

func (c *content) place() history.Cursor {
	return history.Cursor{Version: c.version, Object: c.object}
}

func (c *content) damaged() history.Damage {
	return history.Damage{Object: c.object, Bytes: c.damage.Bytes, Err: c.damage}
}

// entries returns by object what there is, with the marks that apply to it.
func (c *contents) entries() map[history.Object]history.Entry {
	c.resolve()
	found := make(map[history.Object]history.Entry, len(c.objects))
	for _, o := range c.objects {
		e := c.entry(o.object.Type)
		r, cut := o.after(&e.User)
		e.Record, e.User.CutTime = r, max(e.User.CutTime, cut, o.lost)
		if damage := cmp.Or(o.damage, o.beside); damage != nil {
			e.Err = damage
		}
		found[o.object] = e
	}
	return found
}

// entry returns that there is nothing of an object of the type.
func (c *contents) entry(typ uint32) (e history.Entry) {
	e.User.CutTime = c.cut
	for _, t := range []uint32{0, typ} {
		if at := c.cleared[t]; at > 0 {
			if e.User.Cleared == nil {
				e.User.Cleared = map[uint32]int64{}
			}
			e.User.Cleared[t] = at
		}
	}
	return e
}
