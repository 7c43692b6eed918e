package rpc

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// days tells who is seen for the first time on a day of theirs. Nothing depends on it:
// where the cache does not answer there is no answer, and the player asks again.
type days struct {
	cfg     Config
	metrics *metrics
	zones   zones
	noted   noted
	herald  *herald
}

func newDays(cfg Config, m *metrics) *days {
	return &days{cfg: cfg, metrics: m, herald: newHerald(cfg, m)}
}

// question is a heartbeat that asks.
type question struct {
	index    uint32
	sighting history.Sighting
}

// look is a look-up under way, and what needs none.
type look struct {
	days      *days
	questions []question
	sightings []history.Sighting // those that memory does not know
	seen      []history.Seen     // one for each; good when done is closed
	done      chan struct{}
}

// look begins to answer the heartbeats that ask, beside the write of them: whoever has
// one that was not refused is there. It returns nil when there is nothing to say.
func (d *days) look(ctx context.Context, hbs []*historyv1.Heartbeat, statuses []historyv1.Status) *look {
	if d.cfg.Days == nil {
		return nil
	}
	questions := d.questions(hbs)
	if len(questions) == 0 {
		return nil
	}
	l := &look{days: d, questions: present(questions, hbs, statuses), done: make(chan struct{})}
	l.sightings = d.noted.unknown(l.questions)
	if len(l.sightings) == 0 {
		close(l.done)
		return l
	}
	d.metrics.looked.Add(float64(len(l.sightings)))
	go l.run(ctx)
	return l
}

// questions returns the heartbeats whose players do not know what day it is, or say so
// of another day, such as one to come.
func (d *days) questions(hbs []*historyv1.Heartbeat) (all []question) {
	var now time.Time
	for i, hb := range hbs {
		day := hb.GetDay()
		if day == nil {
			continue
		}
		if now.IsZero() {
			now = d.cfg.Now()
		}
		today := history.DayOf(now.In(d.zones.of(day.GetZone())))
		if day.GetKnown() != today.Number() {
			all = append(all, question{uint32(i), history.Sighting{UID: hb.GetUid(), Day: today}}) //nolint:gosec // at most MaxBatch
		}
	}
	return all
}

// present leaves the questions of users with a heartbeat in the batch that counts, which
// mostly is the one that asks.
func present(questions []question, hbs []*historyv1.Heartbeat, statuses []historyv1.Status) []question {
	return slices.DeleteFunc(questions, func(q question) bool {
		if counts(statuses[q.index]) {
			return false
		}
		for i, hb := range hbs {
			if counts(statuses[i]) && hb.GetUid() == q.sighting.UID {
				return false
			}
		}
		return true
	})
}

func counts(s historyv1.Status) bool {
	return s == historyv1.Status_STATUS_STORED || s == historyv1.Status_STATUS_UNCHANGED || s == historyv1.Status_STATUS_STALE
}

func (l *look) run(ctx context.Context) {
	defer close(l.done)
	defer func() {
		if v := recover(); v != nil { // here it would end the process
			l.days.cfg.Logger.Error("look-up of a day panicked", "panic", v, "stack", string(debug.Stack()))
			l.fail(fmt.Errorf("panic: %v", v))
		}
	}()
	l.seen = l.days.cfg.Days.See(ctx, l.sightings)
}

func (l *look) fail(err error) {
	l.seen = make([]history.Seen, len(l.sightings))
	for i := range l.seen {
		l.seen[i].Err = err
	}
}

// answers waits for the look-up, and has what was first announced. Of the heartbeats of
// one user and day one is told.
func (l *look) answers() []*historyv1.DaySeen {
	if l == nil {
		return nil
	}
	<-l.done
	var firsts []history.First
	first, failed := map[history.Sighting]bool{}, map[history.Sighting]bool{}
	for i, s := range l.seen {
		switch {
		case s.Err != nil:
			failed[l.sightings[i]] = true
			continue
		case s.First:
			first[l.sightings[i]] = true
			firsts = append(firsts, history.First{Sighting: l.sightings[i], At: s.At})
		}
		l.days.noted.add(l.sightings[i])
	}
	l.days.metrics.unanswered.Add(float64(len(failed)))
	l.days.herald.add(firsts)
	answers := make([]*historyv1.DaySeen, 0, len(l.questions))
	for _, q := range l.questions {
		if !failed[q.sighting] {
			answers = append(answers, &historyv1.DaySeen{Index: q.index, Date: q.sighting.Day.Number(), First: first[q.sighting]})
			delete(first, q.sighting)
		}
	}
	return answers
}
