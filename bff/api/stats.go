package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

type statsInput struct {
	Since string `query:"since" format:"date-time" doc:"Nothing before it. In a query a + is written as %2B."`
	Until string `query:"until" format:"date-time" doc:"Nothing after it."`
	Zone  string `query:"zone" maxLength:"64" default:"UTC" doc:"The time zone of the days, such as Europe/Berlin, or an offset such as +02:00." example:"Europe/Berlin"`
	By    string `query:"by" enum:"day,type,object" default:"day" doc:"What the buckets are."`
	Limit uint32 `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"How many objects at most; days and types are all there."`
}

// stats is the answer to GET /v1/stats.
type stats struct {
	Buckets []statsBucket `json:"buckets" nullable:"false" doc:"Those with anything in them: days and types ascending, objects most watched first."`
	Total   statsSum      `json:"total" doc:"Of everything in the range, whatever the buckets are."`
	Undated statsSum      `json:"undated" doc:"By day: the part of the total that is in no bucket, because only its sum over several days is known."`
	Streak  *statsStreak  `json:"streak,omitempty" doc:"By day only."`
}

type statsBucket struct {
	Day    string        `json:"day,omitempty" format:"date" doc:"By day: the day in the zone."`
	Type   uint32        `json:"type,omitempty" doc:"By type."`
	Object *codec.Object `json:"object,omitempty" doc:"By object."`

	WatchedMS int64 `json:"watched_ms" doc:"As in the total."`
	Plays     int64 `json:"plays" doc:"As in the total."`
	Viewings  int64 `json:"viewings" doc:"As in the total."`
}

type statsSum struct {
	WatchedMS int64 `json:"watched_ms" doc:"Milliseconds of objects that were played, as far as players reported them: of each viewing at most the time that it took, of all viewings on one device at most the time that passed."`
	Plays     int64 `json:"plays" doc:"Plays that reached the end, by when they did. One that was marked by hand counts too."`
	Viewings  int64 `json:"viewings" doc:"Sessions, by when they last reported."`
}

type statsStreak struct {
	LongestDays uint32 `json:"longest_days" doc:"The most days in a row with a viewing."`
	CurrentDays uint32 `json:"current_days" doc:"Those up to the last day of the range, which is today at the latest, or up to the day before."`
}

const statsText = "Computed from the records when asked for, so what was deleted is gone from it at once. Plays and viewings are exact. " +
	"The time of a viewing is spread evenly from its beginning to its last report, so how it divides between two days is an estimate. " +
	"A device plays one thing at a time: viewings that overlap on it share the time, so no day has more hours than a day per device. " +
	"Of an object the newest 128 viewings have times: what was before them counts as undated, where since is absent. " +
	"Summaries of expired records have sums only: one counts on a day if it is all of that day, else as undated, and not at all if since or until divides it. " +
	"It costs one more request for each thousand records. A range with more than some 400,000 viewings is refused."

func statsOperation() huma.Operation {
	op := operation(http.MethodGet, "/v1/stats", "Time watched, plays and viewings per day, type or object", nil)
	op.Description = statsText
	return op
}

var statsBy = map[string]historyv1.StatsBy{
	"day": historyv1.StatsBy_STATS_BY_DAY, "type": historyv1.StatsBy_STATS_BY_TYPE, "object": historyv1.StatsBy_STATS_BY_OBJECT,
}

func (a *api) stats(ctx context.Context, in *statsInput) (*stats, error) {
	req := &historyv1.StatsRequest{Uid: uidOf(ctx), Zone: in.Zone, By: statsBy[in.By], Limit: in.Limit}
	var err error
	if req.SinceMs, err = queryTime("query.since", in.Since); err != nil {
		return nil, err
	}
	if req.UntilMs, err = queryTime("query.until", in.Until); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.Stats(ctx, req)
	if err != nil {
		return nil, err
	}
	a.pay(ctx, float64(resp.GetRecords()/1000))
	return newStats(req.GetBy(), resp), nil
}

func newStats(by historyv1.StatsBy, resp *historyv1.StatsResponse) *stats {
	out := &stats{Buckets: make([]statsBucket, 0, len(resp.GetBuckets())), Total: newStatsSum(resp.GetTotal()), Undated: newStatsSum(resp.GetUndated())}
	if by == historyv1.StatsBy_STATS_BY_DAY {
		out.Streak = &statsStreak{LongestDays: resp.GetLongestStreak(), CurrentDays: resp.GetCurrentStreak()}
	}
	for _, b := range resp.GetBuckets() {
		sum := newStatsSum(b.GetSum())
		one := statsBucket{WatchedMS: sum.WatchedMS, Plays: sum.Plays, Viewings: sum.Viewings}
		switch by {
		case historyv1.StatsBy_STATS_BY_DAY:
			one.Day = codec.FormatDay(b.GetDay())
		case historyv1.StatsBy_STATS_BY_TYPE:
			one.Type = b.GetObject().GetType()
		default:
			one.Object = &codec.Object{ID: b.GetObject().GetId(), Type: b.GetObject().GetType()}
		}
		out.Buckets = append(out.Buckets, one)
	}
	return out
}

func newStatsSum(s *historyv1.StatsSum) statsSum {
	return statsSum{WatchedMS: s.GetWatchedMs(), Plays: s.GetPlays(), Viewings: s.GetViewings()}
}
