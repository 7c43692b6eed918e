package backfill

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/playhead/playhead/internal/durable"
)

// windowSize bounds the items that are read and not settled.
const windowSize = 1 << 16

// Report counts the items of a copy by outcome. The sum of Outcomes is Rows.
type Report struct {
	Rows     int64            `json:"rows"`
	Outcomes map[string]int64 `json:"outcomes"`
	Finished bool             `json:"finished"`
	// Resumed is the number of rows that earlier runs had settled.
	Resumed int64 `json:"resumed,omitempty"`
	// Seconds is the time of this run, and FirstMS that of its first answer in milliseconds.
	Seconds float64 `json:"seconds"`
	FirstMS int64   `json:"first_answer_ms,omitempty"`
	PerSec  float64 `json:"rows_per_second"`
	// Rejected says where and why the first row of this run was rejected, if one was.
	Rejected string `json:"first_rejected,omitempty"`
}

type counts [outcomes]int64

func (c *counts) sum() (n int64) {
	for _, one := range c {
		n += one
	}
	return n
}

func (c *counts) named() map[string]int64 {
	m := make(map[string]int64)
	for o := New; o < outcomes; o++ {
		if c[o] > 0 || o <= Summarised || o == Rejected {
			m[o.String()] = c[o]
		}
	}
	return m
}

// window holds the items that are read and not settled, in the order of the source. Counts, rejected items and the mark
// move on in that order only, so a checkpoint says exactly what was copied before its mark.
type window struct {
	mu         sync.Mutex
	room       sync.Cond
	stopped    bool
	slots      [windowSize]slot
	base, next int64 // the oldest item that is not settled, and the next one to read
	counts     counts
	first      time.Time // of the first answer
	resumed    int64

	mark   string // where the source begins
	marked state  // at the latest mark

	maxRejects int64
	rejects    *rejects
	rejected   string        // place and reason of the first
	failed     chan struct{} // closed with err
	err        error

	path     string // of the checkpoint, empty for none
	identity string
	saved    state
	finished bool // nothing is left to copy
}

type slot struct {
	outcome Outcome
	item    Item // its mark, and the place and reason of a rejected one
}

// state is what a checkpoint holds.
type state struct {
	mark    string
	counts  counts
	rejects int64 // bytes
}

// checkpoint is a state as a file.
type checkpoint struct {
	Version  int              `json:"version"`
	Source   string           `json:"source"`
	Mark     string           `json:"mark"`
	Outcomes map[string]int64 `json:"outcomes"`
	Rejects  int64            `json:"rejects_bytes"`
	Finished bool             `json:"finished"`
}

// open returns the window of a copy, at its checkpoint if there is one.
func open(c *Copy) (*window, error) {
	w := &window{maxRejects: c.MaxRejects, failed: make(chan struct{}), path: c.Checkpoint}
	w.room.L = &w.mu
	if w.path != "" {
		id, err := c.Source.Identity()
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		w.identity = id + " " + c.Settings
		if err := w.load(); err != nil {
			return nil, fmt.Errorf("checkpoint %s: %w", w.path, err)
		}
	}
	if c.Rejects != "" {
		var err error
		if w.rejects, err = openRejects(c.Rejects, w.marked.rejects); err != nil {
			return nil, err
		}
		w.marked.rejects = w.rejects.size
	}
	return w, nil
}

func (w *window) load() error {
	b, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var c checkpoint
	if err := json.Unmarshal(b, &c); err != nil || c.Version != 1 {
		return errors.New("not a checkpoint of this version; remove it to begin anew")
	}
	if c.Source != w.identity {
		return errors.New("made for other files or settings; remove it to begin anew")
	}
	for o := New; o < outcomes; o++ {
		w.counts[o] = c.Outcomes[o.String()]
	}
	w.mark, w.resumed = c.Mark, w.counts.sum()
	w.marked = state{c.Mark, w.counts, c.Rejects}
	w.saved, w.finished = w.marked, c.Finished
	return nil
}

// add takes an item into the window, and waits for room. It reports false after stop.
func (w *window) add(i *Item) (n int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.next-w.base == windowSize && !w.stopped {
		w.room.Wait()
	}
	if w.stopped {
		return 0, false
	}
	n = w.next
	w.next++
	s := &w.slots[n%windowSize]
	*s = slot{i.Outcome, Item{Mark: i.Mark, Place: i.Place, Reason: i.Reason}}
	if n == w.base && s.outcome != 0 {
		w.advance()
	}
	return n, true
}

// settle notes the results of a batch.
func (w *window) settle(batch []numbered, results []Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first.IsZero() {
		w.first = time.Now()
	}
	for i, b := range batch {
		s := &w.slots[b.n%windowSize]
		s.outcome, s.item.Reason = results[i].Outcome, results[i].Reason
	}
	w.advance()
}

