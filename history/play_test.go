package history_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/playhead/playhead/history"
)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
	film   = 100 * minute // its duration
)

// report is an event at the given milliseconds after the epoch.
func report(k history.Kind, at, position, duration int64, session string) history.Event { //nolint:revive // as many as a report has
	return history.Event{Kind: k, At: epoch + at, Position: position, Duration: duration, Session: session, Device: "tv"}
}

const (
	start    = history.KindStart
	progress = history.KindProgress
	paused   = history.KindPause
	seek     = history.KindSeek
	stop     = history.KindStop
	finish   = history.KindFinish
)

// scene is a list of reports of one object with the expected result.
type scene struct {
	name      string
	events    []history.Event
	plays     uint64
	completed bool
	resume    int64
	furthest  int64
}

func scenes() (all []scene) {
	add := func(name string, plays uint64, resume, furthest int64, events ...history.Event) {
		all = append(all, scene{name, events, plays, plays > 0 && resume == 0, resume, furthest})
	}
	repeat := func(times int, apart int64, of ...history.Event) (events []history.Event) {
		for i := range int64(times) {
			for _, e := range of {
				e.At += i * apart
				if e.StartedAt > 0 {
					e.StartedAt += i*apart + i%3*150 - 150 // the clock drifts
				}
				events = append(events, e)
			}
		}
		return events
	}
	since := func(at int64, e history.Event) history.Event {
		e.StartedAt = epoch + at
		return e
	}
	for _, session := range []string{"", "page"} {
		of := "without a session"
		if session != "" {
			of = "in a session"
		}
		r := func(k history.Kind, at, position, duration int64) history.Event {
			return report(k, at, position, duration, session)
		}
		add("B9: pause near the end, threshold and end, repeated stop, "+of, 1, 0, film,
			r(start, 0, 0, film), r(progress, 80*minute, 80*minute, film), r(paused, 95*minute, 95*minute, film), r(stop, 95*minute+second, 95*minute, film),
			r(start, 20*hour, 95*minute, film), r(progress, 20*hour+minute, 96*minute, film), r(finish, 20*hour+5*minute, film, film),
			r(stop, 20*hour+5*minute+second, film, film), r(stop, 21*hour, film, film))
		add("B10: the same upload twice, "+of, 1, 0, film,
			r(start, 0, 0, film), r(finish, film, film, film), r(start, 0, 0, film), r(finish, film, film, film))
		song := []history.Event{r(start, 0, 0, 200*second), r(progress, 15*second, 15*second, 200*second), r(progress, 195*second, 195*second, 200*second)}
		add("B26: a song six times on repeat, "+of, 6, 0, 195*second, repeat(6, 200*second, song...)...)
		add("B26: a song that finishes six times, "+of, 6, 0, 200*second, repeat(6, 200*second, song[0], r(finish, 200*second, 200*second, 200*second))...)
		add("B26: a film on three evenings, "+of, 3, 0, 95*minute,
			repeat(3, 24*hour, r(start, 0, 0, film), r(progress, 50*minute, 50*minute, film), r(progress, 95*minute, 95*minute, film))...)
		add("B26: a film that begins on three evenings and reports no start, "+of, 3, 0, film,
			repeat(3, 24*hour, since(0, r(progress, 50*minute, 50*minute, film)), since(0, r(finish, film, film, film)))...)
		add("B26: a repeated end, "+of, 1, 0, film, r(start, 0, 0, film), r(finish, film, film, film), r(finish, film+minute, film, film), r(stop, film+hour, film, film))
		add("a viewing that goes on at the end, "+of, 1, 0, film, r(start, 0, 0, film), since(0, r(stop, 95*minute, 95*minute, film)),
			since(hour*9, r(start, 9*hour, 95*minute, film)), since(hour*9, r(finish, 9*hour+5*minute, film, film)))
		add("B25: a live edge that grows, "+of, 0, 60*minute, 60*minute,
			r(start, 0, 0, 10*minute), r(progress, 9*minute, 9*minute, 10*minute), r(progress, 10*minute, 10*minute, 11*minute), r(progress, 10*minute+15*second, 10*minute+15*second, 12*minute),
			r(progress, 30*minute, 30*minute, 31*minute), r(stop, 60*minute, 60*minute, film))
		add("B25: a finish of a length that turned out too short, "+of, 0, 5*minute, 5*minute,
			r(start, 0, 0, 30*second), r(progress, 20*second, 20*second, 30*second), r(finish, 30*second, 30*second, 30*second), r(progress, 31*second, second, film), r(stop, 330*second, 5*minute, film))
		add("B25: a clip after the film, "+of, 1, 0, film,
			r(start, 0, 0, film), r(finish, film, film, film), r(progress, film+10*second, 10*second, 20*second), r(finish, film+20*second, 20*second, 20*second))
		add("a heartbeat after the finish, and one scene again, "+of, 1, 0, film,
			r(start, 0, 0, film), r(finish, film, film, film), r(paused, film+second, film, film), r(seek, film+9*second, 30*minute, film), r(finish, film+minute, 31*minute, film))
		add("an explicit finish before the credits, "+of, 1, 0, 50*minute, r(start, 0, 0, film), r(progress, 40*minute, 40*minute, film), r(finish, 50*minute, 50*minute, film))
		add("B31: a scrub, "+of, 0, 11*minute, 11*minute,
			r(start, 0, 0, film), r(progress, 10*minute, 10*minute, film), r(progress, 10*minute+5*second, 98*minute, film), r(progress, 10*minute+9*second, 98*minute+4*second, film),
			r(progress, 10*minute+10*second, 10*minute, film), r(stop, 11*minute, 11*minute, film))
		add("B31: a scrub with seeks, and the film on the next evening, "+of, 0, 20*minute, 20*minute,
			r(start, 0, 0, film), r(progress, 10*minute, 10*minute, film), r(seek, 10*minute+5*second, 98*minute, film), r(progress, 10*minute+9*second, 98*minute+4*second, film),
			r(seek, 10*minute+10*second, 10*minute, film), r(stop, 11*minute, 11*minute, film), r(start, 24*hour, 0, film), r(stop, 24*hour+20*minute, 20*minute, film))
		add("B31: two scrubs, "+of, 0, 30*minute, 30*minute,
			r(start, 0, 0, film), r(progress, 10*minute, 98*minute, film), r(progress, 10*minute+4*second, 98*minute, film), r(progress, 10*minute+5*second, 10*minute, film),
			r(progress, 10*minute+40*second, 98*minute, film), r(progress, 10*minute+44*second, 98*minute, film), r(progress, 10*minute+45*second, 11*minute, film), r(stop, 30*minute, 30*minute, film))
		add("B31: a scrub back to the start, "+of, 0, 12*minute, 12*minute,
			r(start, 0, 0, film), r(progress, 2*second, 2*second, film), r(progress, 6*second, 98*minute, film), r(progress, 10*second, 98*minute, film),
			r(seek, 11*second, 0, film), r(progress, 15*second, 4*second, film), r(stop, 12*minute, 12*minute, film))
	}
	add("B26: without anything but progress", 3, 0, 100*second,
		repeat(3, hour, report(progress, 0, 0, 100*second, ""), report(progress, 50*second, 50*second, 100*second, ""), report(progress, 90*second, 90*second, 100*second, ""), report(progress, 100*second, 100*second, 100*second, ""))...)
	add("B32: two versions of a film", 2, 110*minute, 115*minute,
		report(start, 0, 0, film, "short"), report(stop, 95*minute, 95*minute, film, "short"),
		report(start, 24*hour, 0, 2*hour, "long"), report(stop, 26*hour, 115*minute, 2*hour, "long"),
		report(start, 48*hour, 0, 130*minute, "longest"), report(stop, 50*hour, 110*minute, 130*minute, "longest"))
	add("B32: the short version after the long one", 1, 110*minute, 110*minute,
		report(start, 0, 0, film, "short"), report(stop, 95*minute, 95*minute, film, "short"),
		report(start, 24*hour, 0, 130*minute, "long"), report(stop, 26*hour, 110*minute, 130*minute, "long"),
		since(48*hour, report(start, 48*hour, 0, film, "again")))
	add("B32: a chapter by accident", 1, 0, film,
		report(start, 0, 0, film, "film"), report(finish, film, film, film, "film"), since(film+hour, report(start, film+hour, 0, 5*minute, "chapter")))
	add("B33: plays that were brought along", 3, 0, film,
		since(0, report(finish, film, film, film, "")), since(24*hour, report(finish, 24*hour+film, film, film, "")), since(48*hour, report(finish, 48*hour+film, film, film, "")))
	add("B33: plays without a duration", 3, 0, 0,
		since(film, report(finish, film, 0, 0, "")), since(24*hour, report(finish, 24*hour, 0, 0, "")), since(48*hour, report(finish, 48*hour, 0, 0, "")))
	return all
}

