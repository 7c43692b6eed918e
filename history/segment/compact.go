package segment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
)

// Compact is the input of [Reader.Compact].
type Compact struct {
	// Items are the records to compact, newest first, one per object.
	Items []history.Item
	// Staying are live records of deleted objects, tombstones and later records, that stay live. Earlier
	// records of these objects are removed from the segments.
	Staying []history.Item
	// Cleared are the user's clear marks. Covered records are removed.
	Cleared map[uint32]int64
	// Oldest is the expiry horizon, in Unix milliseconds.
	Oldest int64
	// Version is the version of the new metadata, above the old one.
	Version uint64
	// Name returns a never used name for the n-th new chunk.
	Name func(n int) string
}

// Plan is the replacement of a user's segments.
type Plan struct {
	Metadata *Metadata // without chunks if nothing is left.
	New      []Encoded // chunks to write.
	Gone     []string  // names of chunks no longer listed.
	Changed  bool      // false if nothing changed.
	Removed  bool      // deletes or clears removed records, whose bytes are in Gone chunks.
	Counted  int       // new or changed summaries.
}

// longRun bounds the records rewritten at once, to save memory.
const longRun = 4 * MaxRecords

// fewChunks is the number of consecutive partial chunks that are joined into one: a record is written about
// twice before its chunk is full.
const fewChunks = 4

// Compact plans new segments with the given records. [Resolve] chooses between two records of an object.
// Unchanged chunks are kept. A superseded record is only marked until half of its chunk is superseded, unless
// the user deleted it. Each new chunk is read back and compared.
func (p *Reader) Compact(r Compact) (Plan, error) {
	w := compactor{old: p, Compact: r, chunks: make([]compacting, len(p.Chunks))}
	for i := range p.Chunks {
		c := &w.chunks[i]
		c.info = p.Chunks[i]
		c.superseded, c.types = slices.Clone(c.info.Superseded), slices.Clone(c.info.Types)
		newest := c.info.Newest.Time()
		cleared := newest <= r.Cleared[0]
		c.gone = c.info.Kind == Records && (newest < r.Oldest || cleared)
		w.removed = w.removed || c.gone && cleared
	}
	for _, step := range []func() error{w.supersede, w.clear, w.markRewrites, w.write} {
		if err := step(); err != nil {
			return Plan{}, fmt.Errorf("compact: %w", err)
		}
	}
	return w.plan(), nil
}

type compactor struct {
	Compact
	old     *Reader
	chunks  []compacting
	removed bool
	listed  []Info
	new     []Encoded
}

// compacting is an old chunk and its fate.
type compacting struct {
	info       Info
	superseded []uint16
	types      []TypeCount
	rewrite    bool // rewritten without superseded, cleared and expired records
	gone       bool // no longer listed
}

func (c *compacting) remove(place int, typ uint32) {
	i, found := slices.BinarySearch(c.superseded, uint16(place)) //nolint:gosec // a chunk has few
	if found {
		return
	}
	c.superseded = slices.Insert(c.superseded, i, uint16(place)) //nolint:gosec // a chunk has few
	for n := range c.types {
		if c.types[n].Type == typ {
			c.types[n].Count--
		}
	}
	c.types = slices.DeleteFunc(c.types, func(t TypeCount) bool { return t.Count == 0 })
}

// supersede marks the objects' records in segments. A chunk with a record deleted since is rewritten.
func (w *compactor) supersede() error {
	items, staying, removals := byText(w.Items), byText(w.Staying), w.removals()
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone || c.info.Kind != Records {
			continue
		}
		objects := func(yield func(history.Object) bool) {
			for _, it := range slices.Concat(w.Items, w.Staying) {
				if c.info.MayHave(it.Object) && !yield(it.Object) {
					return
				}
			}
		}
		err := w.old.at(&c.info, objects, func(place int, it history.Item) {
			text := it.Object.String()
			if s := staying[text]; s != nil && s.Record.CellTime > it.Record.CellTime && s.Record.RemovedAt > it.Record.RemovedAt {
				c.remove(place, it.Object.Type)
				w.rewrite(c)
			}
			if n := items[text]; n != nil {
				left := Resolve(n.Record, it.Record)
				if n.Record = left; left == it.Record || history.Same(left, it.Record) && left.CellTime == it.Record.CellTime {
					n.Record = nil // the segment has it
				} else {
					c.remove(place, it.Object.Type)
					if left.RemovedAt > it.Record.RemovedAt {
						w.rewrite(c)
					}
				}
			}
		})
		if err == nil {
			err = w.copies(c, removals)
		}
		if err != nil {
			return err
		}
	}
	w.Items = slices.DeleteFunc(w.Items, func(it history.Item) bool { return it.Record == nil })
	slices.SortFunc(w.Items, history.NewestFirst)
	return nil
}

