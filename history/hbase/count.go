package hbase

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tsuna/gohbase/hrpc"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
	"github.com/playhead/playhead/internal/run"
)

// Counters implements [count.Counters] in a table of its own. An object's row has the totals, and a mark of each user.
// A check-and-put on the totals changes both. A row with [countUsers] users is full: further users go to one of
// 63 more rows, by their hash. A row of each user has the objects with marks, for erasures; see DESIGN.md.
type Counters struct{ *Archive }

var _ count.Counters = (*Counters)(nil)

// Counters returns the counters beside the archive. [Config.Counts] must be set.
func (a *Archive) Counters() *Counters { return &Counters{a} }

const (
	countFamily  = "total" // without a TTL
	countColumn  = "v"
	markFamily   = "mark"
	erasedColumn = "*" // of a user's row; no object has this text
	// markMargin is how much longer HBase keeps marks than records live, in seconds.
	markMargin = (count.Margin + 24*3600*1000) / 1000
	// objectsAtOnce limits concurrent objects.
	objectsAtOnce = 32
	// usersOfRow is the default number of users of an object's first row.
	usersOfRow = 10_000
	// maxCountTries limits check-and-puts of a row that others change. They end soon: an object has one owner at a time.
	maxCountTries = 20
)

// countShape is the shape of the table of counters.
func countShape(c Config, keep int64) shape {
	life := min(int(keep/1000)+markMargin, history.Forever/1000)
	return shape{name: c.Table + "_counts", families: []string{markFamily, countFamily}, lives: []int{life}, forever: countFamily}
}

// countRow is a row of an object: the first, or one by the user's hash. Both digits differ, so that the rows of a hot
// object are spread over the regions.
func countRow(o history.Object, n int) []byte {
	text := o.String()
	sum := md5.Sum([]byte(text))
	return fmt.Appendf(nil, "%02xo%s\x00%02d", sum[0]+byte(n)*4, text, n) //nolint:gosec // 64 rows, around all digits
}

// countUserRow is the row of a user's objects.
func countUserRow(uid string) []byte {
	row := history.RowKey(uid)
	return []byte(row[:digitsEnd] + "u" + row[digitsEnd:])
}

// shareOf returns the row of a user of an object whose first row is full.
func shareOf(uid string) int {
	return 1 + int(history.BucketOf(uid))%(count.MaxRows-1)
}

// Count implements [count.Counters].
func (c *Counters) Count(ctx context.Context, statements []count.Statement) []count.Result {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	results := make([]count.Result, len(statements))
	now, err := c.expiry()
	if err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	byObject := make(map[history.Object][]int)
	for i := range statements {
		results[i].Rows = 1
		byObject[statements[i].Object] = append(byObject[statements[i].Object], i)
	}
	var g errgroup.Group
	g.SetLimit(objectsAtOnce)
	for o, indexes := range byObject {
		g.Go(func() error {
			j := counting{Counters: c, object: o, at: now, statements: statements, results: results}
			if err := j.run(ctx, indexes); err != nil {
				for _, i := range indexes {
					if !results[i].Counted {
						results[i].Err = fmt.Errorf("count %s: %w", o, err)
					}
				}
			}
			return nil
		})
	}
	_ = g.Wait() // each result has its own error
	return results
}

// expiry returns the time by which records expire.
func (c *Counters) expiry() (int64, error) {
	if !c.prepared.Load() {
		return 0, fmt.Errorf("%w: hbase has not answered yet", history.ErrUnavailable)
	}
	at, err := c.config.Horizon()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", history.ErrUnavailable, err)
	}
	return at.UnixMilli(), nil
}

// counting counts the statements of one object.
type counting struct {
	*Counters
	object     history.Object
	at         int64 // the time by which records expire
	statements []count.Statement
	results    []count.Result
}

