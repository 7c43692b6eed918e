package read

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stats"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// statsAtOnce is the number of records in memory.
const statsAtOnce = 1000

var statsBy = map[historyv1.StatsBy]stats.By{
	historyv1.StatsBy_STATS_BY_UNSPECIFIED: stats.Day, historyv1.StatsBy_STATS_BY_DAY: stats.Day,
	historyv1.StatsBy_STATS_BY_TYPE: stats.Type, historyv1.StatsBy_STATS_BY_OBJECT: stats.Object,
}

// Stats adds up a whole history on a walk through its pages, with summaries where records have expired. It fails
// rather than leave something out: if a store is unavailable, or if the range has too many viewings.
func (r *Reader) Stats(ctx context.Context, req *historyv1.StatsRequest) (*historyv1.StatsResponse, error) {
	return r.stats.do(ctx, requestName(req), func(ctx context.Context) (*historyv1.StatsResponse, error) { return r.sum(ctx, req) })
}

func (r *Reader) sum(ctx context.Context, req *historyv1.StatsRequest) (*historyv1.StatsResponse, error) {
	cfg, err := statsOf(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	s, records, err := r.addUp(ctx, req.GetUid(), cfg)
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	sum := s.Result(r.cfg.Now().UnixMilli())
	resp := &historyv1.StatsResponse{
		Total: statsSum(sum.Total), Undated: statsSum(sum.Undated), Records: uint32(records), //nolint:gosec // some hundred thousands
		LongestStreak: uint32(sum.Longest), CurrentStreak: uint32(sum.Current), //nolint:gosec // days
	}
	for _, b := range sum.Buckets {
		one := &historyv1.StatsBucket{Sum: statsSum(b.Sum)}
		if cfg.By == stats.Day {
			one.Day = b.Day.Number()
		} else {
			one.Object = &historyv1.Object{Id: b.Object.ID, Type: b.Object.Type}
		}
		resp.Buckets = append(resp.Buckets, one)
	}
	return resp, nil
}

// addUp adds each object once. The walk may list one twice that is played meanwhile.
func (r *Reader) addUp(ctx context.Context, uid string, cfg stats.Config) (*stats.Stats, int, error) {
	var w walk
	if err := r.begin(ctx, &w, uid, true, true); err != nil {
		return nil, 0, err
	}
	s, seen, seed := stats.New(cfg), hashes{}, maphash.MakeSeed()
	for more := true; more; {
		p, err := w.page(ctx, history.Query{Limit: statsAtOnce, Since: min(cfg.Since, maxTime)})
		if err != nil {
			return nil, 0, err
		}
		first := func(o history.Object) bool { return seen.add(maphash.Comparable(seed, o)) }
		for _, it := range p.items {
			if first(it.Object) {
				err = cmp.Or(err, s.Add(it))
			}
		}
		for _, o := range p.summaries {
			if first(o.Object) {
				err = cmp.Or(err, s.AddSummary(o))
			}
		}
		if more = p.more; err != nil {
			return nil, 0, err
		}
	}
	return s, seen.n, nil
}

// hashes is a set of hashes. It costs a third of a map, which the numbers of a long history would feel.
type hashes struct {
	table []uint64 // at most half full; 0 is free
	n     int
}

// add adds a hash and reports whether it is new.
func (s *hashes) add(hash uint64) bool {
	if 2*s.n >= len(s.table) {
		s.grow()
	}
	hash = max(hash, 1)
	last := uint64(len(s.table) - 1)
	i := hash & last
	for ; s.table[i] != 0; i = (i + 1) & last {
		if s.table[i] == hash {
			return false
		}
	}
	s.table[i] = hash
	s.n++
	return true
}

func (s *hashes) grow() {
	old := s.table
	s.table, s.n = make([]uint64, max(4*len(old), 1<<11)), 0
	for _, hash := range old {
		if hash != 0 {
			s.add(hash)
		}
	}
}

func statsSum(s stats.Sum) *historyv1.StatsSum {
	return &historyv1.StatsSum{WatchedMs: s.Watched, Plays: s.Plays, Viewings: s.Viewings}
}

func statsOf(req *historyv1.StatsRequest) (cfg stats.Config, err error) {
	by, known := statsBy[req.GetBy()]
	cfg = stats.Config{By: by, Since: req.GetSinceMs(), Until: req.GetUntilMs(), Limit: cmp.Or(int(req.GetLimit()), defaultPage)}
	switch {
	case !known:
		return cfg, history.Invalid("by", "want day, type or object")
	case req.GetLimit() > MaxPage:
		return cfg, history.Invalid("limit", "want 1 to 100")
	case cfg.Since < 0 || cfg.Until < 0:
		return cfg, history.Invalid("since", "since and until want Unix milliseconds")
	case cfg.Until > 0 && cfg.Since > cfg.Until:
		return cfg, history.Invalid("since", "want a time before until")
	}
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return cfg, err
	}
	cfg.Zone, err = history.ParseZone(cmp.Or(req.GetZone(), "UTC"))
	return cfg, err
}
