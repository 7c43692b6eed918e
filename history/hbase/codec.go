package hbase

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

const (
	family      = "info"
	markAll     = "#cleared"
	markPrefix  = markAll + ":"
	pauseColumn = "#paused"
	maxRegions  = 256
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
	return strconv.AppendInt(append(strconv.AppendInt(nil, p.Since, 10), ' '), p.Until, 10)
}

// parsePause is the inverse of pauseValue.
func parsePause(value []byte) (p history.Pause, err error) {
	since, until, _ := strings.Cut(string(value), " ")
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

// contents is what the cells of a user's row hold, before the clear marks are applied.
type contents struct {
	uid     string
	peeks   bool // a cell is decoded when it is needed
	cleared map[uint32]int64
	pause   history.Pause
	objects []content
	damaged []history.Damage // of the user's own
}

// content is the cell of an object: a record, or damage. A record that is only to be ordered is not
// decoded yet, and has its version.
type content struct {
	object  history.Object
	record  *history.Record
	at      int64
	damage  *history.DamageError
	value   []byte // where it is not decoded
	version history.Version
}

// add adds what the cells say. Columns that are neither objects nor marks are someone
// else's and left out.
func (c *contents) add(cells []*hrpc.Cell) {
	for _, cell := range cells {
		column, at := string(cell.Qualifier), int64(*cell.Timestamp)
		if column == pauseColumn {
			c.addPause(cell.Value, at)
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

// page applies the marks to all that there is, and decodes what the query asks for.
func (c *contents) page(q history.Query) history.Page {
	u := history.User{Cleared: c.cleared, Pause: c.pause}
	p := history.Page{Damaged: c.damaged}
	var asked []content
	for _, o := range c.objects {
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
	if q.After != (history.Cursor{}) {
		p.Damaged = nil
	}
	for _, o := range asked {
		if len(p.Items) >= q.Limit {
			p.More = q.Limit > 0
			break
		}
		if o.record == nil {
			o = decode(history.Key{UID: c.uid, Object: o.object}, o.value, o.at)
		}
		if o.damage != nil {
			u.CutTime = max(u.CutTime, o.at)
			p.Damaged = append(p.Damaged, o.damaged())
		} else if r := o.record.After(u.ClearedAt(o.object.Type)); r != nil {
			p.Items = append(p.Items, history.Item{Object: o.object, Record: r})
		}
	}
	p.User = u
	return p
}

func (c *content) place() history.Cursor {
	return history.Cursor{Version: c.version, Object: c.object}
}

func (c *content) damaged() history.Damage {
	return history.Damage{Object: c.object, Bytes: c.damage.Bytes, Err: c.damage}
}

// entries returns by object what there is, with the marks that apply to it.
func (c *contents) entries() map[history.Object]history.Entry {
	found := make(map[history.Object]history.Entry, len(c.objects))
	for _, o := range c.objects {
		e := c.entry(o.object.Type)
		e.Record, e.User.CutTime = o.after(&e.User)
		if o.damage != nil {
			e.Err = o.damage
		}
		found[o.object] = e
	}
	return found
}

// entry returns that there is nothing of an object of the type.
func (c *contents) entry(typ uint32) (e history.Entry) {
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
