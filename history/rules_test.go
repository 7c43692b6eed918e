package history_test

import (
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
)

// TestEarly: events of the first seconds of a session are early.
func TestEarly(t *testing.T) {
	tests := []struct {
		name          string
		kind          history.Kind
		age, position int64 // milliseconds; an age of -1 is unreported
		grace         string
		want          bool
	}{
		{"the first seconds", history.KindProgress, 9_999, 60_000, "", true},
		{"after the first seconds", history.KindProgress, 10_000, 3000, "", false},
		{"a start", history.KindStart, 0, 60_000, "", true},
		{"a start that comes late", history.KindStart, 60_000, 60_000, "", true},
		{"a pause at once", history.KindPause, 500, 500, "", true},
		{"a stop at once", history.KindStop, 1000, 1000, "", true},
		{"a seek at once", history.KindSeek, 1000, 1000, "", false},
		{"a finish at once", history.KindFinish, 1000, 1000, "", false},
		{"near the beginning of the object", history.KindProgress, -1, 9_999, "", true},
		{"not near the beginning", history.KindProgress, -1, 10_000, "", false},
		{"a start of which nobody knows when", history.KindStart, -1, 60_000, "", true},
		{"a seek to the beginning", history.KindSeek, -1, 0, "", false},
		{"a shorter grace", history.KindProgress, 5000, 0, "grace=5s", false},
		{"a longer grace of the type", history.KindProgress, 59_999, 0, "1:grace=1m", true},
		{"no grace", history.KindProgress, 0, 0, "grace=0s", false},
		{"another type's grace", history.KindProgress, 5000, 0, "2:grace=5s", true},
	}
	for _, test := range tests {
		book, err := history.ParseRules("", strings.Fields(test.grace))
		if err != nil {
			t.Fatal(err)
		}
		e := history.Event{Kind: test.kind, At: epoch, Position: test.position}
		if test.age >= 0 {
			e.StartedAt = epoch - test.age
		}
		if got := book.Of(1).Record(&e).Early; got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestParseRules(t *testing.T) {
	standard := history.Rules{Begun: 5, Done: 90, Short: 300_000, Grace: 10_000}
	tests := []struct {
		texts []string
		typ   uint32
		want  history.Rules
	}{
		{nil, 1, standard},
		{[]string{"3:done=95,grace=5s"}, 1, standard},
		{[]string{"3:done=95,grace=5s"}, 3, history.Rules{Begun: 5, Done: 95, Short: 300_000, Grace: 5000}},
		{[]string{"3:done=95", "begun=1,short=1m"}, 3, history.Rules{Begun: 1, Done: 95, Short: 60_000, Grace: 10_000}},
		{[]string{"3:done=95", "begun=1,short=1m"}, 4, history.Rules{Begun: 1, Done: 90, Short: 60_000, Grace: 10_000}},
		{[]string{"3:done=95", "3:begun=1"}, 3, history.Rules{Begun: 1, Done: 95, Short: 300_000, Grace: 10_000}},
	}
	for _, test := range tests {
		book, err := history.ParseRules("", test.texts)
		if err != nil || book.Of(test.typ) != test.want {
			t.Errorf("%q of type %d: got %+v, %v; want %+v", test.texts, test.typ, book.Of(test.typ), err, test.want)
		}
	}
	var none *history.Rulebook
	if got := none.Of(1); got != standard {
		t.Errorf("no rules: got %+v", got)
	}
	for _, text := range []string{
		"", "3:", ":done=1", "x:done=1", "-1:done=1", "4294967296:done=1", "done", "done=", "done=101", "done=-1", "done=x",
		"grace=5", "grace=-5s", "short=x", "color=red", "done=95,", "begun=90", "3:done=5",
	} {
		if book, err := history.ParseRules("", []string{text}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: got %+v, %v; want an error that names it", text, book, err)
		}
	}
}

// TestUnfinishedBehindAnAd: an early report with another duration leaves the film in "continue watching".
func TestUnfinishedBehindAnAd(t *testing.T) {
	standard := new(history.Rulebook).Of(1)
	for _, session := range []string{"film", ""} {
		for _, ad := range []int64{30_000, 400_000, 20_000_000} {
			film := history.Event{Kind: history.KindStop, At: epoch, Position: 900_000, Duration: 5_400_000, Session: session, Device: "tv", StartedAt: epoch - 900_000}
			next := history.Event{Kind: history.KindStop, At: epoch + 60_000, Position: 3000, Duration: ad, Session: "next", Device: "tv", StartedAt: epoch + 57_000}
			r := history.Merge(film.Record(), next.Record())
			if !r.ResumesEarlier() || !standard.Unfinished(r) || standard.Resume(r) != 900_000 {
				t.Errorf("session %q, ad of %d ms: resumes at %d, unfinished %t", session, ad, standard.Resume(r), standard.Unfinished(r))
			}
		}
	}
}

func TestUnfinished(t *testing.T) {
	tests := []struct {
		name               string
		kind               history.Kind
		position, duration int64 // seconds
		rules              string
		want               bool
	}{
		{"in the middle", history.KindStop, 300, 600, "", true},
		{"running", history.KindProgress, 300, 600, "", true},
		{"at the beginning", history.KindSeek, 0, 600, "", false},
		{"hardly begun", history.KindStop, 29, 600, "", false},
		{"just begun", history.KindStop, 30, 600, "", true},
		{"nearly done", history.KindStop, 539, 600, "", true},
		{"done", history.KindStop, 540, 600, "", false},
		{"finished", history.KindFinish, 300, 600, "", false},
		{"short", history.KindStop, 150, 299, "", false},
		{"just not short", history.KindStop, 150, 300, "", true},
		{"short for others", history.KindStop, 30, 60, "1:short=1m", true},
		{"done later", history.KindStop, 540, 600, "1:done=95", true},
		{"begun earlier", history.KindStop, 12, 600, "begun=2", true},
		{"of unknown duration", history.KindStop, 30, 0, "", true},
		{"of unknown duration, at the beginning", history.KindSeek, 0, 0, "", false},
	}
	for _, test := range tests {
		book, err := history.ParseRules("", strings.Fields(test.rules))
		if err != nil {
			t.Fatal(err)
		}
		e := history.Event{Kind: test.kind, At: epoch, Position: test.position * 1000, Duration: test.duration * 1000}
		if got := book.Of(1).Unfinished(book.Of(1).Record(&e)); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// TestUnfinishedAfterAMistake: a start of one second keeps the resume point of a film.
func TestUnfinishedAfterAMistake(t *testing.T) {
	for _, test := range []struct {
		position int64
		want     bool
	}{{300_000, true}, {590_000, false}} {
		r := fold([]history.Event{
			{Kind: history.KindStop, At: epoch, Position: test.position, Duration: 600_000},
			{Kind: history.KindStop, At: epoch + 1, Position: 1000, Duration: 600_000},
		})
		if got := new(history.Rulebook).Of(1).Unfinished(r); got != test.want || r.Resume() != test.position {
			t.Errorf("stopped at %d: got %v, resumed at %d", test.position, got, r.Resume())
		}
	}
}

// TestCompleted: a viewer finishes, opens again, watches again and skips.
func TestCompleted(t *testing.T) {
	const minute = 60_000
	play := func(session string, kind history.Kind, minutes int64) history.Event {
		return history.Event{Kind: kind, Session: session, Position: minutes * minute, Duration: 60 * minute}
	}
	unknown := func(e history.Event) history.Event { e.Duration = 0; return e }
	on := func(device string, e history.Event) history.Event { e.Device = device; return e }
	later := func(e history.Event) history.Event { e.At = 20 * minute; return e }
	glance := func(session string) history.Event {
		e := play(session, history.KindStop, 0)
		e.Position = 3000
		return e
	}
	for _, tt := range []struct {
		name      string
		events    []history.Event
		completed bool
		resume    int64 // minutes
	}{
		{"in the middle", []history.Event{play("a", history.KindStop, 30)}, false, 30},
		{"finished", []history.Event{play("a", history.KindFinish, 60)}, true, 0},
		{"finished at the credits", []history.Event{play("a", history.KindFinish, 50)}, true, 0},
		{"stopped in the credits", []history.Event{play("a", history.KindStop, 58)}, true, 0},
		{"finished and stopped", []history.Event{play("a", history.KindFinish, 50), play("a", history.KindStop, 50)}, true, 0},
		{"finished and stopped, of unknown duration", []history.Event{unknown(play("a", history.KindFinish, 50)), unknown(play("a", history.KindStop, 50))}, true, 0},
		{"finished and opened for 3 s", []history.Event{play("a", history.KindFinish, 60), glance("b")}, true, 0},
		{"finished at the credits and opened for 3 s", []history.Event{play("a", history.KindFinish, 50), glance("b")}, true, 0},
		{"finished, stopped and opened for 3 s", []history.Event{play("a", history.KindFinish, 50), play("a", history.KindStop, 50), glance("b")}, true, 0},
		{"finished and gone back in the same session", []history.Event{play("a", history.KindFinish, 60), play("a", history.KindSeek, 20)}, false, 20},
		{"watched again to the middle", []history.Event{play("a", history.KindFinish, 60), play("b", history.KindStop, 20)}, false, 20},
		{"watched again to the middle and opened", []history.Event{play("a", history.KindFinish, 60), play("b", history.KindStop, 20), glance("c")}, false, 20},
		{"marked as watched, then watched", []history.Event{unknown(play("a", history.KindFinish, 0)), unknown(play("b", history.KindStop, 20))}, false, 20},
		{"marked as watched, watched to the middle and opened", []history.Event{play("a", history.KindFinish, 0), later(play("b", history.KindStop, 20)), glance("c")}, false, 20},
		{"marked as watched in the middle, watched further and opened", []history.Event{play("a", history.KindFinish, 10), later(play("b", history.KindStop, 20)), glance("c")}, false, 20},
		{"marked as watched, then watched, without sessions", []history.Event{play("", history.KindFinish, 0), later(play("", history.KindStop, 20))}, false, 20},
		{"finished and stopped, without sessions", []history.Event{play("", history.KindFinish, 50), play("", history.KindStop, 50)}, true, 0},
		{"finished and stopped long after in the same session", []history.Event{play("a", history.KindFinish, 50), later(play("a", history.KindStop, 50))}, true, 0},
		{"ended live, further another time and opened", []history.Event{unknown(play("a", history.KindFinish, 30)), later(unknown(play("b", history.KindStop, 40))), glance("c")}, false, 40},
		{"ended live, further another time, not by playing, and opened", []history.Event{unknown(play("a", history.KindFinish, 30)), unknown(play("b", history.KindSeek, 50)), glance("c")}, false, 50},
		{"the same without a session", []history.Event{unknown(play("a", history.KindFinish, 30)), unknown(on("tv", play("", history.KindSeek, 50))), glance("c")}, false, 50},
		{"ended live, and opened twice", []history.Event{unknown(play("a", history.KindFinish, 30)), glance("b"), glance("c")}, true, 0},
		{"ended live, gone on to the end of the recording, and opened", []history.Event{unknown(play("a", history.KindFinish, 30)), unknown(play("a", history.KindStop, 50)), glance("b")}, true, 0},
		{"the end, said without a duration before", []history.Event{unknown(play("a", history.KindStop, 58)), glance("b")}, true, 0},
		{"opened for 3 s only", []history.Event{glance("a")}, false, 0},
	} {
		for i := range tt.events {
			tt.events[i].At += epoch + int64(i)*minute
			if i > 0 && tt.events[i].At < tt.events[i-1].At {
				tt.events[i].At = tt.events[i-1].At + minute
			}
		}
		r, rules := fold(tt.events), new(history.Rulebook).Of(1)
		if got, at := rules.Completed(r), rules.Resume(r); got != tt.completed || at/minute != tt.resume {
			t.Errorf("%s: completed %v, resumes at %d ms, want %v, %d min", tt.name, got, at, tt.completed, tt.resume)
		}
		if rules.Unfinished(r) && tt.completed {
			t.Errorf("%s: it invites to go on", tt.name)
		}
	}
}

// TestBeyondTheDuration: a known duration bounds the position of reports without one, in any order.
func TestBeyondTheDuration(t *testing.T) {
	knows := history.Event{Kind: history.KindStop, At: epoch, Position: 30_000, Duration: 3_600_000}
	beyond := history.Event{Kind: history.KindProgress, At: epoch + 1, Position: 7_200_000}
	for _, events := range [][]history.Event{{knows, beyond}, {beyond, knows}} {
		r, rules := fold(events), new(history.Rulebook).Of(1)
		if r.Resume() != 3_600_000 || r.Furthest() != 3_600_000 || !rules.Completed(r) {
			t.Errorf("at %d, furthest %d, completed %v; want all at the duration", r.Resume(), r.Furthest(), rules.Completed(r))
		}
	}
}
