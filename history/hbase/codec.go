package hbase

import (
	"fmt"
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

// markTime is the cell time of a clear mark: just above the time that it clears,
// so that the delete of everything up to that time leaves the mark.
func markTime(at int64) uint64 { return uint64(at) + 1 }

// pauseAhead is how far in the future the cell of a pause is, in milliseconds: a
// hundred years. However long the user stays away, the table does not forget it.
const pauseAhead = 100 * 365 * 24 * 3600 * 1000

// pauseTime is the cell time of a pause: the one that was changed last stays.
func pauseTime(p history.Pause) uint64 { return uint64(p.Changed() + pauseAhead) }

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

// add adds to a row what the cells say. Columns that are neither objects nor marks
// are someone else's and left out.
func add(row *history.Row, uid string, cells []*hrpc.Cell) error {
	for _, c := range cells {
		column := string(c.Qualifier)
		if column == pauseColumn {
			p, err := parsePause(c.Value)
			if err != nil {
				return fmt.Errorf("%s, pause: %w: %w", uid, history.ErrPermanent, err)
			}
			row.Pause = p
		} else if typ, ok := parseMark(column); ok {
			if row.Cleared == nil {
				row.Cleared = map[uint32]int64{}
			}
			row.Cleared[typ] = int64(*c.Timestamp) - 1
		} else if o, err := history.ParseObject(column); err == nil {
			r, err := wire.Record(c.Value)
			if err != nil {
				return fmt.Errorf("%s/%s: %w: %w", uid, o, history.ErrPermanent, err)
			}
			row.Items = append(row.Items, history.Item{Object: o, Record: r})
		}
	}
	return nil
}

// visible applies the marks of a row to its items.
func visible(row history.Row) history.Row {
	u, left := history.User{Cleared: row.Cleared}, row.Items[:0]
	for _, item := range row.Items {
		item.Record = item.Record.After(u.ClearedAt(item.Object.Type))
		if item.Record != nil {
			left = append(left, item)
		}
	}
	row.Items = left
	return row
}
