package part

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/playhead/playhead/history"
)

// coder goes through the fields of records, one record after the other, to encode them or to
// decode them. Both ways are written once, so that no field goes one way only.
type coder struct {
	columns []column
	texts   []texts
	err     error
	decodes bool

	bits int // about how many what is encoded takes

	packed []byte          // the bits of all columns
	skips  bool            // the record at hand is decoded for the sake of those after it
	fresh  *history.Record // for the next record that is wanted

	time     int64    // of the record before
	viewings []uint64 // of the record at hand
}

func newCoder(columns int, textColumn ...int) *coder {
	c := &coder{columns: make([]column, columns), texts: make([]texts, len(textColumn))}
	for i, first := range textColumn {
		c.texts[i].first = first
	}
	return c
}

// clone returns a decoder that goes on from the same place.
func (c *coder) clone() *coder {
	d := *c
	d.columns, d.texts = slices.Clone(c.columns), slices.Clone(c.texts)
	for i := range d.texts {
		d.texts[i].seen = slices.Clip(d.texts[i].seen) // what is appended is the clone's own
	}
	d.fresh, d.viewings = nil, nil
	return &d
}

func (c *coder) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
	}
}

func (c *coder) put(col int, v uint64) {
	c.columns[col].values = append(c.columns[col].values, v)
	c.bits += bits.Len64(v) + 2 // a symbol takes about two
}

func (c *coder) get(col int) uint64 { return c.columns[col].next(c.packed) }

// unsigned goes through a number.
func (c *coder) unsigned(col int, p *uint64) {
	if c.decodes {
		*p = c.get(col)
	} else {
		c.put(col, *p)
	}
}

// number goes through a number that is mostly near another one, which is known.
func (c *coder) number(col int, p *int64, near int64) {
	if c.decodes {
		*p = near + unzigzag(c.get(col))
	} else {
		c.put(col, zigzag(*p-near))
	}
}

// rare goes through a number that is mostly 0, and otherwise near another one.
func (c *coder) rare(col int, p *int64, near int64) {
	if c.decodes {
		*p = near + unzigzag(unswap(c.get(col), zigzag(-near)))
	} else {
		c.put(col, swap(zigzag(*p-near), zigzag(-near)))
	}
}

// like goes through a number that is often the same as another one, and else as large as it is.
func (c *coder) like(col int, p *int64, other int64) {
	if c.decodes {
		*p = unzigzag(unswap(c.get(col), zigzag(other)))
	} else {
		c.put(col, swap(zigzag(*p), zigzag(other)))
	}
}

// chain goes through a time that is near the one before, and returns it.
func (c *coder) chain(col int, p *int64, before int64) int64 {
	c.number(col, p, before)
	return *p
}

// version goes through the time of a version, which is that of the record before or earlier. The
// rank is added later.
func (c *coder) version(p *history.Version) {
	if c.decodes {
		c.time -= int64(c.get(colTime)) //nolint:gosec // bits
		*p = history.Version(c.time << 2)
		return
	}
	c.put(colTime, uint64(c.time-p.Time())) //nolint:gosec // bits
	c.time = p.Time()
}

// versionOf goes through the version of a part of the record: where it is there, mostly the
// record's own.
func (c *coder) versionOf(col int, p *history.Version, present bool, own history.Version) {
	if !present {
		own = 0
	}
	c.number(col, (*int64)(p), int64(own))
}

// typ goes through the type of an object.
func (c *coder) typ(o *history.Object) {
	t := uint64(o.Type)
	c.unsigned(colType, &t)
	if o.Type = uint32(t); uint64(o.Type) != t { //nolint:gosec // it is looked at
		c.fail("type %d", t)
	}
}

// text goes through a text, and reports whether there is one.
func (c *coder) text(i int, p *string) bool {
	t := &c.texts[i]
	if !c.decodes {
		t.encode(c, *p)
		return *p != ""
	}
	v := t.decode(c)
	if !c.skips {
		*p = v.String()
	}
	return v.how > textEmpty
}
