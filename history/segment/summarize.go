package segment

import (
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
)

// Summing is the input of [Reader.Summarize].
type Summing struct {
	// Items are the records to summarize, tombstones, and records of previously deleted objects, one per
	// object, in any order.
	Items []history.Item
	// Past are viewings that an import adds, behind the records. Kept is set.
	Past []*history.PastViewing
	// Before is the time from which records are too young to count, in Unix milliseconds; 0 counts all. A
	// younger record only conveys its object's deletion.
	Before int64
	// Cleared are the user's clear marks. Covered summaries are removed.
	Cleared map[uint32]int64
	// Oldest is the expiry horizon of summaries, in Unix milliseconds.
	Oldest int64
	Rules  *history.Rulebook
	// Version is the version of the new metadata, above the old one.
	Version uint64
	// Name returns a never used name for the n-th new chunk.
	Name func(n int) string
}

// Summarize plans a user's summaries, one per object. It rewrites chunks with deleted or cleared summaries. A
// grown summary is marked superseded in its old chunk until half of that chunk is. New summaries start in small
// chunks, which are joined with chunks of similar size: a summary is rewritten each time their number doubles.
// Each new chunk is read back and compared.
func (p *Reader) Summarize(s Summing) (Plan, error) {
	w := summer{Summing: s, old: p, user: history.User{Cleared: s.Cleared}, items: byText(s.Items), past: make(map[history.Object][]*history.PastViewing), removals: make(map[history.Object]int64), chunks: make([]compacting, len(p.Chunks))}
	for _, v := range s.Past {
		v.Kept = false
		w.past[v.Object] = append(w.past[v.Object], v)
	}
	for o := range w.past {
		w.hashes = append(w.hashes, hashOf(o))
	}
	for _, it := range w.items {
		w.hashes = append(w.hashes, hashOf(it.Object))
		r := it.Record
		if r.RemovedAt > 0 {
			w.removals[it.Object] = r.RemovedAt
		}
		if past := w.past[it.Object]; past != nil {
			w.past[it.Object] = r.Lacks(past)
		}
		if s.Before > 0 && r.Version.Time() >= s.Before && !r.Deleted() {
			it.Record = &history.Record{State: history.StateDeleted, Version: history.VersionOf(r.RemovedAt, history.RankDelete), RemovedAt: r.RemovedAt}
		}
	}
	for i := range p.Chunks {
		c := &w.chunks[i]
		c.info = p.Chunks[i]
		c.superseded, c.types = slices.Clone(c.info.Superseded), slices.Clone(c.info.Types)
		if newest := c.info.Newest.Time(); newest < s.Oldest || newest <= s.Cleared[0] {
			c.gone = true
		} else if err := w.count(c); err != nil {
			return Plan{}, fmt.Errorf("summarize: %w", err)
		}
	}
	for _, it := range w.items {
		w.add(it.Object, it.Record)
	}
	for o := range w.past {
		w.add(o, nil)
	}
	slices.SortFunc(w.fresh, history.LatestFirst)
	counted := len(w.fresh)
	w.markRewrites()
	if err := w.write(); err != nil {
		return Plan{}, fmt.Errorf("summarize: %w", err)
	}
	plan := planOf(p, w.chunks, &Metadata{Version: s.Version, Cleared: s.Cleared, Chunks: w.listed}, w.new)
	plan.Counted = counted
	return plan, nil
}

type summer struct {
	Summing
	old      *Reader
	user     history.User
	items    map[string]*history.Item                  // not yet counted, by object
	hashes   []uint64                                  // of all items' objects
	past     map[history.Object][]*history.PastViewing // not yet counted
	removals map[history.Object]int64                  // deletion times, if deleted
	chunks   []compacting                              // old chunks
	fresh    []history.Summary                         // not yet in a chunk
	listed   []Info                                    // new list
	new      []Encoded
}

// add adds the summary of an object that has none, with its record and past viewings counted.
func (w *summer) add(o history.Object, r *history.Record) {
	n, left := history.Summary{}, false
	if r = r.After(w.user.ClearedAt(o.Type)); r != nil {
		n, left = n.With(o, r, w.Rules)
	}
	if n, left = w.withPast(o, n, left); left && n.Version.Time() >= w.Oldest {
		w.fresh = append(w.fresh, n)
	}
}

// withPast returns an object's summary, if there is one, with the past viewings counted.
func (w *summer) withPast(o history.Object, s history.Summary, there bool) (history.Summary, bool) {
	if !there {
		s = history.Summary{}
	}
	gone := max(w.user.ClearedAt(o.Type), w.removals[o])
	for _, v := range w.past[o] {
		if left, some := v.After(gone); some {
			s, v.Kept = s.WithPast(left)
			there = there || v.Kept
		}
	}
	delete(w.past, o)
	return s, there
}

// count counts the items whose objects the chunk has, and removes the summaries that change.
func (w *summer) count(c *compacting) error {
	if maps.Equal(w.Cleared, w.old.Cleared) && !slices.ContainsFunc(w.hashes, c.info.Filter.Has) {
		return nil
	}
	return w.old.summaries(&c.info, func(place int, had history.Summary) bool {
		if c.info.superseded(place) { // its bytes must go too
			s, left := had.After(max(w.user.ClearedAt(had.Object.Type), w.removals[had.Object]))
			c.rewrite = c.rewrite || !left || s != had
			return true
		}
		text := had.Object.String()
		s, left := had.After(w.user.ClearedAt(had.Object.Type))
		it := w.items[text]
		delete(w.items, text)
		if it != nil && it.Record.After(w.user.ClearedAt(had.Object.Type)) == nil {
			it = nil
		}
		n := s
		if it != nil {
			n, left = s.With(had.Object, it.Record.After(w.user.ClearedAt(had.Object.Type)), w.Rules)
		}
		n, left = w.withPast(had.Object, n, left)
		if left && n == had {
			return true
		}
		c.remove(place, had.Object.Type)
		if left {
			w.fresh = append(w.fresh, n)
		}
		// A removed summary's bytes must go.
		c.rewrite = c.rewrite || !left || s != had || it != nil && it.Record.RemovedAt > 0
		return true
	})
}

