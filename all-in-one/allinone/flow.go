package allinone

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
)

func (p *Process) flow() *flow.Flow {
	marks := new(marks)
	return flow.New(flow.Config{
		Metrics: p.cfg.Registry, Faults: p.faults, While: p.cfg.Watched, Logger: p.cfg.Logger,
		Inside: func(ctx context.Context) (any, error) { return p.inside(ctx, marks) },
		Viewer: func(ctx context.Context, uid string) (any, error) { return p.viewer(ctx, uid) },
	})
}

// inside is the work in progress between edge and archive. Times are milliseconds.
type inside struct {
	Running  int     `json:"running"` // held keys
	Due      int     `json:"due"`     // keys past their hold that the queue has not accepted
	HoldLeft []int64 `json:"hold_left_ms"`
	Hold     int64   `json:"hold_ms"` // upper limit
	Queued   int     `json:"queued"`  // keys
	Marks    int     `json:"marks"`
	Oldest   int64   `json:"oldest_mark_ms"` // age
	// Waiting are the marks of keys no longer held, which the archive should already have.
	Waiting int `json:"waiting"`
}

func (p *Process) inside(ctx context.Context, m *marks) (*inside, error) {
	if err := m.count(ctx, p); err != nil {
		return nil, err
	}
	held := p.held.Holds()
	now := &inside{
		Running: held.Running, Due: held.Due, Hold: p.cfg.Hold.Milliseconds(), Queued: p.queue.Waiting(), Marks: m.n, Waiting: m.waiting,
	}
	for _, left := range held.Left {
		now.HoldLeft = append(now.HoldLeft, left.Milliseconds())
	}
	if m.n > 0 {
		now.Oldest = max(0, time.Since(time.UnixMicro(int64(m.oldest))).Milliseconds())
	}
	return now, nil
}

// marks are the last count of dirty marks. Only the page's goroutine uses them.
type marks struct {
	n       int
	waiting int
	oldest  history.Mark
	next    time.Time // time of the next count
}

const (
	// countedPart bounds the share of time spent counting: 1/countedPart. More marks take longer to count.
	countedPart = 100
	// sampleSize is the number of marks checked for a hold.
	sampleSize = 4096
)

func (m *marks) count(ctx context.Context, p *Process) error {
	began := time.Now()
	if began.Before(m.next) {
		return nil
	}
	all := history.AllBuckets()
	found, err := p.db.Cache().Backlog(ctx, all)
	if err != nil {
		return fmt.Errorf("count the marks: %w", err)
	}
	keys, err := p.db.Cache().Overdue(ctx, all, 0, sampleSize)
	if err != nil {
		return fmt.Errorf("look up the marks: %w", err)
	}
	m.n, m.waiting, m.oldest = 0, 0, 0
	for _, b := range found {
		m.n += b.Marks
		if b.Marks > 0 && (m.oldest == 0 || b.Oldest < m.oldest) {
			m.oldest = b.Oldest
		}
	}
	for _, k := range keys {
		if left, _ := p.held.Left(k); left == 0 {
			m.waiting++
		}
	}
	if len(keys) == sampleSize { // a sample
		m.waiting = m.n * m.waiting / sampleSize
	}
	m.next = began.Add(countedPart * time.Since(began))
	return nil
}

// place is a store's version of a record.
type place struct {
	Position int64  `json:"position_ms"`
	State    string `json:"state"`
	At       int64  `json:"at"` // Unix milliseconds
}

func placeOf(r *history.Record) *place {
	if r == nil {
		return nil
	}
	return &place{r.Position, r.State.String(), r.Version.Time()}
}

// stage is the progress of one of the viewer's records.
type stage struct {
	ID    string `json:"id"`
	Title string `json:"title,omitempty"`
	Cache *place `json:"cache"`
	// Archive is nil if the archive lacks the record or does not answer.
	Archive *place `json:"archive"`
	Away    bool   `json:"archive_away,omitempty"`
	Marked  bool   `json:"marked"` // the archive may lack the cached version
	Held    bool   `json:"held"`
	Left    int64  `json:"hold_left_ms"`
}

// newest is the number of records shown per viewer.
const newest = 4

