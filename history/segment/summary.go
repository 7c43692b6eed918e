package segment

import (
	"fmt"
	"iter"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/bloom"
)

// Columns of summaries. Their only text is the object's id.
const (
	sumID = iota
	sumTime
	sumState
	sumType
	sumLast
	sumFirst
	sumPlays
	sumWatched
	sumDuration
	sumFurthest
	sumBeforeUntil
	sumBeforeFirst
	sumBeforePlays
	sumBeforeWatched
	sumBeforeFurthest
	sumImported // length of the imported viewings, behind the id; the column is absent without any
	summaryColumns
)

func summaryCoder() *coder { return newCoder(summaryColumns, 1) }

func (c *coder) summary(s *history.Summary) {
	c.version(&s.Version)
	c.state(s)
	c.typ(sumType, &s.Object)
	c.objectAndImported(s)
	c.number(sumLast, &s.Last, s.Version.Time())
	c.number(sumFirst, &s.First, s.Last)
	c.unsigned(sumPlays, &s.Plays)
	c.number(sumWatched, &s.Watched, 0)
	c.number(sumDuration, &s.Duration, 0)
	c.number(sumFurthest, &s.Furthest, s.Duration)
	c.rare(sumBeforeUntil, &s.Before.Until, s.First)
	c.rare(sumBeforeFirst, &s.Before.First, s.Before.Until)
	c.unsigned(sumBeforePlays, &s.Before.Plays)
	c.number(sumBeforeWatched, &s.Before.Watched, 0)
	c.number(sumBeforeFurthest, &s.Before.Furthest, 0)
}

// state codes the finished flag and the version's rank.
func (c *coder) state(s *history.Summary) {
	state := uint64(s.Version) & 3 << 1
	if s.Finished {
		state |= 1
	}
	c.unsigned(sumState, &state)
	if c.decodes {
		s.Finished = state&1 == 1
		s.Version |= history.Version(state >> 1 & 3) //nolint:gosec // two bits
	}
}

// objectAndImported codes the texts. Chunks with and without imported viewings share the form of the other columns.
func (c *coder) objectAndImported(s *history.Summary) {
	text, behind := s.Object.ID+string(s.Imported), uint64(len(s.Imported))
	c.text(sumID, &text)
	c.unsigned(sumImported, &behind)
	if !c.decodes {
		return
	}
	if behind > uint64(len(text)) {
		c.fail("imported viewings of %d bytes", behind)
		return
	}
	id := len(text) - int(behind) //nolint:gosec // bounded
	if s.Object.ID, s.Imported = text[:id], history.Imported(text[id:]); !s.Imported.Valid() {
		c.fail("imported viewings %q", s.Imported)
	}
}

// EncodeSummaries divides one user's summaries into chunks. It fails with [history.ErrInvalid] unless they are
// in the order of [history.LatestFirst].
func EncodeSummaries(all []history.Summary) (chunks []Encoded, err error) {
	for len(all) > 0 {
		c := summaryCoder()
		c.time = all[0].Version.Time()
		info := Info{Kind: Summaries, Newest: all[0].Version, CellTime: all[0].Version.Time()}
		for info.Count < len(all) && !c.full(info.Count) {
			s := all[info.Count]
			if err := s.Object.Validate(); err != nil {
				return nil, fmt.Errorf("summary: %w", err)
			}
			if n := info.Count; n > 0 && history.LatestFirst(all[n-1], s) >= 0 {
				return nil, fmt.Errorf("summary %s: %w: want the latest first", s.Object, history.ErrInvalid)
			}
			c.summary(&s)
			info.Count, info.Oldest = info.Count+1, s.Version
		}
		info.Full = c.full(info.Count)
		info.Filter = bloom.New(info.Count)
		counts := make(map[uint32]int)
		for _, s := range all[:info.Count] {
			info.Filter.Add(hashOf(s.Object))
			counts[s.Object.Type]++
		}
		info.Types = countTypes(counts)
		if !slices.ContainsFunc(c.values[sumImported], func(n uint64) bool { return n > 0 }) {
			c.values = c.values[:sumImported]
		}
		chunk, err := c.finish(info)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, chunk)
		all = all[info.Count:]
	}
	return chunks, nil
}

// Summaries yields the summaries, latest first. It ends after an error, which wraps [ErrCorrupt].
func (c *Chunk) Summaries() iter.Seq2[history.Summary, error] {
	return func(yield func(history.Summary, error) bool) {
		if err := c.want(Summaries); err != nil {
			yield(history.Summary{}, err)
			return
		}
		for d := c.at(0); d.row < c.count; d.row++ {
			var s history.Summary
			d.summary(&s)
			err := d.err
			if err == nil && s.Object.Validate() != nil {
				err = fmt.Errorf("%w: %w", ErrCorrupt, s.Object.Validate())
			}
			if err != nil {
				yield(history.Summary{}, fmt.Errorf("chunk: summary %d: %w", d.row, err))
				return
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}
