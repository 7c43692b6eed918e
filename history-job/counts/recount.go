package counts

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/count"
)

// Archive is what a [Recount] reads.
type Archive interface {
	Users(ctx context.Context, from string) iter.Seq2[string, error]
	Page(ctx context.Context, uid string, q history.Query) (history.Page, error)
}

// Recount compares counters with an archive, and counts what they lack. Both may be in use.
type Recount struct {
	Archive  Archive
	Counters count.Counters
	Types    count.Types
	Objects  []history.Object // default all
	Rules    *history.Rulebook
	Now      func() time.Time
	// Verify changes nothing.
	Verify bool
}

// Found is the result of a recount.
type Found struct {
	Records int // with plays or watched time, now or earlier
	// Missing statements are not counted: of --verify as of now, otherwise they were counted now.
	Missing int
	// Wrong marks are of the archived record, and have other numbers.
	Wrong int
	// Low objects have lower totals than their marks, or negative ones.
	Low []history.Object

	plays map[history.Object]int64 // of the marks
}

// recountPage is the number of records of a read.
const recountPage = 1000

// Only restricts a recount to objects, as texts; none means all.
func (r *Recount) Only(objects []string) error {
	for _, text := range objects {
		o, err := history.ParseObject(text)
		if err != nil {
			return err
		}
		r.Objects = append(r.Objects, o)
	}
	return nil
}

// Run reads the whole archive. It keeps a number for each object in memory.
func (r *Recount) Run(ctx context.Context) (f Found, err error) {
	f.plays = make(map[history.Object]int64)
	for uid, err := range r.Archive.Users(ctx, "") {
		if err != nil {
			return f, fmt.Errorf("recount: %w", err)
		}
		if err := r.user(ctx, uid, &f); err != nil {
			return f, fmt.Errorf("recount %s: %w", history.Pseudonym(uid), err)
		}
	}
	objects := make([]history.Object, 0, len(f.plays))
	for o := range f.plays {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b history.Object) int { return strings.Compare(a.String(), b.String()) })
	for some := range slices.Chunk(objects, recountPage) {
		all, err := r.Counters.Totals(ctx, some)
		if err != nil {
			return f, fmt.Errorf("recount: %w", err)
		}
		for i, t := range all {
			if t.Negative() || t.All.Plays < f.plays[some[i]] {
				f.Low = append(f.Low, some[i])
			}
		}
	}
	return f, nil
}

// user recounts the records of a user, or of a namespace of a user.
func (r *Recount) user(ctx context.Context, uid string, f *Found) error {
	for q := (history.Query{Limit: recountPage}); ; {
		page, err := r.Archive.Page(ctx, uid, q)
		if err != nil {
			return err
		}
		if err := r.records(ctx, uid, page.Items, f); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		q.After = page.End()
	}
}

func (r *Recount) records(ctx context.Context, uid string, items []history.Item, f *Found) error {
	var statements []count.Statement
	var keys []history.Key
	for _, it := range items {
		if !r.Types.Has(it.Object.Type) || len(r.Objects) > 0 && !slices.Contains(r.Objects, it.Object) {
			continue
		}
		if s, ok := count.Of(history.Key{UID: uid, Object: it.Object}, it.Record); ok {
			statements, keys = append(statements, s), append(keys, s.Key())
		}
	}
	if len(statements) == 0 {
		return nil
	}
	f.Records += len(statements)
	marks, err := r.Counters.Marks(ctx, keys)
	if err != nil {
		return err
	}
	var missing []count.Statement
	for i := range statements {
		s, m := &statements[i], &marks[i]
		closed := count.Closed(s.Object, r.Rules, r.Now().UnixMilli())
		switch {
		case m.CellTime == 0 && len(s.Played) == 0: // nothing to count
		case m.CellTime == 0 || !m.Has(s):
			missing = append(missing, *s)
		case m.CellTime == s.CellTime && m.RemovedAt == s.RemovedAt && !slices.Equal(after(m.Played, closed), after(s.Played, closed)):
			f.Wrong++
		}
		for _, p := range m.Played {
			f.plays[s.Object] += int64(p.Plays) //nolint:gosec // some thousands
		}
	}
	f.Missing += len(missing)
	if r.Verify || len(missing) == 0 {
		return nil
	}
	for _, result := range r.Counters.Count(ctx, missing) {
		if result.Err != nil {
			return result.Err
		}
	}
	return nil
}

// after returns the days after a closed one.
func after(all []history.Played, closed history.Day) []history.Played {
	i, _ := slices.BinarySearchFunc(all, closed+1, func(p history.Played, d history.Day) int { return int(p.Day() - d) })
	return all[i:]
}
