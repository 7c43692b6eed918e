package codec

import (
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// DecodeObjects reads {"objects":[{"id","type"}]}, 1 to limit of them. It fails with
// [scan.ErrSyntax], with [ErrTooLarge], and with [history.ErrInvalid] for any field
// that is unknown or wrong.
func DecodeObjects(body []byte, limit int) ([]*historyv1.Object, error) {
	d := newDecoder(body, "objects")
	if d.in.Kind() != scan.Object {
		d.noObject()
		return nil, d.in.End()
	}
	var objects []*historyv1.Object
	for name := range d.in.Object() {
		if string(name) == "objects" {
			objects = d.objects(limit)
		} else {
			d.unknown("", name)
		}
		d.strict()
	}
	if len(objects) == 0 {
		d.in.Fail(history.Invalid("body.objects", "want at least one"))
	}
	return objects, d.in.End()
}

func (d *decoder) objects(limit int) (objects []*historyv1.Object) {
	for range d.entries(limit) {
		id, typ := d.object("")
		d.strict()
		objects = append(objects, &historyv1.Object{Id: id, Type: typ})
	}
	return objects
}
