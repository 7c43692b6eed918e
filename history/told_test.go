package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/playhead/playhead/history"
)

var toldKey = history.Key{UID: "u", Object: history.Object{ID: "1", Type: 1}}

// ended is a report of a session at the end of an object, ms milliseconds after the epoch of the tests.
func ended(session string, ms int64) history.Event {
	return history.Event{Key: toldKey, Kind: history.KindFinish, At: epoch + ms, Position: 100_000, Duration: 100_000, Session: session}
}

// longer is a report of a session in the middle of an object that is longer than known.
func longer(session string, ms int64) history.Event {
	return history.Event{Key: toldKey, Kind: history.KindProgress, At: epoch + ms, Position: 110_000, Duration: 900_000, Session: session}
}

func kindAt(kind history.Kind, ms int64) history.Event {
	return history.Event{Key: toldKey, Kind: kind, At: epoch + ms}
}

// said are the messages as text: kind and milliseconds.
func said(messages []history.PlayMessage) (texts []string) {
	for _, m := range messages {
		texts = append(texts, fmt.Sprintf("%s %d", m.Kind, m.At-epoch))
	}
	return texts
}

// foldOn folds events into a record.
func foldOn(r *history.Record, events ...history.Event) *history.Record {
	for _, e := range events {
		r = history.Merge(r, e.Record()).Successor(nil)
	}
	return r
}

