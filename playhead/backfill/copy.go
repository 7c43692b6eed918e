package backfill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Copy copies a source to a target. Zero values take the defaults.
type Copy struct {
	Source Source
	Target Target
	Filter Filter
	// Lanes is the number of concurrent calls of the target (default 16), Batch the items of a call (default 100, of an
	// archive 4,096).
	Lanes, Batch int
	// Rate limits the items per second; 0 is unlimited.
	Rate float64
	// P99 slows the copy down when calls of the target take longer, or twice as long as the first ones; 0 never does.
	P99 time.Duration
	// Checkpoint is the file to go on from, and Settings whatever else a mark depends on; empty for none.
	Checkpoint, Settings string
	// Rejects is the file for rejected items; empty for none. MaxRejects ends the copy beyond so many; negative is
	// unlimited.
	Rejects    string
	MaxRejects int64

	mu     sync.Mutex // guards window until it is set
	began  time.Time
	window *window
	lanes  []lane
	pace   pace
}

// ErrRejects means that more items were rejected than allowed.
var ErrRejects = errors.New("too many rejected rows")

// batchOf returns the usual number of items of a call. An archive reads the records of a user together, and a file in the
// order of time has few of each in a hundred rows.
func batchOf(t Target) int {
	switch t.(type) {
	case *Archive, *Verifier:
		return windowSize / 16
	}
	return 100
}

// batchOfPace bounds the items of a call whose answer time counts: it should be as light as a live one.
const batchOfPace = 20

// tick is how often incomplete batches are sent and how often the checkpoint is written.
const (
	tick         = 50 * time.Millisecond
	checkpointed = 250 * time.Millisecond
)

// Run copies everything. The report is right with an error too: what it counts is in the checkpoint.
func (c *Copy) Run(ctx context.Context) (Report, error) {
	c.Lanes, c.Batch = run.Default(c.Lanes, 16), run.Default(c.Batch, batchOf(c.Target))
	if c.pace.on, c.pace.limit = c.P99 > 0, c.P99; c.pace.on {
		c.Batch = min(c.Batch, batchOfPace)
	}
	w, err := open(c)
	if err != nil {
		return Report{}, err
	}
	c.mu.Lock()
	c.window, c.began = w, time.Now()
	c.mu.Unlock()
	if c.window.finished {
		return c.Report(), nil
	}
	err = c.copy(ctx)
	if e := c.window.close(err == nil); e != nil {
		err = errors.Join(err, e)
	}
	return c.Report(), err
}

func (c *Copy) copy(ctx context.Context) error {
	c.lanes = make([]lane, c.Lanes)
	for i := range c.lanes {
		c.lanes[i].batches = make(chan []numbered, 2)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, c.window.stop)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer func() {
			for i := range c.lanes {
				close(c.lanes[i].batches)
			}
		}()
		return c.read(ctx)
	})
	for i := range c.lanes {
		g.Go(func() error { return c.fold(ctx, &c.lanes[i]) })
	}
	done := make(chan struct{})
	var saved sync.WaitGroup
	saved.Go(func() { c.save(done, cancel) })
	err := g.Wait()
	close(done)
	saved.Wait()
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil {
		err = cause
	}
	if err == nil {
		err = c.window.error()
	}
	return err
}

// save writes the checkpoint regularly, and ends the copy if rejected items cannot be kept or are too many.
func (c *Copy) save(done <-chan struct{}, cancel context.CancelCauseFunc) {
	t := time.NewTicker(checkpointed)
	defer t.Stop()
	for failing := false; ; {
		select {
		case <-done:
			return
		case <-c.window.failed:
			cancel(c.window.error())
			return
		case <-t.C:
		}
		err := c.window.save()
		if err != nil && !failing { // the older checkpoint still holds; the last save fails the copy
			fmt.Fprintf(os.Stderr, "checkpoint not written, will retry: %v\n", err)
		}
		failing = err != nil
	}
}

// numbered is an item with its number in the window.
type numbered struct {
	n int64
	Item
}

// lane sends the items of a share of the users in order.
type lane struct {
	mu      sync.Mutex
	pending []numbered
	batches chan []numbered
}

// add appends an item, and sends the batch when it is full.
func (l *lane) add(ctx context.Context, i numbered, batch int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, i)
	if len(l.pending) < batch {
		return nil
	}
	return l.send(ctx)
}

