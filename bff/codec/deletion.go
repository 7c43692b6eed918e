package codec

import (
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Deletion is what a body asks to remove: objects, or else what was last reported in a
// range of times.
type Deletion struct {
	Objects []*historyv1.Object
	// Type is 0 for all types, SinceMs and UntilMs, both inclusive, are 0 for no bound.
	Type             uint32
	SinceMs, UntilMs int64
}

// DecodeDeletion reads {"objects"}, at most limit of them, or {"type","since","until"}
// with at least one of these. It fails as [DecodeObjects] does, and for null too: where a
// bound is missing more is removed, and that must not be a slip.
func DecodeDeletion(body []byte, limit int) (*Deletion, error) {
	d, deletion := newDecoder(body, "objects"), &Deletion{}
	if d.in.Kind() != scan.Object {
		d.noObject()
		return nil, d.in.End()
	}
	for name := range d.in.Object() {
		d.deletion(deletion, string(name), limit)
		d.strict()
	}
	if err := d.in.End(); err != nil {
		return nil, err
	}
	return deletion, deletion.check()
}

func (d *decoder) deletion(into *Deletion, name string, limit int) {
	switch name {
	case "objects":
		into.Objects = d.objects(limit)
		d.strict()
		if len(into.Objects) == 0 {
			d.in.Fail(history.Invalid("body.objects", "want at least one"))
		}
	case "type":
		into.Type = d.objectType(name)
	case "since":
		into.SinceMs = d.bound(name)
	case "until":
		into.UntilMs = d.bound(name)
	default:
		d.unknown("", []byte(name))
	}
}

func (d *decoder) bound(field string) int64 {
	if d.in.Kind() == scan.Null {
		d.in.Skip()
		d.refuse(field, wantTime)
		return 0
	}
	return d.time(field)
}

func (d *Deletion) check() error {
	ranged := d.Type != 0 || d.SinceMs != 0 || d.UntilMs != 0
	switch {
	case len(d.Objects) > 0 && ranged:
		return history.Invalid("body", "want objects or a range, not both")
	case len(d.Objects) == 0 && !ranged:
		return history.Invalid("body", "want objects, or a range of type, since and until")
	case d.UntilMs != 0 && d.SinceMs > d.UntilMs:
		return history.Invalid("body.since", "want a time before until")
	}
	return nil
}
