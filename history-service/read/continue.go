package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Continue searches the newest 1,000 records, since it is about recent viewings. The first 100 nearly always
// suffice.
const (
	lookFirst = 100
	lookThen  = 900
)

// Continue returns started, unfinished objects, newest first, with one episode per series and without dismissed
// ones. It fails if a store is unavailable: an empty list would mean that nothing is unfinished.
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

// continued fills a list from the newest records of each namespace. Many records of one class must not hide another
// class.
func (r *Reader) continued(ctx context.Context, req *historyv1.ContinueRequest, list *continueList) error {
	if !r.divided() {
		_, err := r.recent(ctx, req.GetUid(), req.GetType(), list)
		return err
	}
	namespaces := r.namespaces(req.GetUid(), req.GetType())
	found := make([][]history.Item, len(namespaces))
	var owner history.User
	g, asking := errgroup.WithContext(ctx)
	for i, namespace := range namespaces {
		g.Go(func() (err error) {
			found[i], err = r.recent(asking, namespace, req.GetType(), r.newContinueList(req))
			return err
		})
	}
	g.Go(func() (err error) {
		owner, err = r.Namespace(asking, req.GetUid())
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	items := slices.Concat(found...)
	slices.SortFunc(items, history.NewestFirst)
	list.fill(r.visible(items, &owner))
	return nil
}

// recent reads a namespace's newest records into a list until the list is complete. It reads at most the cached
// records of a class.
func (r *Reader) recent(ctx context.Context, namespace string, typ uint32, list *continueList) (items []history.Item, err error) {
	q, left := history.Query{Type: typ}, lookFirst+lookThen
	if _, class := history.UserOf(namespace); class != "" {
		q.Since, left = r.oldest(namespace)+1, min(left, max(r.cfg.keep(namespace)-1, 1))
	}
	for _, n := range [...]int{lookFirst, lookThen} {
		if q.Limit = min(n, left); q.Limit == 0 {
			break
		}
		p, err := r.readPage(ctx, namespace, q, true)
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

// continueList selects unfinished records and series from a user's records, newest first.
type continueList struct {
	rules  *history.Rulebook
	name   string // metadata key for the series name; empty for none
	limit  int
	rows   []row
	series map[seriesName]*series
}

// row is an unfinished record or a series.
type row struct {
	item   history.Item
	series *series // nil for a single record
}

// fill replaces the list, sorting by play time. A restored record has a newer version than its last play.
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
	name := it.Record.Meta.Get(l.name)
	if l.name == "" || name == "" {
		if rules.Unfinished(it.Record) && it.Record.DismissedAt() == 0 {
			l.rows = append(l.rows, row{item: it})
		}
		return
	}
	s := l.series[seriesName{it.Object.Type, name}]
	if s == nil {
		s = &series{}
		l.series[seriesName{it.Object.Type, name}] = s
	}
	if s.add(it, rules) && !s.listed {
		s.listed = true
		l.rows = append(l.rows, row{series: s})
	}
}

// complete reports whether older records cannot change the list: records with versions before below were not played
// later. Only a series' next episode may still be among them.
func (l *continueList) complete(below int64) bool {
	n := 0
	for _, r := range l.rows {
		at := int64(0)
		if r.series == nil {
			at = r.item.Record.PlayedAt()
		} else if r.series.hidden() {
			continue
		} else if p := r.series.latest(); p.unfinished {
			at = p.at
		}
		if n++; at < below || n == l.limit {
			return at >= below
		}
	}
	return false
}

func (l *continueList) items() (items []*historyv1.Item) {
	for _, r := range l.rows {
		it, next := r.item, (*historyv1.NextPart)(nil)
		if r.series != nil && r.series.hidden() {
			continue
		}
		if r.series != nil {
			it, next = r.series.goOn()
		}
		shown := view.Item(it.Object, it.Record, l.rules)
		shown.Next = next
		if items = append(items, shown); len(items) == l.limit {
			break
		}
	}
	return items
}