func (l *lane) send(ctx context.Context) error {
	if len(l.pending) == 0 {
		return nil
	}
	select {
	case l.batches <- l.pending:
		l.pending = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush sends an incomplete batch if the lane is idle.
func (l *lane) flush() {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return
	}
	select {
	case l.batches <- l.pending:
		l.pending = nil
	default:
	}
}

// read hands the source's items to the lanes.
func (c *Copy) read(ctx context.Context) error {
	stop := run.Beside(tick, func() { // a source may pause
		for i := range c.lanes {
			c.lanes[i].flush()
		}
	})
	err := c.items(ctx)
	stop()
	for i := range c.lanes {
		l := &c.lanes[i]
		l.mu.Lock()
		err = errors.Join(err, l.send(ctx))
		l.mu.Unlock()
	}
	return err
}

func (c *Copy) items(ctx context.Context) error {
	sent := 0
	for item, err := range c.Source.Items(ctx, c.window.mark) {
		if err != nil {
			return err
		}
		if item.Outcome == 0 {
			if reason := c.Filter.reason(&item); reason != "" {
				item.Outcome, item.Reason = Skipped, reason
			}
		}
		n, ok := c.window.add(&item)
		if !ok {
			return context.Canceled
		}
		if item.Outcome != 0 {
			continue
		}
		if sent++; c.Rate > 0 && !run.Sleep(ctx, time.Until(c.began.Add(time.Duration(float64(sent)/c.Rate*float64(time.Second))))) {
			return ctx.Err()
		}
		uid, _ := history.UserOf(item.Key.UID)
		lane := &c.lanes[xxhash.Sum64String(uid)%uint64(len(c.lanes))] // not by bucket: stores yield users in that order
		if err := lane.add(ctx, numbered{n, item}, c.Batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// fold sends the batches of a lane to the target.
func (c *Copy) fold(ctx context.Context, l *lane) error {
	items := make([]Item, 0, c.Batch)
	for {
		var batch []numbered
		select {
		case batch = <-l.batches:
		case <-ctx.Done():
			return ctx.Err()
		}
		if batch == nil {
			return nil
		}
		items = items[:0]
		for i := range batch {
			items = append(items, batch[i].Item)
		}
		if !c.pace.wait(ctx, len(items)) {
			return ctx.Err()
		}
		asked := time.Now()
		results, err := c.Target.Fold(ctx, items)
		c.pace.answered(time.Now(), time.Since(asked))
		if err != nil {
			return err
		}
		if len(results) != len(items) {
			return fmt.Errorf("%d results for %d items", len(results), len(items))
		}
		c.window.settle(batch, results)
	}
}

// Progress is how far a copy is.
type Progress struct {
	Rows     int64            `json:"rows"`
	PerSec   float64          `json:"rows_per_second"`
	Percent  float64          `json:"percent,omitempty"` // of the source; 0 is unknown
	Left     int64            `json:"rows_left,omitempty"`
	ETA      float64          `json:"eta_seconds,omitempty"`
	Outcomes map[string]int64 `json:"outcomes"`
}

// Progress returns how far the copy is, nil before it runs. It is safe for concurrent use.
func (c *Copy) Progress() *Progress {
	c.mu.Lock()
	running := c.window != nil
	c.mu.Unlock()
	if !running {
		return nil
	}
	r := c.Report()
	p := &Progress{Rows: r.Rows, PerSec: r.PerSec, Outcomes: r.Outcomes}
	sized, ok := c.Source.(Sized)
	if !ok {
		return p
	}
	read, total := sized.Read()
	if total == 0 || read == 0 || r.Rows == 0 || r.Seconds == 0 {
		return p
	}
	done := min(float64(read)/float64(total), 1)
	p.Percent = 100 * done
	p.Left = int64(float64(r.Rows) / done * (1 - done))
	if r.PerSec > 0 {
		p.ETA = float64(p.Left) / r.PerSec
	}
	return p
}

// String returns one line for a terminal.
func (p *Progress) String() string {
	if p.Percent == 0 {
		return fmt.Sprintf("%d rows, %.0f/s", p.Rows, p.PerSec)
	}
	return fmt.Sprintf("%d rows, %.0f/s, %.0f %%, about %d rows and %v left", p.Rows, p.PerSec, p.Percent, p.Left,
		(time.Duration(p.ETA) * time.Second).Round(time.Second))
}