func (w *window) advance() {
	before := w.base
	for w.base < w.next && w.err == nil {
		s := &w.slots[w.base%windowSize]
		if s.outcome == 0 {
			break
		}
		w.base++
		w.counts[s.outcome]++
		if s.outcome == Rejected {
			w.reject(&s.item)
		}
		if s.item.Mark != "" {
			w.marked = state{mark: s.item.Mark, counts: w.counts}
			if w.rejects != nil {
				w.marked.rejects = w.rejects.size
			}
		}
	}
	if w.base > before {
		w.room.Broadcast()
	}
}

// reject keeps a rejected item.
func (w *window) reject(i *Item) {
	if w.rejected == "" {
		w.rejected = fmt.Sprintf("%s: %s", i.Place, i.Reason)
	}
	if w.rejects != nil {
		if err := w.rejects.add(i); err != nil {
			w.fail(err)
		}
	}
	if w.maxRejects >= 0 && w.counts[Rejected] > w.maxRejects {
		w.fail(fmt.Errorf("%w: %d; the latest is %s: %s", ErrRejects, w.counts[Rejected], i.Place, i.Reason))
	}
}

func (w *window) fail(err error) {
	if w.err == nil {
		w.err = err
		close(w.failed)
	}
}

func (w *window) error() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// stop ends all waits.
func (w *window) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.room.Broadcast()
}

// save writes the checkpoint, if anything was settled since the last one.
func (w *window) save() error {
	w.mu.Lock()
	s, changed := w.marked, w.marked != w.saved
	var err error
	if changed && w.rejects != nil && w.path != "" {
		err = w.rejects.out.Flush()
	}
	w.mu.Unlock()
	if w.path == "" || !changed || err != nil {
		return err
	}
	return w.write(s, false)
}

func (w *window) write(s state, finished bool) error {
	if w.rejects != nil { // before the checkpoint, which relies on them
		if err := w.rejects.file.Sync(); err != nil {
			return err
		}
	}
	b, err := json.Marshal(checkpoint{1, w.identity, s.mark, s.counts.named(), s.rejects, finished})
	if err != nil {
		return err
	}
	if err := durable.WriteFile(w.path, append(b, '\n')); err != nil {
		return err
	}
	w.saved = s
	return nil
}

// close writes the last checkpoint and the rejected items.
func (w *window) close(finished bool) (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.rejects != nil {
		err = w.rejects.out.Flush()
	}
	if w.finished = finished; finished { // also what is behind the last mark
		w.marked.counts = w.counts
		if w.rejects != nil {
			w.marked.rejects = w.rejects.size
		}
	}
	if w.path != "" && err == nil {
		if e := w.write(w.marked, finished); e != nil {
			err = fmt.Errorf("checkpoint %s: %w", w.path, e)
		}
	}
	if w.rejects != nil {
		err = errors.Join(err, w.rejects.file.Close())
	}
	return err
}

// rejects is the file of rejected items: CSV of file, line, column and reason.
type rejects struct {
	file *os.File
	out  *bufio.Writer
	size int64 // with what is buffered
	row  bytes.Buffer
}

// openRejects opens the file at its size at the checkpoint, so that no item is there twice.
func openRejects(path string, size int64) (*rejects, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("rejects: %w", err)
	}
	r := &rejects{file: f, out: bufio.NewWriter(f), size: size}
	about, err := f.Stat()
	if err == nil && about.Size() < size {
		err = fmt.Errorf("%s has %d bytes, fewer than at the checkpoint; remove the checkpoint to begin anew", path, about.Size())
	}
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.Seek(size, 0)
	}
	if err == nil && size == 0 {
		err = r.write("file", "line", "column", "reason")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rejects: %w", err), f.Close())
	}
	return r, nil
}

func (r *rejects) add(i *Item) error {
	if err := r.write(i.Place.File, number(i.Place.Line), number(i.Place.Column), i.Reason); err != nil {
		return fmt.Errorf("rejects: %w", err)
	}
	return nil
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (r *rejects) write(fields ...string) error {
	r.row.Reset()
	row := csv.NewWriter(&r.row)
	_ = row.Write(fields) // into memory
	row.Flush()
	n, err := r.out.Write(r.row.Bytes())
	r.size += int64(n)
	return err
}

// Report returns the counts so far.
func (c *Copy) Report() Report {
	w := c.window
	w.mu.Lock()
	defer w.mu.Unlock()
	r := Report{Rows: w.counts.sum(), Outcomes: w.counts.named(), Resumed: w.resumed, Seconds: time.Since(c.began).Seconds(), Rejected: w.rejected}
	r.Finished = w.finished
	r.PerSec = float64(r.Rows-w.resumed) / max(r.Seconds, 0.001)
	if !w.first.IsZero() {
		r.FirstMS = w.first.Sub(c.began).Milliseconds()
	}
	return r
}