func TestUntold(t *testing.T) {
	var u history.User
	played := foldOn(nil, ended("a", 1000), ended("b", 90_000)).AfterTelling(&u)
	for name, tt := range map[string]struct {
		record *history.Record
		user   history.User
		want   []string
	}{
		"nothing played":        {record: foldOn(nil, kindAt(history.KindStart, 0))},
		"first":                 {record: foldOn(nil, ended("a", 1000), ended("b", 90_000)), want: []string{"completed 1000", "completed 90000"}},
		"nothing new":           {record: foldOn(played, kindAt(history.KindPause, 100_000))},
		"the same again":        {record: foldOn(played, ended("a", 1000))},
		"one more":              {record: foldOn(played, ended("c", 200_000)), want: []string{"completed 200000"}},
		"late":                  {record: foldOn(played, ended("c", 50_000)), want: []string{"completed 50000"}},
		"ends on":               {record: foldOn(played, ended("b", 95_000))},
		"ended before":          {record: foldOn(played, ended("b", 89_000)), want: []string{"retracted 90000", "completed 89000"}},
		"longer than it seemed": {record: foldOn(played, longer("b", 91_000)), want: []string{"retracted 90000"}},
		"unwatched":             {record: foldOn(played, kindAt(history.KindUnwatched, 95_000)), want: []string{"deleted 95000"}},
		"unwatched, and again":  {record: foldOn(played, kindAt(history.KindUnwatched, 95_000), ended("c", 200_000)), want: []string{"deleted 95000", "completed 200000"}},
		"marked as watched":     {record: foldOn(played, kindAt(history.KindWatched, 95_000)), want: []string{"completed 95000"}},
		"deleted":               {record: foldOn(played, kindAt(history.KindDelete, 95_000)), want: []string{"deleted 95000"}},
		"deleted in part":       {record: foldOn(played, kindAt(history.KindDelete, 50_000)), want: []string{"deleted 50000"}},
		"deleted, and again":    {record: foldOn(played, kindAt(history.KindDelete, 95_000), ended("c", 200_000)), want: []string{"deleted 95000", "completed 200000"}},
		"cleared, and again": {
			record: foldOn(played, ended("c", 200_000)).After(epoch + 95_000),
			user:   history.User{Cleared: map[uint32]int64{1: epoch + 95_000}}, want: []string{"cleared 95000", "completed 200000"},
		},
		"about to be told": {record: foldOn(nil, ended("a", 1000)).BeforeTelling(&u), want: []string{"completed 1000"}},
		"about to be told, and longer than it seemed": {
			record: foldOn(foldOn(nil, ended("a", 1000)).BeforeTelling(&u), longer("a", 2000)), want: []string{"retracted 1000"},
		},
		"about to be taken back, and not": {
			record: foldOn(foldOn(played, longer("b", 91_000)).BeforeTelling(&u), kindAt(history.KindUnwatched, 92_000), ended("b", 93_000)),
			want:   []string{"deleted 92000"},
		},
	} {
		messages := tt.record.Untold(toldKey, &tt.user)
		if got := said(messages); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
		for range 2 { // a note changes nothing of what is due
			noted := tt.record.BeforeTelling(&tt.user)
			if len(messages) == 0 || noted == nil {
				break
			}
			if again := said(noted.Untold(toldKey, &tt.user)); !noted.Unsure() || !containsAll(again, tt.want) {
				t.Errorf("%s, noted: got %q, want %q", name, again, tt.want)
			}
			if again := noted.BeforeTelling(&tt.user); again != nil {
				t.Errorf("%s: noted twice: %q", name, again.Told)
			}
		}
		if after := tt.record.AfterTelling(&tt.user); after.Unsure() || len(after.Untold(toldKey, &tt.user)) > 0 {
			t.Errorf("%s: after all was told there is %q", name, said(after.Untold(toldKey, &tt.user)))
		}
	}
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// TestToldMerges: the note written last is kept, in every order, and a delete after it removes it.
func TestToldMerges(t *testing.T) {
	var u history.User
	first := foldOn(nil, ended("a", 1000)).BeforeTelling(&u)
	last := first.AfterTelling(&u)
	late := foldOn(nil, ended("b", 500))
	for name, m := range map[string]*history.Record{
		"forth": history.Merge(history.Merge(first, last), late), "back": history.Merge(late, history.Merge(last, first)), "other": history.Merge(history.Merge(first, late), last),
	} {
		if m.Told != last.Told {
			t.Errorf("%s: got %q, want %q", name, m.Told, last.Told)
		}
	}
	e := kindAt(history.KindDelete, 1_000_000)
	if gone := history.Merge(last, e.Record()); gone.Told != "" {
		t.Errorf("after a delete: %q", gone.Told)
	}
}

// TestToldIsBounded takes back more plays than a record lists.
func TestToldIsBounded(t *testing.T) {
	var u history.User
	var r *history.Record
	for i := range int64(1000) {
		r = foldOn(r, ended(fmt.Sprint(i), 100_000*i))
		if noted := r.BeforeTelling(&u); noted != nil {
			r = noted
		}
	}
	r.Partial = false
	if err := r.Validate(epoch + 1_000_000_000); err != nil {
		t.Errorf("after 1,000 plays that nobody was told of: %v", err)
	}
	for _, damaged := range []string{"short", strings.Repeat("\xff", 40), r.Told[:len(r.Told)-1], r.Told[:9]} {
		r.Told = damaged
		r.Untold(toldKey, &u) // tells something
		if after := r.AfterTelling(&u); len(after.Untold(toldKey, &u)) > 0 {
			t.Errorf("after %q: %q", damaged, said(after.Untold(toldKey, &u)))
		}
	}
}

func TestPlayMessageID(t *testing.T) {
	m := history.PlayMessage{Kind: history.PlayCompleted, Key: toldKey, Viewing: 255, At: 1_795_000_000_000}
	id := m.ID()
	if want := "0mwm0nk74-00000000000000ff-u/1_1"; id != want {
		t.Errorf("got %s, want %s", id, want)
	}
	m.Kind = history.PlayRetracted
	if m.ID() != id {
		t.Errorf("a retraction is %s, want %s", m.ID(), id)
	}
	if m.At++; m.ID() <= id {
		t.Errorf("%s of later is not after %s", m.ID(), id)
	}
	m = history.PlayMessage{Kind: history.PlaysCleared, Key: history.Key{UID: "u"}, At: 1}
	if got, want := m.ID(), "000000001-cleared-u/0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
