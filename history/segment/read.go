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
	// Oldest is the time before which records have expired, in Unix milliseconds. With 0 none have.
	Oldest int64
	// Chunk reads a chunk that the metadata lists, as [Info.Open] does.
	Chunk func(i *Info) (*Chunk, error)
	// Hidden is how many records of a query live ones may hide, at most.
	Hidden int
	// Ahead, if set, reads at once some chunks that Chunk will be asked for soon. Has reports whether a chunk is in memory
	// already.
	Ahead func(infos []*Info) error
	Has   func(i *Info) bool
}

// Resolve returns what an archive has of an object whose live record and whose record in a segment are
// given, nil where there is none: as among cells, the one with the later cell time, and of two
// contents with one cell time what both are folds of.
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

// Find returns the records of objects, nil where there is none. Their live records are given, nil
// for none: a chunk that has only earlier cell times than that is not looked into. The revisions are
// new ones.
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

// readCandidates reads the newest of the chunks that may have objects.
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

// at reads the records of a chunk that are of some objects and not superseded, and perhaps others.
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

// superseded reports whether the record at a place counts no more.
func (i *Info) superseded(place int) bool {
	_, found := slices.BinarySearch(i.Superseded, uint16(place)) //nolint:gosec // a chunk has few
	return found
}

// renewed gives a record that has left a chunk, and is nobody else's, a revision.
func renewed(r *history.Record) *history.Record {
	if r != nil {
		r.Revision = history.NewRevision()
	}
	return r
}

// Items yields the records that a query asks for, newest first, whatever its limit is. Their
// revisions are new ones. After an error there is nothing more.
func (p *Reader) Items(q history.Query) iter.Seq2[history.Item, error] {
	q.Since = max(q.Since, p.Oldest)
	top := topOf(q)
	return func(yield func(history.Item, error) bool) {
		chunks, first := Ahead(p.Chunks, q, p.Hidden)
		// A query that begins in a chunk that is there most likely walks through the whole history, as an export does.
		walks := p.Ahead != nil && q.After != (history.Cursor{}) && len(chunks) > 0 && p.Has(chunks[0])
		for i, end, more := 0, 0, max(1, first); i < len(chunks); i++ {
			if i >= end && (!walks || !p.Has(chunks[i])) {
				if end, more = i+more, min(2*more, maxAhead); walks { // ever more, since much seems to be wanted
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

// readAhead reads chunks that are needed soon, where the reader does that.
func (p *Reader) readAhead(infos []*Info) error {
	if p.Ahead == nil {
		return nil
	}
	return p.Ahead(infos)
}

// itemsOf yields those of a chunk, and reports whether to go on.
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
	// Items yields the records that a query asks for, newest first.
	Items iter.Seq2[history.Item, error]
	// Get returns the live record of an object, nil where there is none.
	Get func(o history.Object) (*history.Record, error)
}

// Stitch yields what a query asks for of the live segment and of the segments together, newest first, each
// object once. After an error there is nothing more.
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
	newest   history.Version // that the segments may have
	begun    bool            // to read them
	item     history.Item    // the next one of the segments, without a record at their end
	err      error           // in place of it
	stopped  bool
}

func (s *stitcher) step() {
	var ok bool
	if s.item, s.err, ok = s.next(); !ok {
		s.item = history.Item{}
	}
}

// end reports whether nothing more is to come.
func (s *stitcher) end(err error, yield func(history.Item, error) bool) bool {
	if err != nil && !s.stopped {
		s.stopped = true
		yield(history.Item{}, err)
	}
	return s.stopped
}

// until yields the items of the segments that come before a place, or, of the zero place, all. Where
// the live record of an object stands at the same place, that one comes.
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
			continue // it stands at the place of the live one
		}
		if !yield(history.Item{Object: s.item.Object, Record: left}, nil) {
			s.stopped = true
			return nil
		}
	}
}

// liveItem yields a live record, unless one in a segment takes its place.
func (s *stitcher) liveItem(it history.Item, yield func(history.Item, error) bool) error {
	compacted, err := s.segments.Find([]history.Object{it.Object}, []*history.Record{it.Record})
	if err != nil {
		return err
	}
	left := Resolve(it.Record, compacted[0])
	if left.Version != it.Record.Version {
		return nil // it stands at the place of the other
	}
	it.Record = left
	s.stopped = !yield(it, nil)
	return nil
}

// Inspection is what the archive has of a user, by its form.
type Inspection struct {
	Live     int // records
	Both     int // of them, those of whose object there is one in segments
	Segments *Metadata
	Unlisted []string // chunks that no metadata lists
	Wrong    []error  // what is wrong, if it was looked for
}

// Verify reads all chunks of records and compares them with what the metadata says of them. It
// returns how many records count, by the texts of their objects, and what is wrong, nothing twice.
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
