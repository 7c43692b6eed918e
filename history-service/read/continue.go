package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Unfinished objects are looked for among the newest thousand records, since the list is about
// recent viewings: first among a hundred, which nearly always suffice.
const (
	lookFirst = 100
	lookThen  = 900
)

// Continue reads what a user has begun and not finished, newest first, and of each series one
// part, without what the user has dismissed. When a store does not answer, neither does Continue: nothing to go on with is an
// answer of its own.
func (r *Reader) Continue(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	return r.continues.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.ContinueResponse, error) { return r.unfinished(ctx, req) })
}

func (r *Reader) unfinished(ctx context.Context, req *historyv1.ContinueRequest) (*historyv1.ContinueResponse, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return nil, err
	}
	if req.GetLimit() > MaxPage {
		return nil, history.Invalid("limit", "want 1 to 100")
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	list := r.newContinueList(req)
	if err := r.continued(ctx, req, list); err != nil {
		return nil, fmt.Errorf("continue: %w", err)
	}
	return &historyv1.ContinueResponse{Items: list.items()}, nil
}

// continued fills a list. It looks at the newest records of each section, so that many records of one class hide none of another.
func (r *Reader) continued(ctx context.Context, req *historyv1.ContinueRequest, list *continueList) error {
	if !r.divided() {
		_, err := r.recent(ctx, req.GetUid(), req.GetType(), list)
		return err
	}
	sections := r.sections(req.GetUid(), req.GetType())
	found := make([][]history.Item, len(sections))
	var owner history.User
	g, asking := errgroup.WithContext(ctx)
	for i, section := range sections {
		g.Go(func() (err error) {
			found[i], err = r.recent(asking, section, req.GetType(), r.newContinueList(req))
			return err
		})
	}
	g.Go(func() (err error) {
		owner, err = r.Section(asking, req.GetUid())
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	p := readerPage{items: slices.Concat(found...)}
	slices.SortFunc(p.items, history.NewestFirst)
	if err := r.dropHidden(ctx, req.GetUid(), &owner, &p); err != nil {
		return err
	}
	list.fill(p.items)
	return nil
}

// recent reads the newest records of a section, as many as may matter to a list, and fills it with them. Of a class it reads no
// more than the cache keeps.
func (r *Reader) recent(ctx context.Context, section string, typ uint32, list *continueList) (items []history.Item, err error) {
	q, left := history.Query{Type: typ}, lookFirst+lookThen
	if _, class := history.UserOf(section); class != "" {
		q.Since, left = r.oldest(section)+1, min(left, max(r.cfg.keep(section)-1, 1))
	}
	for _, n := range [...]int{lookFirst, lookThen} {
		if q.Limit = min(n, left); q.Limit == 0 {
			break
		}
		p, err := r.readPage(ctx, section, q, true)
		if err != nil {
			return nil, err
		}
		items, left = append(items, p.items...), left-q.Limit
		list.fill(items)
		if !p.more || list.complete(p.end.Version.Time()) {
			break
		}
		q.After = p.end
	}
	return items, nil
}

func (r *Reader) newContinueList(req *historyv1.ContinueRequest) *continueList {
	list := &continueList{rules: r.cfg.Rules, name: req.GetSeries(), limit: int(req.GetLimit())}
	if list.limit == 0 {
		list.limit = defaultPage
	}
	return list
}

// continueList takes what invites to go on from a user's records, newest first.
type continueList struct {
	rules  *history.Rulebook
	name   string // of the entry of the metadata that names a series; empty for none
	limit  int
	rows   []row
	series map[seriesName]*series
}

// seriesName tells series apart: a show and a podcast may have the same title.
type seriesName struct {
	typ  uint32
	name string
}

// row is a record to go on with, or a series.
type row struct {
	item   history.Item
	series *series // nil for a record of none
	next   bool    // the newest part of the series is completed
}

// series is what is known of one, from its newest part on.
type series struct {
	played    int64      // when something of it last was, in Unix milliseconds
	dismissed int64      // when the user last dismissed a part of it
	furthest  partNumber // completed; the zero value where none that is numbered is
	item      history.Item
	begun     map[partNumber]history.Item // the newest of each part that is not completed
}

// partNumber is a part of a series by its numbers. The zero value is none.
type partNumber struct{ season, episode int }

// partOf returns the numbers that the metadata says, none where one is too large: also the next one has 31 bits.
func partOf(meta history.Meta) partNumber {
	season, err := strconv.ParseUint(meta.Get("season"), 10, 31)
	if errors.Is(err, strconv.ErrRange) {
		return partNumber{}
	}
	episode, err := strconv.ParseUint(meta.Get("episode"), 10, 31)
	if err != nil || episode == 0 || episode == math.MaxInt32 {
		return partNumber{}
	}
	return partNumber{int(season), int(episode)} //nolint:gosec // of 31 bits
}

func (p partNumber) after(o partNumber) bool {
	return p.season > o.season || p.season == o.season && p.episode > o.episode
}

// fill takes records in the order in which they were played, and those alone: what was brought back is read before later ones.
func (l *continueList) fill(items []history.Item) {
	l.rows, l.series = nil, make(map[seriesName]*series)
	byPlayed := slices.Clone(items)
	slices.SortStableFunc(byPlayed, func(a, b history.Item) int { return cmp.Compare(b.Record.PlayedAt(), a.Record.PlayedAt()) })
	for _, it := range byPlayed {
		l.add(it)
	}
}

func (l *continueList) add(it history.Item) {
	rules := l.rules.Of(it.Object.Type)
	unfinished, completed := rules.Unfinished(it.Record), rules.Completed(it.Record)
	name := it.Record.Meta.Get(l.name)
	if l.name == "" || name == "" {
		if unfinished && it.Record.DismissedAt() == 0 {
			l.rows = append(l.rows, row{item: it})
		}
		return
	}
	number := partOf(it.Record.Meta)
	s := l.series[seriesName{it.Object.Type, name}]
	if s == nil {
		s = &series{begun: make(map[partNumber]history.Item)}
		l.series[seriesName{it.Object.Type, name}] = s
	}
	s.played, s.dismissed = max(s.played, it.Record.ViewedAt()), max(s.dismissed, it.Record.DismissedAt())
	switch known := s.item.Record != nil; {
	case !completed:
		if _, ok := s.begun[number]; !ok && number != (partNumber{}) {
			s.begun[number] = it
		}
		if unfinished && !known {
			s.item = it
			l.rows = append(l.rows, row{item: it, series: s})
		}
	case !known:
		s.item, s.furthest = it, number
		l.rows = append(l.rows, row{series: s, next: true})
	case number.after(s.furthest):
		s.item, s.furthest = it, number
	}
}

// hidden reports whether the user has dismissed a part of the row's series, and played nothing of the series
// since. Nobody knows which part stood for the series at the time, since earlier plays may have come late: so all parts count.
func (r row) hidden() bool {
	return r.series != nil && r.series.dismissed != 0 && r.series.dismissed >= r.series.played
}

// complete reports whether records that are listed below a time would change nothing: they were not played after that. The next
// part of a series may be among them.
func (l *continueList) complete(below int64) bool {
	n := 0
	for _, r := range l.rows {
		if r.hidden() {
			continue
		}
		if n++; r.next || n == l.limit {
			return !r.next && r.item.Record.PlayedAt() >= below
		}
	}
	return false
}

func (l *continueList) items() (items []*historyv1.Item) {
	for _, r := range l.rows {
		it, next := r.item, (*historyv1.NextPart)(nil)
		if r.hidden() || r.next && r.series.furthest == (partNumber{}) {
			continue
		}
		if r.next {
			it, next = r.series.next()
		}
		shown := view.Item(it.Object, it.Record, l.rules)
		shown.Next = next
		if items = append(items, shown); len(items) == l.limit {
			break
		}
	}
	return items
}

// next returns the part after the furthest completed one, or that one and the numbers of the
// next where there is no record of it.
func (s *series) next() (history.Item, *historyv1.NextPart) {
	next := partNumber{s.furthest.season, s.furthest.episode + 1}
	for _, p := range [...]partNumber{next, {s.furthest.season + 1, 1}} {
		if it, ok := s.begun[p]; ok {
			return it, nil
		}
	}
	return s.item, &historyv1.NextPart{Season: uint32(next.season), Episode: uint32(next.episode)} //nolint:gosec // of 31 bits, and one more
}