// run counts in the first row what belongs there, and the rest in the others.
func (j *counting) run(ctx context.Context, indexes []int) error {
	elsewhere, err := j.inRow(ctx, 0, indexes)
	if err != nil {
		return err
	}
	byShare := make(map[int][]int)
	for _, i := range elsewhere {
		share := shareOf(j.statements[i].UID)
		byShare[share] = append(byShare[share], i)
	}
	for _, share := range slices.Sorted(maps.Keys(byShare)) {
		if _, err := j.inRow(ctx, share, byShare[share]); err != nil {
			return err
		}
	}
	return nil
}

// inRow counts statements in one row. It returns those of users that belong elsewhere, because the row is full.
func (j *counting) inRow(ctx context.Context, n int, indexes []int) (elsewhere []int, err error) {
	uids := make(map[string]bool)
	for _, i := range indexes {
		uids[j.statements[i].UID] = true
	}
	err = untilWon(ctx, func() (won bool, err error) {
		r, err := j.read(ctx, countRow(j.object, n), slices.Sorted(maps.Keys(uids)))
		if err != nil {
			return false, err
		}
		change := rowChange{counting: j, countedRow: r, first: n == 0}
		if elsewhere, err = change.collect(ctx, indexes); err != nil {
			return false, err
		}
		if won, err = change.put(ctx); won && err == nil {
			change.report(indexes)
		}
		return won, err
	})
	if err != nil {
		return nil, err
	}
	return elsewhere, nil
}

// untilWon tries again while others change the row between its read and its check-and-put.
func untilWon(ctx context.Context, try func() (won bool, err error)) error {
	for range maxCountTries {
		if won, err := try(); won || err != nil {
			return err
		}
		if !run.Sleep(ctx, run.N(ctx, 20*time.Millisecond)) {
			return fmt.Errorf("%w: %w", history.ErrUnavailable, ctx.Err())
		}
	}
	return fmt.Errorf("%w: the row is changed by others again and again", history.ErrUnavailable)
}

// countedRow is a row as read: the totals, and the marks of some users.
type countedRow struct {
	key    []byte
	row    count.Row
	stored []byte // nil for none
	marks  map[string]count.Mark
	// damaged are the errors of marks that cannot be decoded.
	damaged map[string]error
}

// read reads a row with the marks of users.
func (c *Counters) read(ctx context.Context, key []byte, uids []string) (r countedRow, err error) {
	r = countedRow{key: key, marks: make(map[string]count.Mark, len(uids)), damaged: make(map[string]error)}
	families := map[string][]string{countFamily: {countColumn}}
	if len(uids) > 0 {
		families[markFamily] = uids
	}
	cells, err := c.cells(ctx, key, families)
	if err != nil {
		return r, err
	}
	for _, cell := range cells {
		if string(cell.Family) == countFamily {
			r.stored = cell.Value
			if r.row, err = count.ParseRow(cell.Value); err != nil {
				return r, err
			}
			continue
		}
		uid := string(cell.Qualifier)
		if r.marks[uid], err = count.ParseMark(cell.Value); err != nil {
			r.damaged[uid] = err
		}
	}
	return r, nil
}

func (c *Counters) cells(ctx context.Context, key []byte, families map[string][]string) ([]*hrpc.Cell, error) {
	get, err := hrpc.NewGet(ctx, c.countTable(), key, hrpc.Families(families))
	if err != nil {
		return nil, err
	}
	result, err := c.client.Get(get)
	if err != nil {
		return nil, classify(err)
	}
	return result.Cells, nil
}

func (c *Counters) countTable() []byte { return []byte(c.config.Table + "_counts") }

// rowChange is a change of one row.
type rowChange struct {
	*counting
	countedRow
	first   bool
	changed map[string][]byte // marks by user
	counted map[int]bool      // statements
}