// removals returns the deletion times of the given objects, if deleted.
func (w *compactor) removals() map[history.Object]int64 {
	removals := make(map[history.Object]int64)
	for _, it := range slices.Concat(w.Items, w.Staying) {
		if at := it.Record.RemovedAt; at > removals[it.Object] {
			removals[it.Object] = at
		}
	}
	return removals
}

// copies rewrites a chunk if it has superseded records of an object from before its deletion: their bytes must go too.
func (w *compactor) copies(c *compacting, removals map[history.Object]int64) error {
	if c.rewrite || len(c.info.Superseded) == 0 || len(removals) == 0 {
		return nil
	}
	chunk, err := w.old.Chunk(&c.info)
	if err != nil {
		return err
	}
	places, err := chunk.Places(func(yield func(history.Object) bool) {
		for o := range removals {
			if c.info.MayHave(o) && !yield(o) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	places = slices.DeleteFunc(places, func(place int) bool { return !c.info.superseded(place) })
	return chunk.At(places, func(_ int, it history.Item) {
		if it.Record.RemovedAt < removals[it.Object] {
			w.rewrite(c)
		}
	})
}

// rewrite rewrites a chunk without deleted or cleared records.
func (w *compactor) rewrite(c *compacting) { c.rewrite, w.removed = true, true }

// byText indexes the items by their objects' text. It refers to the given items.
func byText(items []history.Item) map[string]*history.Item {
	all := make(map[string]*history.Item, len(items))
	for i := range items {
		all[items[i].Object.String()] = &items[i]
	}
	return all
}

func (w *compactor) each(c *compacting, use func(place int, it history.Item)) error {
	chunk, err := w.old.Chunk(&c.info)
	if err != nil {
		return err
	}
	place := 0
	for it, err := range chunk.Items(nil) {
		if err != nil {
			return err
		}
		use(place, it)
		place++
	}
	return nil
}

// clear rewrites chunks with records that new clear marks cover.
func (w *compactor) clear() error {
	if maps.Equal(w.Cleared, w.old.Cleared) {
		return nil
	}
	u := &history.User{Cleared: w.Cleared}
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone || c.rewrite || c.info.Kind != Records {
			continue
		}
		err := w.each(c, func(_ int, it history.Item) {
			if !c.rewrite && cuts(u, it) {
				w.rewrite(c)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cuts reports whether clear marks remove any content of a record.
func cuts(u *history.User, it history.Item) bool {
	left := it.Record.After(u.ClearedAt(it.Object.Type))
	if left == nil {
		return true
	}
	r := *left
	r.RemovedAt, r.Restored = it.Record.RemovedAt, it.Record.Restored
	return !history.Same(&r, it.Record)
}

// markRewrites marks the chunks to rewrite: overlapping new records, half superseded, or small and consecutive.
func (w *compactor) markRewrites() error {
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.info.Kind != Records {
			continue
		}
		if 2*len(c.superseded) > c.info.Count {
			c.rewrite = true
		}
		// The records before n are newer than the chunk.
		n, _ := slices.BinarySearchFunc(w.Items, c.info.Newest, func(it history.Item, v history.Version) int {
			if it.Record.Version > v {
				return -1
			}
			return 1
		})
		if n < len(w.Items) && w.Items[n].Record.Version >= c.info.Oldest {
			c.rewrite = true
		}
	}
	w.joinSmall()
	return nil
}

// joinSmall rewrites consecutive small chunks as one. New records before or between them count as one more.
func (w *compactor) joinSmall() {
	from, small, items := 0, 0, w.Items
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone || c.info.Kind != Records {
			continue
		}
		n, _ := slices.BinarySearchFunc(items, c.info.Newest, func(it history.Item, v history.Version) int {
			if it.Record.Version > v {
				return -1
			}
			return 1
		})
		if n > 0 {
			small++
		}
		items = items[n:]
		if c.info.Full && !c.rewrite {
			small, from = 0, i+1
			continue
		}
		if small++; small >= fewChunks {
			for j := from; j <= i; j++ {
				w.chunks[j].rewrite = !w.chunks[j].gone
			}
		}
	}
}

// write builds the new list. A run consists of rewritten records and new ones among them.
func (w *compactor) write() error {
	var run []history.Item
	items := w.Items
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone {
			continue
		}
		if !c.rewrite {
			n := 0
			for n < len(items) && (c.info.Kind != Records || items[n].Record.Version > c.info.Newest) {
				n++
			}
			run, items = append(run, items[:n]...), items[n:]
			if err := w.finish(run); err != nil {
				return err
			}
			run = nil
			c.info.Superseded, c.info.Types = c.superseded, c.types
			w.listed = append(w.listed, c.info)
			continue
		}
		c.gone = true
		err := w.each(c, func(place int, it history.Item) {
			if _, found := slices.BinarySearch(c.superseded, uint16(place)); !found { //nolint:gosec // a chunk has few
				run = append(run, it)
			}
		})
		if err != nil {
			return err
		}
		n := 0
		for n < len(items) && items[n].Record.Version >= c.info.Oldest {
			n++
		}
		run, items = append(run, items[:n]...), items[n:]
		if run, err = w.shorten(run); err != nil {
			return err
		}
	}
	return w.finish(append(run, items...))
}

// shorten encodes the records of a long run that precede all later ones, and returns the rest.
func (w *compactor) shorten(run []history.Item) (rest []history.Item, err error) {
	if len(run) < longRun {
		return run, nil
	}
	slices.SortFunc(run, history.NewestFirst)
	last := run[len(run)-1].Record.Version
	n, _ := slices.BinarySearchFunc(run, last, func(it history.Item, v history.Version) int {
		return cmp.Or(cmp.Compare(v, it.Record.Version), 1)
	})
	rest = slices.Clone(run[n:])
	return rest, w.finish(run[:n])
}

func (w *compactor) finish(run []history.Item) error {
	u := &history.User{Cleared: w.Cleared}
	left := run[:0]
	for _, it := range run {
		it.Record = it.Record.After(u.ClearedAt(it.Object.Type))
		if it.Record != nil && it.Record.Version.Time() >= w.Oldest {
			left = append(left, it)
		}
	}
	slices.SortFunc(left, history.NewestFirst)
	chunks, err := Encode(left)
	if err != nil {
		return err
	}
	for i := range chunks {
		c := &chunks[i]
		c.Name = w.Name(len(w.new))
		if err := c.compare(left[:c.Count]); err != nil {
			return err
		}
		left = left[c.Count:]
		w.listed, w.new = append(w.listed, c.Info), append(w.new, *c)
	}
	return nil
}

// compare reads a chunk back and reports the first differing record.
func (e *Encoded) compare(items []history.Item) error {
	c, err := e.Open(e.Data)
	if err != nil {
		return err
	}
	n := 0
	for it, err := range c.Items(nil) {
		if err != nil {
			return err
		}
		want := items[n]
		if it.Object != want.Object || it.Record.CellTime != want.Record.CellTime || !history.Same(it.Record, want.Record) {
			return fmt.Errorf("%s: %w", want.Object, errDiffers)
		}
		n++
	}
	return nil
}

var errDiffers = errors.New("a record does not come back from a chunk as it was")

func (w *compactor) plan() Plan {
	p := planOf(w.old, w.chunks, &Metadata{Version: w.Version, Cleared: w.Cleared, Chunks: w.listed}, w.new)
	p.Removed = w.removed
	return p
}

// planOf compares old and new segments.
func planOf(old *Reader, chunks []compacting, m *Metadata, written []Encoded) Plan {
	p := Plan{Metadata: m, New: written}
	for i := range chunks {
		c := &chunks[i]
		if c.gone {
			p.Gone = append(p.Gone, c.info.Name)
		}
		p.Changed = p.Changed || c.gone || len(c.superseded) > len(old.Chunks[i].Superseded)
	}
	p.Changed = p.Changed || len(p.New) > 0 || len(old.Chunks) > 0 && !maps.Equal(m.Cleared, old.Cleared)
	return p
}
