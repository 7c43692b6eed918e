package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

const maxCounts = 100

type countsBody struct {
	Objects []codec.Object `json:"objects" minItems:"1" maxItems:"100" nullable:"false"`
	Since   string         `json:"since,omitempty" format:"date" doc:"The first UTC day to list; without it no days are listed. At most 366 days." example:"2026-11-01"`
	Until   string         `json:"until,omitempty" format:"date" doc:"The last UTC day to list; today by default." example:"2026-11-30"`
}

// totals is the answer to POST /v1/counts.
type totals struct {
	Items []objectTotals `json:"items" nullable:"false" doc:"One for each object, in order."`
}

type objectTotals struct {
	Object  codec.Object `json:"object"`
	Counted bool         `json:"counted" doc:"Whether objects of this type are counted. There is no total otherwise."`
	Total   *countsSum   `json:"total,omitempty" doc:"Of all days; zeros for an object that nobody played."`
	Days    []countsDay  `json:"days,omitempty" nullable:"false" doc:"With since: the days that have anything, ascending. Days older than the retention are in the total only."`
	Through string       `json:"through,omitempty" format:"date-time" doc:"Everything archived up to then is in the totals. Absent where the server does not know."`
}

type countsSum struct {
	Plays     int64 `json:"plays" doc:"Plays that reached the end, by when they did."`
	Viewers   int64 `json:"viewers" doc:"Users with such a play; one counts once."`
	WatchedMS int64 `json:"watched_ms" doc:"Milliseconds of the object that were played."`
}

type countsDay struct {
	Day       string `json:"day" format:"date" doc:"The UTC day."`
	Plays     int64  `json:"plays" doc:"As in the total."`
	Viewers   int64  `json:"viewers" doc:"Users with such a play; one counts once a day."`
	WatchedMS int64  `json:"watched_ms" doc:"As in the total."`
}

func countsOperation() huma.Operation {
	op := operation(http.MethodPost, "/v1/counts", "Plays, viewers and watched time of up to 100 objects, of all users", exampleCounts)
	op.Description = "For a token of the scope counts:read. Types are counted with --counted-types. What users delete stays counted. " +
		"A report counts once its record is archived; totals may be a second old."
	return op
}

func (a *api) counts(ctx context.Context, in *upload) (*totals, error) {
	var req *historyv1.CountsRequest
	err := a.read(in, func(body []byte) (err error) {
		req, err = codec.DecodeCounts(body, maxCounts)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Counts(ctx, req)
	if err != nil {
		return nil, err
	}
	if got, want := len(resp.GetItems()), len(req.GetObjects()); got != want { // must not look like zeros
		return nil, fmt.Errorf("%d totals for %d objects", got, want)
	}
	out := &totals{Items: make([]objectTotals, len(resp.GetItems()))}
	for i, one := range resp.GetItems() {
		out.Items[i] = newTotals(req.GetObjects()[i], one)
	}
	return out, nil
}

func newTotals(o *historyv1.Object, from *historyv1.ObjectCounts) objectTotals {
	t := objectTotals{Object: codec.Object{ID: o.GetId(), Type: o.GetType()}, Counted: from.GetCounted(), Through: codec.FormatTime(from.GetThroughMs())}
	if t.Counted {
		sum := from.GetTotal()
		t.Total = &countsSum{sum.GetPlays(), sum.GetViewers(), sum.GetWatchedMs()}
	}
	for _, d := range from.GetDays() {
		sum := d.GetSum()
		t.Days = append(t.Days, countsDay{codec.FormatDay(d.GetDay()), sum.GetPlays(), sum.GetViewers(), sum.GetWatchedMs()})
	}
	return t
}
