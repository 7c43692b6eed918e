package codec

import (
	"github.com/playhead/playhead/bff/scan"
	"github.com/playhead/playhead/history"
)

// DecodeSettings reads {"recording"}, which must be given: to switch by a slip what a
// user has decided is worse than to refuse. It fails as [DecodeObjects] does.
func DecodeSettings(body []byte) (recording bool, err error) {
	d, given := newDecoder(body, ""), false
	if d.in.Kind() != scan.Object {
		d.noObject()
		return false, d.in.End()
	}
	for name := range d.in.Object() {
		if string(name) != "recording" {
			d.unknown("", name)
			continue
		}
		given = d.in.Kind() != scan.Null
		recording = d.flag("recording")
		d.strict()
	}
	if !given {
		d.in.Fail(history.Invalid("body.recording", "want true or false"))
	}
	return recording, d.in.End()
}