// collect counts the statements in memory.
func (c *rowChange) collect(ctx context.Context, indexes []int) (elsewhere []int, err error) {
	erased, err := c.erased(ctx, indexes)
	if err != nil {
		return nil, err
	}
	closed := count.Closed(c.object, c.config.Rules, c.at)
	c.row.Close(closed)
	c.changed, c.counted = make(map[string][]byte), make(map[int]bool)
	for _, i := range indexes {
		s := &c.statements[i]
		if c.results[i].Err = c.damaged[s.UID]; c.results[i].Err != nil {
			continue
		}
		m, known := c.marks[s.UID]
		if known = known && m.CellTime > 0; !known && c.first && c.row.Full {
			elsewhere = append(elsewhere, i)
			continue
		}
		if m.Ignores(s, c.config.Rules, c.at, erased[s.UID]) {
			continue
		}
		next, change := m.Count(s, closed)
		if !known {
			c.row.Users++
		}
		c.row.Add(change)
		c.marks[s.UID], c.changed[s.UID], c.counted[i] = next, count.AppendMark(nil, &next), true
		c.row.Full = c.row.Full || c.first && c.row.Users >= uint64(c.config.countUsers) //nolint:gosec // a positive number
	}
	return elsewhere, nil
}

// erased first notes the object in the rows of the users that may change, then reads up to when they were erased. An
// erasure writes that time before it reads those rows: it knows of the object, or this call of the erasure.
func (c *rowChange) erased(ctx context.Context, indexes []int) (map[string]int64, error) {
	latest := make(map[string]int64)
	for _, i := range indexes {
		s := &c.statements[i]
		if m := c.marks[s.UID]; (m.CellTime > 0 || !c.first || !c.row.Full) && !m.Ignores(s, c.config.Rules, c.at, 0) {
			latest[s.UID] = max(latest[s.UID], s.CellTime)
		}
	}
	uids := slices.Sorted(maps.Keys(latest))
	until := make(map[string]int64, len(uids))
	for some := range slices.Chunk(uids, chunkCalls) {
		calls := make([]hrpc.Call, len(some))
		for i, uid := range some {
			columns := map[string]map[string][]byte{markFamily: {c.object.String(): {}}}
			calls[i], _ = hrpc.NewPut(ctx, c.countTable(), countUserRow(uid), columns, hrpc.TimestampUint64(uint64(latest[uid]))) //nolint:gosec // a time
		}
		if _, err := c.send(ctx, calls); err != nil {
			return nil, err
		}
		for i, uid := range some {
			calls[i], _ = hrpc.NewGet(ctx, c.countTable(), countUserRow(uid), hrpc.Families(map[string][]string{markFamily: {erasedColumn}}))
		}
		answers, err := c.send(ctx, calls)
		if err != nil {
			return nil, err
		}
		for i, uid := range some {
			cells, err := cellsOf(answers[i])
			if err != nil {
				return nil, err
			}
			if len(cells) > 0 && len(cells[0].Value) == 8 {
				until[uid] = int64(binary.BigEndian.Uint64(cells[0].Value)) //nolint:gosec // as it was written
			}
		}
	}
	return until, nil
}

// send sends calls and returns their results, or the first error.
func (c *Counters) send(ctx context.Context, calls []hrpc.Call) ([]hrpc.RPCResult, error) {
	results, _ := c.client.SendBatch(ctx, calls)
	for _, r := range results {
		if r.Error != nil {
			return nil, classify(r.Error)
		}
	}
	return results, nil
}

// put stores the change and reports whether nobody else has changed the row since it was read.
func (c *rowChange) put(ctx context.Context) (won bool, err error) {
	if len(c.changed) == 0 {
		return true, nil
	}
	return c.replace(ctx, &c.countedRow, c.changed)
}

// replace stores the totals of a row with some marks, if the totals are still those that were read. Versions are times
// that grow with each change of a row, and the times of its cells.
func (c *Counters) replace(ctx context.Context, r *countedRow, marks map[string][]byte) (won bool, err error) {
	r.row.Version = max(r.row.Version+1, uint64(c.now())) //nolint:gosec // a time
	columns := map[string]map[string][]byte{countFamily: {countColumn: count.AppendRow(nil, &r.row)}}
	if len(marks) > 0 {
		columns[markFamily] = marks
	}
	put, err := hrpc.NewPut(ctx, c.countTable(), r.key, columns, hrpc.TimestampUint64(r.row.Version))
	if err != nil {
		return false, err
	}
	won, err = c.client.CheckAndPut(put, countFamily, countColumn, r.stored)
	return won, classify(err)
}