// TestPlays folds each scene in 200 orders, with some repeats, and as two halves folded separately.
func TestPlays(t *testing.T) {
	rules, random := new(history.Rulebook).Of(1), rand.New(rand.NewPCG(1, 1))
	for _, s := range scenes() {
		want := fold(s.events)
		if got := want.Plays(); got != s.plays || rules.Completed(want) != s.completed || rules.Resume(want) != s.resume || want.Furthest() != s.furthest {
			t.Errorf("%s: %d plays, completed %v, resume %d, furthest %d; want %d, %v, %d, %d\n%+v",
				s.name, got, rules.Completed(want), rules.Resume(want), want.Furthest(), s.plays, s.completed, s.resume, s.furthest, want)
		}
		if err := want.Validate(epoch + 1000*hour); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		for range 200 {
			events := slices.Concat(s.events, s.events[:random.IntN(len(s.events))])
			random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			cut := random.IntN(len(events))
			if got := history.Merge(fold(events[:cut]), fold(events[cut:])); !history.Same(got, want) {
				t.Errorf("%s: in another order:\ngot  %+v\nwant %+v\n%+v", s.name, got, want, events)
				break
			}
		}
	}
}

// slow draws events of one key over some hours.
func slow() *rapid.Generator[history.Event] {
	kinds := []history.Kind{start, start, progress, progress, progress, paused, seek, stop, finish, history.KindDelete, history.KindWatched, history.KindUnwatched}
	return rapid.Custom(func(t *rapid.T) history.Event {
		steps := rapid.SliceOfN(rapid.SampledFrom([]int64{second, 5 * second, 11 * second, 40 * second, 16 * minute, hour}), 1, 6).Draw(t, "steps")
		at := epoch
		for _, ms := range steps {
			at += ms
		}
		e := history.Event{
			Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), At: at,
			StartedAt: rapid.SampledFrom([]int64{0, 0, at - minute, at - hour}).Draw(t, "started at"),
			Position:  rapid.SampledFrom([]int64{0, 3 * second, 50 * second, 95 * second, 100 * second, 80 * minute, 95 * minute}).Draw(t, "position"),
			Duration:  rapid.SampledFrom([]int64{0, 100 * second, film, film}).Draw(t, "duration"),
			Session:   rapid.SampledFrom([]string{"", "", "s"}).Draw(t, "session"), Device: "tv",
		}
		if marks(e) {
			e.Session, e.Device = "", ""
		}
		if e.Duration > 0 {
			e.Position = min(e.Position, e.Duration)
		}
		return e
	})
}

func TestPlaysShowWhatTheModelSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := many(slow(), 1, 25).Draw(t, "events")
		shuffled := rapid.Permutation(events).Draw(t, "shuffled")
		r := fold(events)
		wantSame(t, "in another order", grouped(t, shuffled), r)
		got, want := viewOf(r), model(events)
		if got != want {
			t.Fatalf("%+v:\ngot  %+v\nwant %+v", events, got, want)
		}
		if !r.Deleted() {
			if err := r.Validate(epoch + 1000*hour); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestPlayLaws: Merge keeps its laws for events minutes apart.
func TestPlayLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := folded(slow())
		a, b, c := r.Draw(t, "a"), r.Draw(t, "b"), r.Draw(t, "c")
		if a != nil && !a.Deleted() && rapid.Bool().Draw(t, "restored") {
			a = a.Restore(epoch + rapid.Int64Range(0, 3*hour).Draw(t, "cut"))
		}
		ab, bc := history.Merge(a, b), history.Merge(b, c)
		wantSame(t, "commutative", history.Merge(b, a), ab)
		wantSame(t, "associative", history.Merge(a, bc), history.Merge(ab, c))
		wantSame(t, "absorbing", history.Merge(ab, a), ab)
		at := epoch + rapid.Int64Range(0, 3*hour).Draw(t, "at")
		wantSame(t, "after", ab.After(at), history.Merge(a.After(at), b.After(at)))
	})
}
