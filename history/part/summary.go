package part

import (
	"cmp"
	"fmt"
	"iter"
	"strings"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
)

// Summary is what remains of a record that is past its life.
type Summary struct {
	Object      history.Object
	First, Last int64 // when the object was played, in Unix milliseconds
	Plays       uint64
	Watched     int64 // milliseconds, as the other two
	Furthest    int64
	Duration    int64
	Finished    bool // the user left it at its end
}

// Summarize returns the summary of a visible record under the rules of its type.
func Summarize(o history.Object, r *history.Record, rules history.Rules) Summary {
	return Summary{
		Object: o, First: r.Oldest(), Last: r.PlayedAt(), Plays: r.Plays(), Watched: r.Watched(),
		Furthest: r.Furthest(), Duration: r.Duration, Finished: rules.Completed(r),
	}
}

// The columns of summaries. Their order is part of the format: it is only added to.
const (
	sumTime = iota // as colTime
	sumState
	sumType
	sumFirst
	sumPlays
	sumWatched
	sumDuration
	sumFurthest
	sumID
	summaryColumns = sumID + textColumns
)

func summaryCoder() *coder { return newCoder(summaryColumns, sumID) }

// summary goes through a summary.
func (c *coder) summary(s *Summary) {
	last := history.VersionOf(s.Last, 0)
	c.version(&last)
	s.Last = last.Time()
	finished := uint64(0)
	if s.Finished {
		finished = 1
	}
	c.unsigned(sumState, &finished)
	s.Finished = finished&1 == 1
	c.typ(&s.Object)
	c.text(0, &s.Object.ID)
	c.number(sumFirst, &s.First, s.Last)
	c.unsigned(sumPlays, &s.Plays)
	c.number(sumWatched, &s.Watched, 0)
	c.number(sumDuration, &s.Duration, 0)
	c.like(sumFurthest, &s.Furthest, s.Duration)
}

// LatestFirst is the order of summaries: by when the object was last played, ties by the object's
// text, both descending.
func LatestFirst(a, b Summary) int {
	return cmp.Or(cmp.Compare(b.Last, a.Last), strings.Compare(b.Object.String(), a.Object.String()))
}

// EncodeSummaries divides summaries of one user into chunks. They are in the order of
// [LatestFirst], one for each object. It fails with [history.ErrInvalid] when they are not.
func EncodeSummaries(all []Summary) ([]Encoded, error) {
	var chunks []Encoded
	for len(all) > 0 {
		c := summaryCoder()
		c.time = all[0].Last
		info := Info{Newest: history.VersionOf(all[0].Last, 0)}
		for info.Count < min(len(all), MaxRecords) && c.bits < 8*ChunkSize {
			s := all[info.Count]
			if err := s.Object.Validate(); err != nil {
				return nil, fmt.Errorf("summary: %w", err)
			}
			if n := info.Count; n > 0 && LatestFirst(all[n-1], s) >= 0 {
				return nil, fmt.Errorf("summary %s: %w: want the latest first", s.Object, history.ErrInvalid)
			}
			c.summary(&s)
			info.Count, info.Oldest = info.Count+1, history.VersionOf(s.Last, 0)
		}
		info.Filter = bloom.New(info.Count)
		for _, s := range all[:info.Count] {
			info.Filter.Add(hashOf(s.Object))
		}
		chunks = append(chunks, c.finish(Summaries, info))
		all = all[info.Count:]
	}
	return chunks, nil
}

// Summaries yields the summaries, latest first. After an error, which wraps [ErrCorrupt], there is
// nothing more.
func (c *Chunk) Summaries() iter.Seq2[Summary, error] {
	return func(yield func(Summary, error) bool) {
		d := summaryCoder()
		if err := c.begin(d, Summaries); err != nil {
			yield(Summary{}, err)
			return
		}
		for i := range c.count {
			var s Summary
			d.summary(&s)
			err := d.err
			if err == nil && s.Object.Validate() != nil {
				err = fmt.Errorf("%w: %w", ErrCorrupt, s.Object.Validate())
			}
			if err != nil {
				yield(Summary{}, fmt.Errorf("chunk: summary %d: %w", i, err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}