// viewer returns a user's newest records in each store.
func (p *Process) viewer(ctx context.Context, uid string) ([]stage, error) {
	keys, records, err := p.newest(ctx, uid)
	if err != nil {
		return nil, err
	}
	archived, err := p.archive().Get(ctx, keys)
	stages := make([]stage, len(keys))
	for i, r := range records {
		left, held := p.held.Left(keys[i])
		stages[i] = stage{
			ID: keys[i].Object.String(), Title: r.Meta.Get("title"), Cache: placeOf(r), Away: err != nil,
			Marked: r.Revision&history.CleanBit == 0, Held: held, Left: left.Milliseconds(),
		}
		if err == nil {
			stages[i].Archive = placeOf(archived[i].Record)
		}
	}
	return stages, nil
}

// newest returns a user's newest cached records of all classes.
func (p *Process) newest(ctx context.Context, uid string) (keys []history.Key, records []*history.Record, err error) {
	type listed struct {
		history.Item
		namespace string
	}
	var all []listed
	for _, namespace := range p.cfg.Rules.Namespaces(uid) {
		page, err := p.db.Cache().List(ctx, namespace, history.Query{Limit: newest})
		if err != nil {
			return nil, nil, err
		}
		for _, it := range page.Items {
			all = append(all, listed{it, namespace})
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return history.NewestFirst(a.Item, b.Item) })
	for _, it := range all[:min(newest, len(all))] {
		keys, records = append(keys, history.Key{UID: it.namespace, Object: it.Object}), append(records, it.Record)
	}
	return keys, records, nil
}

func stopped(part string) error {
	return fmt.Errorf("%s: %w: stopped on the page", part, history.ErrUnavailable)
}

// archive returns the embedded archive, which viewers of a demonstration may stop.
func (p *Process) archive() history.Archive {
	if f := p.faults["archive"]; f != nil {
		return stoppableArchive{p.db.Archive(), f}
	}
	return p.db.Archive()
}

type stoppableArchive struct {
	history.Archive

	fault *flow.Fault
}

func (a stoppableArchive) Put(ctx context.Context, cells []history.Cell) []error {
	if !a.fault.Stopped() {
		return a.Archive.Put(ctx, cells)
	}
	errs := make([]error, len(cells))
	for i := range errs {
		errs[i] = stopped("archive")
	}
	return errs
}

func (a stoppableArchive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	if a.fault.Stopped() {
		return nil, stopped("archive")
	}
	return a.Archive.Get(ctx, keys)
}

func (a stoppableArchive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	if a.fault.Stopped() {
		return history.Page{}, stopped("archive")
	}
	return a.Archive.Page(ctx, uid, q)
}

func (a stoppableArchive) PutUser(ctx context.Context, uid string, u history.User) error {
	if a.fault.Stopped() {
		return stopped("archive")
	}
	return a.Archive.PutUser(ctx, uid, u)
}

func (p *Process) promoter() archive.Promoter {
	if f := p.faults["archive"]; f != nil {
		return promoter{p.db, f}
	}
	return p.db
}

type promoter struct {
	archive.Promoter

	fault *flow.Fault
}

// Promote promotes nothing while the archive is stopped; the job then meets the outage.
func (c promoter) Promote(ctx context.Context, keys []history.Key) (int, []history.Key, error) {
	if c.fault.Stopped() {
		return 0, keys, nil
	}
	return c.Promoter.Promote(ctx, keys)
}

func (p *Process) publisher() history.Publisher {
	if f := p.faults["queue"]; f != nil {
		return publisher{p.queue, f}
	}
	return p.queue
}

type publisher struct {
	history.Publisher

	fault *flow.Fault
}

func (q publisher) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	if q.fault.Stopped() {
		return keys, stopped("queue")
	}
	return q.Publisher.Publish(ctx, keys)
}

// breakable makes a part that runs another except while viewers have stopped it.
func (p *Process) breakable(name string, part func(context.Context) error) func(context.Context) error {
	f := p.faults[name]
	if f == nil {
		return part
	}
	return func(ctx context.Context) error {
		for ctx.Err() == nil {
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- part(running) }()
			f.Await(ctx, true)
			stop()
			if err := <-done; err != nil {
				return err
			}
			f.Await(ctx, false)
		}
		return nil
	}
}