// report sets the results of the statements in this row.
func (c *rowChange) report(indexes []int) {
	rows := 1
	if !c.first || c.row.Full {
		rows = count.MaxRows
	}
	for _, i := range indexes {
		r := &c.results[i]
		r.Rows = max(r.Rows, rows)
		r.Negative = r.Negative || c.row.Negative()
		r.Counted = r.Counted || c.counted[i]
	}
}

// Totals implements [count.Counters]: one read for all objects, and one more for those with a full row.
func (c *Counters) Totals(ctx context.Context, objects []history.Object) ([]count.Totals, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	all := make([]count.Totals, len(objects))
	now, err := c.expiry()
	if err != nil {
		return nil, fmt.Errorf("totals: %w", err)
	}
	type part struct{ object, row int }
	parts := make([]part, len(objects))
	for i := range objects {
		parts[i].object = i
	}
	for len(parts) > 0 {
		var more []part
		for some := range slices.Chunk(parts, chunkCalls) {
			calls := make([]hrpc.Call, len(some))
			for i, p := range some {
				calls[i], _ = hrpc.NewGet(ctx, c.countTable(), countRow(objects[p.object], p.row), hrpc.Families(map[string][]string{countFamily: {countColumn}}))
			}
			answers, err := c.send(ctx, calls)
			if err != nil {
				return nil, fmt.Errorf("totals: %w", err)
			}
			for i, p := range some {
				row, err := rowOf(answers[i])
				if err != nil {
					return nil, fmt.Errorf("totals of %s: %w", objects[p.object], err)
				}
				all[p.object].Add(row.Totals)
				for n := 1; row.Full && n < count.MaxRows; n++ {
					more = append(more, part{p.object, n})
				}
			}
		}
		parts = more
	}
	for i, o := range objects {
		all[i].Close(count.Closed(o, c.config.Rules, now))
	}
	return all, nil
}

// rowOf decodes the totals in the answer to a get.
func rowOf(answer hrpc.RPCResult) (r count.Row, err error) {
	cells, err := cellsOf(answer)
	if err != nil || len(cells) == 0 {
		return r, err
	}
	return count.ParseRow(cells[0].Value)
}

// Marks implements [count.Counters].
func (c *Counters) Marks(ctx context.Context, keys []history.Key) ([]count.Mark, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if _, err := c.expiry(); err != nil {
		return nil, fmt.Errorf("marks: %w", err)
	}
	all := make([]count.Mark, len(keys))
	var g errgroup.Group
	g.SetLimit(objectsAtOnce)
	for i, k := range keys {
		g.Go(func() error {
			m, err := c.markOf(ctx, k)
			if err != nil {
				return fmt.Errorf("mark of %s: %w", k.Private(), err)
			}
			all[i] = m
			return nil
		})
	}
	return all, g.Wait()
}

// markOf returns a user's mark of an object, zero for none.
func (c *Counters) markOf(ctx context.Context, k history.Key) (m count.Mark, err error) {
	r, err := c.read(ctx, countRow(k.Object, 0), []string{k.UID})
	if err == nil {
		err = r.damaged[k.UID]
	}
	if m = r.marks[k.UID]; err != nil || m.CellTime > 0 || !r.row.Full {
		return m, err
	}
	if r, err = c.read(ctx, countRow(k.Object, shareOf(k.UID)), []string{k.UID}); err == nil {
		err = r.damaged[k.UID]
	}
	return r.marks[k.UID], err
}

