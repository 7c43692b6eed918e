package segment

import (
	"fmt"
	"iter"
	"slices"

	"github.com/playhead/playhead/history"
)

// Reader reads a user's segments.
type Reader struct {
	*Metadata
	// Oldest is the expiry horizon, in Unix milliseconds; 0 disables expiry.
	Oldest int64
	// Chunk reads a listed chunk, as [Info.Open] does.
	Chunk func(i *Info) (*Chunk, error)
	// Hidden bounds a query's records hidden by live ones.
	Hidden int
	// Ahead, if set, prefetches chunks that Chunk will read soon. Has reports whether a chunk is in memory.
	Ahead func(infos []*Info) error
	Has   func(i *Info) bool
}

// Resolve returns an object's archived record, given its live and compacted ones, either nil. The later cell
// time wins, as among cells; equal ones with different contents are merged.
func Resolve(live, compacted *history.Record) *history.Record {
	switch {
	case compacted == nil || live != nil && live.CellTime > compacted.CellTime:
		return live
	case live == nil || live.CellTime < compacted.CellTime:
		return compacted
	case history.Same(live, compacted):
		return live
	}
	both := *history.Merge(live, compacted)
	both.Revision = history.NewRevision()
	return &both
}

// Find returns the objects' records, nil if missing, with new revisions. live has their live records, nil if
// missing: it skips chunks with only earlier cell times.
func (p *Reader) Find(objects []history.Object, live []*history.Record) ([]*history.Record, error) {
	found, hashes := make([]*history.Record, len(objects)), make([]uint64, len(objects))
	for n, o := range objects {
		hashes[n] = hashOf(o)
	}
	if err := p.readCandidates(hashes, live); err != nil {
		return nil, err
	}
	for i := range p.Chunks {
		info := &p.Chunks[i]
		if info.Kind != Records {
			continue
		}
		var some []int
		for n := range objects {
			if found[n] == nil && (live[n] == nil || live[n].CellTime <= info.CellTime) && info.Filter.Has(hashes[n]) {
				some = append(some, n)
			}
		}
		if len(some) == 0 {
			continue
		}
		err := p.at(info, func(yield func(history.Object) bool) {
			for _, n := range some {
				if !yield(objects[n]) {
					return
				}
			}
		}, func(_ int, it history.Item) {
			for _, n := range some {
				if objects[n] == it.Object && it.Record.Version.Time() >= p.Oldest {
					found[n] = renewed(it.Record)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readCandidates prefetches the newest chunks that may have the objects.
func (p *Reader) readCandidates(hashes []uint64, live []*history.Record) error {
	if p.Ahead == nil {
		return nil
	}
	var infos []*Info
	for i := range p.Chunks {
		info := &p.Chunks[i]
		for n, h := range hashes {
			if info.Kind == Records && (live[n] == nil || live[n].CellTime <= info.CellTime) && info.Filter.Has(h) {
				infos = append(infos, info)
				break
			}
		}
	}
	return p.Ahead(infos[:min(len(infos), maxAhead)])
}

// at reads a chunk's valid records of the objects, and possibly others.
func (p *Reader) at(info *Info, objects iter.Seq[history.Object], use func(place int, it history.Item)) error {
	c, err := p.Chunk(info)
	if err != nil {
		return err
	}
	places, err := c.Places(objects)
	if err != nil {
		return err
	}
	return c.At(slices.DeleteFunc(places, info.superseded), use)
}

// superseded reports whether the record at a place is superseded.
func (i *Info) superseded(place int) bool {
	_, found := slices.BinarySearch(i.Superseded, uint16(place)) //nolint:gosec // a chunk has few
	return found
}

// renewed sets a new revision on a record fresh from a chunk.
func renewed(r *history.Record) *history.Record {
	if r != nil {
		r.Revision = history.NewRevision()
	}
	return r
}

// Items yields the records that a query selects, newest first, ignoring its limit. They have new revisions. It
// ends after an error.
func (p *Reader) Items(q history.Query) iter.Seq2[history.Item, error] {
	q.Since = max(q.Since, p.Oldest)
	top := topOf(q)
	return func(yield func(history.Item, error) bool) {
		chunks, first := Ahead(p.Chunks, q, p.Hidden)
		// A query that continues in a cached chunk probably reads the whole history, as an export does.
		walks := p.Ahead != nil && q.After != (history.Cursor{}) && len(chunks) > 0 && p.Has(chunks[0])
		for i, end, more := 0, 0, max(1, first); i < len(chunks); i++ {
			if i >= end && (!walks || !p.Has(chunks[i])) {
				if end, more = i+more, min(2*more, maxAhead); walks { // ever more, since much is probably wanted
					end = max(first, i+maxAhead)
				}
				if err := p.readAhead(chunks[i:min(end, len(chunks))]); err != nil {
					yield(history.Item{}, err)
					return
				}
			}
			if !p.itemsOf(chunks[i], q, top, yield) {
				return
			}
		}
	}
}

// readAhead prefetches chunks, if the reader can.
func (p *Reader) readAhead(infos []*Info) error {
	if p.Ahead == nil {
		return nil
	}
	return p.Ahead(infos)
}

// itemsOf yields a chunk's records and reports whether to continue.
func (p *Reader) itemsOf(info *Info, q history.Query, top history.Version, yield func(history.Item, error) bool) bool {
	c, err := p.Chunk(info)
	if err != nil {
		yield(history.Item{}, err)
		return false
	}
	wanted := func(i int, v history.Version, typ uint32) bool {
		return v.Time() >= q.Since && (q.Type == 0 || q.Type == typ) && !info.superseded(i)
	}
	for it, err := range c.ItemsFrom(top, wanted) {
		if err != nil {
			yield(history.Item{}, err)
			return false
		}
		if q.Wants(it.Place()) {
			renewed(it.Record)
			if !yield(it, nil) {
				return false
			}
		}
	}
	return true
}

// Live is the live part of a user's row.
type Live struct {
	// Items yields the live records of a query, newest first.
	Items iter.Seq2[history.Item, error]
	// Get returns an object's live record, nil if missing.
	Get func(o history.Object) (*history.Record, error)
}

// Stitch yields a query's records of the live part and the segments, newest first, one per object. It ends
// after an error.
func Stitch(live Live, segments *Reader, q history.Query) iter.Seq2[history.Item, error] {
	return func(yield func(history.Item, error) bool) {
		next, stop := iter.Pull2(segments.Items(q))
		defer stop()
		s := stitcher{live: live, segments: segments, next: next}
		if chunks, _ := Ahead(segments.Chunks, q, 0); len(chunks) > 0 {
			s.newest = chunks[0].Newest
		}
		for it, err := range live.Items {
			if err == nil {
				err = s.until(it.Place(), yield)
			}
			if err == nil && !s.stopped {
				err = s.liveItem(it, yield)
			}
			if s.end(err, yield) {
				return
			}
		}
		s.end(s.until(history.Cursor{}, yield), yield)
	}
}

type stitcher struct {
	live     Live
	segments *Reader
	next     func() (history.Item, error, bool)
	newest   history.Version // latest version in the segments
	begun    bool            // the segments are being read
	item     history.Item    // next of the segments; no record at their end
	err      error           // error instead of item
	stopped  bool
}

func (s *stitcher) step() {
	var ok bool
	if s.item, s.err, ok = s.next(); !ok {
		s.item = history.Item{}
	}
}

// end reports whether iteration has ended.
func (s *stitcher) end(err error, yield func(history.Item, error) bool) bool {
	if err != nil && !s.stopped {
		s.stopped = true
		yield(history.Item{}, err)
	}
	return s.stopped
}

// until yields the segments' items before a place; the zero place means all. A live record at the same place
// takes precedence.
func (s *stitcher) until(at history.Cursor, yield func(history.Item, error) bool) error {
	if !s.begun {
		if at != (history.Cursor{}) && at.Version > s.newest {
			return nil
		}
		s.begun = true
		s.step()
	}
	for ; ; s.step() {
		if s.err != nil {
			return s.err
		}
		if s.item.Record == nil || at != (history.Cursor{}) && s.item.Place().Compare(at) >= 0 {
			return nil
		}
		r, err := s.live.Get(s.item.Object)
		if err != nil {
			return err
		}
		left := Resolve(r, s.item.Record)
		if left.Version != s.item.Record.Version || r != nil && left.Version == r.Version {
			continue // it comes at the live record's place
		}
		if !yield(history.Item{Object: s.item.Object, Record: left}, nil) {
			s.stopped = true
			return nil
		}
	}
}

// liveItem yields a live record, unless a compacted one takes its place.
func (s *stitcher) liveItem(it history.Item, yield func(history.Item, error) bool) error {
	compacted, err := s.segments.Find([]history.Object{it.Object}, []*history.Record{it.Record})
	if err != nil {
		return err
	}
	left := Resolve(it.Record, compacted[0])
	if left.Version != it.Record.Version {
		return nil // it comes at the compacted record's place
	}
	it.Record = left
	s.stopped = !yield(it, nil)
	return nil
}

// Inspection describes a user's archived history.
type Inspection struct {
	Live     int // records
	Both     int // live records whose object also has a compacted one
	Segments *Metadata
	Unlisted []string // chunks missing from the metadata
	Wrong    []error  // faults found, if verified
}

// Verify compares all chunks of records with the metadata. It returns the numbers of valid records by object
// text, and each fault once.
func (p *Reader) Verify() (objects map[string]int, wrong []error) {
	objects = make(map[string]int)
	for i := range p.Chunks {
		info := &p.Chunks[i]
		if info.Kind != Records {
			continue
		}
		if err := p.verify(info, objects); err != nil {
			wrong = append(wrong, fmt.Errorf("chunk %q: %w", info.Name, err))
		}
	}
	for text, n := range objects {
		if n > 1 {
			wrong = append(wrong, fmt.Errorf("%w: object %s counts %d times", ErrCorrupt, text, n))
		}
	}
	return objects, wrong
}

func (p *Reader) verify(info *Info, objects map[string]int) error {
	c, err := p.Chunk(info)
	if err != nil {
		return err
	}
	var before history.Item
	place, counts := 0, make(map[uint32]int)
	for it, err := range c.Items(nil) {
		switch {
		case err != nil:
			return err
		case before.Record != nil && history.NewestFirst(before, it) >= 0:
			return fmt.Errorf("%w: %s is not newest first", ErrCorrupt, it.Object)
		case it.Record.Version > info.Newest || it.Record.Version < info.Oldest || it.Record.CellTime > info.CellTime:
			return fmt.Errorf("%w: %s is not in the times of the chunk", ErrCorrupt, it.Object)
		case !info.MayHave(it.Object):
			return fmt.Errorf("%w: %s is not in the filter", ErrCorrupt, it.Object)
		}
		if !info.superseded(place) {
			objects[it.Object.String()]++
			counts[it.Object.Type]++
		}
		before = it
		place++
	}
	for _, t := range info.Types {
		if counts[t.Type] != t.Count {
			return fmt.Errorf("%w: %d records of type %d count, the metadata lists %d", ErrCorrupt, counts[t.Type], t.Type, t.Count)
		}
	}
	return nil
}
