package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	"github.com/playhead/playhead/history"
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

// Plays is the stream of plays of all users.
type Plays interface {
	// After returns up to limit messages after a cursor, oldest first, and the next cursor. The empty cursor is before
	// the oldest message. It fails with [history.ErrGone] if messages after the cursor are no longer kept.
	After(ctx context.Context, cursor string, limit int) (messages []history.PlayMessage, next string, err error)
}

var errNoPlays = errors.New("this server keeps no stream of plays; playhead serve does with --plays")

type playsInput struct {
	After string `query:"after" maxLength:"64" doc:"The next of the answer before. Without it the answer begins with the oldest message."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// plays is the answer to GET /v1/plays.
type plays struct {
	Plays []play `json:"plays" nullable:"false" doc:"Oldest first, by when the server learned of them; those of a user and object in the order in which they count."`
	Next  string `json:"next,omitempty" doc:"To be asked after, also where plays is empty. It is missing while nothing was played yet."`
}

type play struct {
	ID      string        `json:"id" doc:"Names the play: a retraction has the same id. It begins with the time in milliseconds, as nine base-36 digits."`
	Kind    string        `json:"kind" enum:"completed,retracted,deleted,cleared" doc:"A play that is complete, or one that counts no longer. With deleted all plays of the object up to the time are removed, with cleared all of the type, or of all types."`
	User    string        `json:"user"`
	Object  *codec.Object `json:"object,omitempty" doc:"Not where all is cleared."`
	Type    uint32        `json:"type,omitempty" doc:"The type that is cleared; without it all are."`
	Viewing string        `json:"viewing,omitempty" doc:"Names the session within the object."`
	Time    time.Time     `json:"time" doc:"When the end was reached first; or up to when is removed."`
}

func (a *api) plays(ctx context.Context, in *playsInput) (*plays, error) {
	if a.cfg.Plays == nil {
		return nil, errNoPlays
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	messages, next, err := a.cfg.Plays.After(ctx, in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &plays{Plays: make([]play, len(messages)), Next: next}
	for i, m := range messages {
		out.Plays[i] = newPlay(m)
	}
	return out, nil
}

func newPlay(m history.PlayMessage) play {
	p := play{ID: m.ID(), Kind: string(m.Kind), User: m.Key.UID, Time: time.UnixMilli(m.At).UTC()}
	if m.Kind == history.PlaysCleared {
		p.Type = m.Key.Object.Type
	} else {
		p.Object = &codec.Object{ID: m.Key.Object.ID, Type: m.Key.Object.Type}
	}
	if m.Viewing != 0 {
		p.Viewing = fmt.Sprintf("%016x", m.Viewing)
	}
	return p
}

func playsOperation() huma.Operation {
	op := operation(http.MethodGet, "/v1/plays", "What all users have completed, as a stream", nil)
	op.Description = "For a token of the scope plays:read. Only playhead serve --plays keeps the stream; a deployment with Kafka has it in a topic. " +
		"The same message may come again, with the same id. 410 means that messages after the cursor are no longer kept: read what there is, and begin without a cursor."
	return op
}