// Held implements [count.Counters]: the user's row lists the objects with marks.
func (c *Counters) Held(ctx context.Context, uid string, until int64) (map[string]int, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	cells, err := c.cells(ctx, countUserRow(uid), map[string][]string{markFamily: nil})
	if err != nil {
		return nil, fmt.Errorf("count the marks of %s: %w", history.Pseudonym(uid), err)
	}
	marks := 0
	for _, cell := range cells {
		if string(cell.Qualifier) != erasedColumn && (until == 0 || *cell.Timestamp <= uint64(until)) { //nolint:gosec // a time
			marks++
		}
	}
	return map[string]int{count.MarksPlace: marks}, nil
}

// Erase implements [count.Counters].
func (c *Counters) Erase(ctx context.Context, uid string, until int64) error {
	if err := c.erase(ctx, uid, until); err != nil {
		return fmt.Errorf("erase the marks of %s: %w", history.Pseudonym(uid), err)
	}
	return nil
}

func (c *Counters) erase(ctx context.Context, uid string, until int64) error {
	erased := uint64(until) //nolint:gosec // a time
	columns := map[string]map[string][]byte{markFamily: {erasedColumn: binary.BigEndian.AppendUint64(nil, erased)}}
	note, err := hrpc.NewPut(ctx, c.countTable(), countUserRow(uid), columns, hrpc.TimestampUint64(erased))
	if err != nil {
		return err
	}
	if _, err := c.send(ctx, []hrpc.Call{note}); err != nil {
		return err
	}
	cells, err := c.cells(ctx, countUserRow(uid), map[string][]string{markFamily: nil})
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(objectsAtOnce)
	gone := make(map[string][]byte)
	for _, cell := range cells {
		if string(cell.Qualifier) == erasedColumn {
			continue
		}
		o, err := history.ParseObject(string(cell.Qualifier))
		if err != nil {
			return err
		}
		gone[o.String()] = nil
		g.Go(func() error {
			full, err := c.eraseIn(ctx, countRow(o, 0), uid, until)
			if err == nil && full {
				_, err = c.eraseIn(ctx, countRow(o, shareOf(uid)), uid, until)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || len(gone) == 0 {
		return err
	}
	del, err := hrpc.NewDel(ctx, c.countTable(), countUserRow(uid), map[string]map[string][]byte{markFamily: gone}, hrpc.TimestampUint64(erased))
	if err == nil {
		_, err = c.send(ctx, []hrpc.Call{del})
	}
	return err
}

// eraseIn removes a user's mark from a row, and reports whether the row is full. It changes the row even without a mark,
// so that a count under way reads again, and learns of the erasure.
func (c *Counters) eraseIn(ctx context.Context, key []byte, uid string, until int64) (full bool, err error) {
	err = untilWon(ctx, func() (won bool, err error) {
		r, err := c.read(ctx, key, []string{uid})
		if errors.Is(err, history.ErrPermanent) { // nothing is counted in this row
			full = true
			return true, c.deleteMark(ctx, key, uid)
		}
		if err != nil {
			return false, err
		}
		full = r.row.Full
		var marks map[string][]byte
		m, there := r.marks[uid]
		if there = there && (m.CellTime <= until || r.damaged[uid] != nil); there {
			marks = map[string][]byte{uid: {}} // HBase wants a value
		}
		if won, err = c.replace(ctx, &r, marks); won && there && err == nil { // a later mark has a later time
			err = c.deleteMark(ctx, key, uid, hrpc.TimestampUint64(r.row.Version))
		}
		return won, err
	})
	return full, err
}

func (c *Counters) deleteMark(ctx context.Context, key []byte, uid string, until ...func(hrpc.Call) error) error {
	del, err := hrpc.NewDel(ctx, c.countTable(), key, map[string]map[string][]byte{markFamily: {uid: nil}}, until...)
	if err == nil {
		_, err = c.send(ctx, []hrpc.Call{del})
	}
	return err
}

// Remains says where erased bytes stay.
func (c *Counters) Remains(context.Context) []string {
	return []string{"HBase's files of " + string(c.countTable()) + " have erased marks until a major compaction"}
}
