package hbase_test

import (
	"errors"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/hbase"
)

const day = 24 * time.Hour

// TestCompactWaitsForTheHorizon: records that only an untrusted clock has expired stay in segments.
func TestCompactWaitsForTheHorizon(t *testing.T) {
	r := newCompactTest(t)
	cells := r.plays(8)
	r.compact()
	horizon, refused := time.Time{}, error(nil)
	r.config.Horizon = func() (time.Time, error) { return horizon, refused }
	r.Archive = hbase.NewCompacting(r.client, r.config)
	horizon = r.clock.now()
	tries := []struct {
		name    string
		refused error
	}{{"behind", nil}, {"not trusted", history.ErrUnavailable}}
	r.clock.pass(20 * day)
	for _, try := range tries {
		refused = try.refused
		again, err := r.Compact(t.Context(), r.uid)
		if !errors.Is(err, try.refused) || err == nil && again < 20*day {
			t.Errorf("horizon %s: roll again after %v, %v", try.name, again, err)
		}
	}
	r.want(cells...)
}

// TestSummariesByTheHorizon: a clock far ahead neither makes nor drops summaries.
func TestSummariesByTheHorizon(t *testing.T) {
	store, clock, c, want := summed(t)
	horizon, refused := clock.now(), error(nil)
	c.Horizon = func() (time.Time, error) { return horizon, refused }
	a := hbase.Over(store, c)
	summarizeNow(t, a)
	wantSummed(t, "in time", a, want)
	refused = history.ErrUnavailable
	if err := a.Summarize(t.Context(), "ann", true); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("not trusted: got %v, want unavailable", err)
	}
	wantSummed(t, "not trusted", a, want)
}

// TestClockOfHBase compares HBase's clock, also after it was set back.
func TestClockOfHBase(t *testing.T) {
	ahead := time.Duration(0)
	a := hbase.NewWith(newStore(func() time.Time { return time.Now().Add(ahead) }), nil)
	for _, ahead = range []time.Duration{0, 100 * day, -time.Hour, 0} {
		got, err := a.ClockAhead(t.Context())
		if err != nil || (got-ahead).Abs() > time.Minute {
			t.Errorf("ahead by %v: got %v, %v", ahead, got, err)
		}
	}
}

// TestReadersGoByTheHorizon: records expired by a clock that is ahead remain readable until HBase drops them.
func TestReadersGoByTheHorizon(t *testing.T) {
	for name, c := range map[string]struct {
		dropped, followed bool // dropped: HBase's clock is ahead too; followed: the clock is trusted
	}{
		"the clock is ahead":              {false, true},
		"clock not trusted":               {false, false},
		"HBase's clock is ahead, too":     {true, true},
		"HBase's, while none is followed": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newCompactTest(t)
			old := r.plays(8)
			r.compact()
			r.clock.pass(80 * day)
			horizon, ahead := r.clock.now(), 20*day
			var recent []history.Cell
			for i := range 8 {
				recent = append(recent, r.play(r.key(100+i), nil, 3*time.Hour, int64(i)))
			}
			r.store(recent...)
			r.clock.pass(2 * time.Hour)
			r.compact()
			var refused error
			if !c.followed {
				refused = history.ErrUnavailable
			}
			r.config.Horizon = func() (time.Time, error) { return horizon, refused }
			r.config.Now = func() time.Time { return r.clock.now().Add(ahead) }
			if c.dropped {
				r.clock.pass(ahead)
				r.compactTable()
				ahead, old = 0, nil
			}
			r.Archive = hbase.NewCompacting(r.client, r.config)
			r.want(append(old, recent...)...)
		})
	}
}
