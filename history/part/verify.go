package part

import (
	"fmt"

	"github.com/playhead/playhead/history"
)

// Inspection is what the archive has of a user, by its form.
type Inspection struct {
	Live     int // records
	Both     int // of them, those of whose object there is one in parts
	Parts    *Metadata
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
	place := 0
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
		}
		before = it
		place++
	}
	return nil
}
