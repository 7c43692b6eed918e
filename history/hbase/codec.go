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
	lateFamily      = "late" // records that were old when put
	markAll         = "#cleared"
	markPrefix      = markAll + ":"
	pauseColumn     = "#paused"
	compactedColumn = "#compacted" // cell time: version of the segments, plus [future]
	cutColumn       = "#cut"       // cell time: cut time of removed segments, plus [future]
	maxRegions      = 256
)

// splitKeys returns the n-1 keys that split the two-digit prefixes of rows into n even regions.
func splitKeys(n int) [][]byte {
	var keys [][]byte
	for i := 1; i < n; i++ {
		keys = append(keys, fmt.Appendf(nil, "%02x", i*maxRegions/n))
	}
	return keys
}

// markColumn returns the column of the clear mark of a type; 0 means all types.
func markColumn(typ uint32) string {
	if typ == 0 {
		return markAll
	}
	return markPrefix + strconv.FormatUint(uint64(typ), 10)
}

// future is added to the cell times of marks and pauses, 100 years in milliseconds. The TTL never expires them, and
// the delete up to a mark's time spares the mark.
const future = 100 * 365 * 24 * 3600 * 1000

// markTime returns the cell time of a clear mark; the later mark wins.
func markTime(at int64) uint64 { return uint64(at + future) }

// pauseTime returns the cell time of a pause; the last change wins, unless two changes have the same time.
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

// columnOf returns the column of a damaged cell: the object's, or the pause's.
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

// lateColumn returns an object's column in the late family. It includes the period of the put, so no put reaches it
// after the period. No object contains NUL.
func lateColumn(o history.Object, period int64) string {
	return o.String() + "\x00" + strconv.FormatInt(period, 10)
}

// contents holds the cells of a user's row before clear marks are applied.
type contents struct {
	uid       string
	peeks     bool  // decode records lazily
	since     int64 // earlier records had expired when the retention was last changed; HBase may show them again
	cleared   map[uint32]int64
	pause     history.Pause
	compacted uint64 // a lower bound of the segments' version, 0 without segments.
	index     []byte // Chunk index of that version, see [segment.ParseIndex]; nil from older processes.
	cut       int64  // Latest cell time of cleared records in segments.
	late      bool   // an object may have several columns
	foreign   int64  // Earliest cell time of a foreign column; 0 without any.
	objects   []content
	damaged   []history.Damage // the user's own cells
}

// content is the cell of an object: a record or damage. An undecoded record has only its version and value.
type content struct {
	object  history.Object
	late    string // column in the late family, if any
	record  *history.Record
	at      int64
	damage  *history.DamageError
	lost    int64                // cell time of another, damaged cell of the object
	beside  *history.DamageError // damage of that cell
	value   []byte               // undecoded record
	version history.Version
}

// contents returns the empty contents of a user.
func (a *Archive) contents(uid string) contents {
	return contents{uid: uid, since: a.config.Rules.Life(uid).Since}
}

func (c *contents) addContent(one content) {
	if one.damage != nil || one.version.Time() >= c.since {
		c.objects = append(c.objects, one)
	}
}

// add parses cells. Of foreign columns it only remembers the time.
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
			c.addContent(c.content(o, cell.Value, at))
		} else if c.foreign == 0 || at < c.foreign {
			c.foreign = at
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
		c.addContent(one)
	}
}

// resolve keeps one content per object. Damaged cells are always reported, and win only without a readable cell.
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

// later returns the winner of two contents of an object, see [segment.Resolve].
func (c *contents) later(a, b content) content {
	if a.at == b.at {
		a, b = c.decoded(a), c.decoded(b)
	}
	if a.damage != nil || b.damage == nil && b.at > a.at {
		a, b = b, a // b loses
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

// decoded decodes a record unless that is done.
func (c *contents) decoded(o content) content {
	if o.record != nil || o.damage != nil {
		return o
	}
	d := decode(history.Key{UID: c.uid, Object: o.object}, o.value, o.at)
	d.late, d.lost, d.beside = o.late, o.lost, o.beside
	return d
}

// content returns the cell of an object, undecoded if c.peeks.
func (c *contents) content(o history.Object, value []byte, at int64) content {
	if c.peeks {
		if v := wire.Peek(value).Version; v.Time() > 0 {
			return content{object: o, at: at, value: value, version: v}
		}
	}
	return decode(history.Key{UID: c.uid, Object: o}, value, at)
}

// addPause treats an unreadable pause as still on: nothing is recorded until the next switch.
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

// decode decodes the cell of an object. The cell's own time wins over the one in the value.
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

// after applies the clear marks. It returns the remaining record, and the cell time if nothing remains, otherwise
// 0.
func (c *content) after(u *history.User) (r *history.Record, cut int64) {
	if r = c.record.After(u.ClearedAt(c.object.Type)); r == nil {
		cut = c.at
	}
	return r, cut
}

// page applies the clear marks and decodes the records of the query. segments is nil for a user without segments.
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

// items decodes contents. Damaged ones are reported in p and skipped.
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

// stitch merges live items with segments.
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

// hidden returns an upper bound of the segment records that live records may hide from a query.
func (c *contents) hidden(q history.Query) (n int) {
	for i := range c.objects {
		if q.Type == 0 || q.Type == c.objects[i].object.Type {
			n++
		}
	}
	return n
}

// cutIn returns an upper bound of the cell times of cleared records in segments. It takes the latest cell time
// of every chunk with a record before a clear mark.
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

// addSegments adds the objects' records from segments. segments is nil if all have expired.
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

// entries returns each object's record with the clear marks that apply to it.
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

// entry returns an entry without a record for an object of the type.
func (c *contents) entry(typ uint32) (e history.Entry) {
	e.User.CutTime, e.User.Pause = c.cut, c.pause
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