// summaries calls use with a chunk's summaries and their places.
func (p *Reader) summaries(info *Info, use func(place int, s history.Summary) bool) error {
	c, err := p.Chunk(info)
	if err != nil {
		return err
	}
	place := 0
	for s, err := range c.Summaries() {
		if err != nil {
			return err
		}
		if !use(place, s) {
			return nil
		}
		place++
	}
	return nil
}

// markRewrites marks the chunks to rewrite: overlapping new summaries, half superseded, or, from the latest on,
// at most twice as large as everything rewritten before.
func (w *summer) markRewrites() {
	before, small := 0, true // new and rewritten so far
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone {
			continue
		}
		newer := w.newerThan(c.info.Newest)
		if newer < len(w.fresh) && w.fresh[newer].Version >= c.info.Oldest || 2*len(c.superseded) > c.info.Count {
			c.rewrite = true
		}
		if newer > 0 && before == 0 {
			before = newer
		}
		if small && before > 0 && !c.info.Full && c.info.Count <= 2*before {
			c.rewrite = true
		}
		if small = small && c.rewrite || before == 0; c.rewrite {
			before += c.info.Count
		}
	}
}

// newerThan returns the number of new summaries later than a version.
func (w *summer) newerThan(v history.Version) int {
	n, _ := slices.BinarySearchFunc(w.fresh, v, func(s history.Summary, v history.Version) int {
		if s.Version > v {
			return -1
		}
		return 1
	})
	return n
}

func (w *summer) write() error {
	var run []history.Summary
	for i := range w.chunks {
		c := &w.chunks[i]
		if c.gone {
			continue
		}
		n := w.newerThan(c.info.Newest)
		run, w.fresh = append(run, w.fresh[:n]...), w.fresh[n:]
		if !c.rewrite {
			if err := w.finish(run); err != nil {
				return err
			}
			run = nil
			c.info.Superseded, c.info.Types = c.superseded, c.types
			w.listed = append(w.listed, c.info)
			continue
		}
		c.gone = true
		err := w.old.summaries(&c.info, func(place int, s history.Summary) bool {
			if _, found := slices.BinarySearch(c.superseded, uint16(place)); !found && s.Version.Time() >= w.Oldest { //nolint:gosec // a chunk has few
				run = append(run, s)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return w.finish(append(run, w.fresh...))
}

// finish encodes a run of summaries and reads it back.
func (w *summer) finish(run []history.Summary) error {
	slices.SortFunc(run, history.LatestFirst)
	chunks, err := EncodeSummaries(run)
	if err != nil {
		return err
	}
	for i := range chunks {
		c := &chunks[i]
		c.Name = w.Name(len(w.new))
		opened, err := c.Open(c.Data)
		if err != nil {
			return err
		}
		for s, err := range opened.Summaries() {
			if err != nil {
				return err
			}
			if s != run[0] {
				return fmt.Errorf("%s: %w", run[0].Object, errDiffers)
			}
			run = run[1:]
		}
		w.listed, w.new = append(w.listed, c.Info), append(w.new, *c)
	}
	return nil
}

// Summaries returns a page of a user's summaries. It applies clear marks and omits summaries before oldest.
func (p *Reader) Summaries(u history.User, oldest int64, q history.Query) (page history.SummaryPage, err error) {
	page.User = history.User{Cleared: u.Cleared}
	top := topOf(q)
	since := max(q.Since, oldest)
	for i := range p.Chunks {
		info := &p.Chunks[i]
		if _, may := info.ofType(q.Type); info.Kind != Summaries || info.Oldest > top || !may {
			continue
		}
		if info.Newest.Time() < since || page.More {
			break
		}
		err := p.visible(info, u, since, func(s history.Summary) bool {
			if s.Version > top || q.Type != 0 && s.Object.Type != q.Type || q.After != (history.Cursor{}) && s.Place().Compare(q.After) <= 0 {
				return true
			}
			if page.More = len(page.Items) >= q.Limit; !page.More {
				page.Items = append(page.Items, s)
			}
			return !page.More
		})
		if err != nil {
			return history.SummaryPage{}, err
		}
	}
	return page, nil
}

// SummariesOf returns the summaries of some objects, otherwise as Summaries. It reads only chunks that may have them.
func (p *Reader) SummariesOf(u history.User, oldest int64, objects []history.Object) (found []history.Summary, err error) {
	hashes := make(map[history.Object]uint64, len(objects))
	for _, o := range objects {
		hashes[o] = hashOf(o)
	}
	for i := range p.Chunks {
		info := &p.Chunks[i]
		if info.Kind != Summaries || !slices.ContainsFunc(objects, func(o history.Object) bool { return info.Filter.Has(hashes[o]) }) {
			continue
		}
		err := p.visible(info, u, oldest, func(s history.Summary) bool {
			if _, wanted := hashes[s.Object]; wanted {
				found = append(found, s)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// visible calls use with what a chunk's summaries show after the clear marks, until the first before oldest.
func (p *Reader) visible(info *Info, u history.User, oldest int64, use func(s history.Summary) bool) error {
	return p.summaries(info, func(place int, s history.Summary) bool {
		if s.Version.Time() < oldest {
			return false
		}
		s, left := s.After(u.ClearedAt(s.Object.Type))
		return info.superseded(place) || !left || use(s)
	})
}
