package replay

import (
	"strconv"

	"github.com/playhead/playhead/history"
)

// syntheticStart is when the first synthetic viewing began, any time will do.
const syntheticStart = 1_700_000_000_000

// Synthetic returns long viewings: so many viewers, one viewing after the other of
// each, so many heartbeats of each viewing (2 at least). Every viewing is of another
// object and half as long as that. The viewers' phases are spread evenly, so that
// the load is steady at any speed.
func Synthetic(viewers, viewings, beats int) []Viewing {
	played := int64(max(beats-2, 0))*Period + Period/2
	cycle := played + Period/2
	vs := make([]Viewing, 0, viewers*viewings)
	for i := range viewings {
		for v := range viewers {
			vs = append(vs, Viewing{
				UID:      strconv.Itoa(1_000_000 + v),
				Object:   history.Object{ID: strconv.Itoa(1_000_000 + (v*viewings+i)%1_000_000), Type: 1},
				At:       syntheticStart + int64(i)*cycle + int64(v)*cycle/int64(viewers),
				Played:   played,
				Duration: 2 * played,
			})
		}
	}
	return vs
}
