package history_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
)

const aDay = 24 * 3_600_000

func rulebook(t *testing.T, retention string, rules ...string) *history.Rulebook {
	t.Helper()
	b, err := history.ParseRules(retention, rules)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseRetention(t *testing.T) {
	for text, want := range map[string]int64{
		"90d": history.DefaultRetention, "36h": 36 * 3_600_000, "1h": 3_600_000, "36h0m1s": 36*3_600_000 + 1000, "forever": history.Forever,
	} {
		if got, err := history.ParseRetention(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		if got := history.FormatRetention(want); got != text {
			t.Errorf("%d: got %q, want %q", want, got, text)
		}
	}
	for _, text := range []string{"", "0", "90", "59m", "-1d", "1h0m0.5s", "30000d", "for ever"} {
		if got, err := history.ParseRetention(text); err == nil || !strings.Contains(err.Error(), "got \""+text) {
			t.Errorf("%q: got %d, %v, want an error that quotes it", text, got, err)
		}
	}
}

func TestRetentionOfClasses(t *testing.T) {
	for _, tt := range []struct{ retention, rule, err string }{
		{"365d", "a: types=7 keep=365d", ""},
		{"365d", "a: types=7 keep=366d", "keep: want 1s to 365d"},
		{"30d", "a: types=7 keep=90d", "keep: want 1s to 30d"},
		{"365d", "a: types=7 keep=forever", "keep: want 1s to 365d"},
		{"forever", "a: types=7 keep=forever", ""},
		{"90", "a: types=7", "retention: want"},
	} {
		_, err := history.ParseRules(tt.retention, []string{tt.rule})
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s, %s: got %v, want %q", tt.retention, tt.rule, err, tt.err)
		}
	}
	if got := rulebook(t, "365d", "a: types=7").TTL(7); got != 365*aDay {
		t.Errorf("a class without keep: got %d days, want those of all", got/aDay)
	}
}

func TestExpired(t *testing.T) {
	now := time.Now().UnixMilli()
	for _, tt := range []struct {
		rules *history.Rulebook
		want  int64
	}{
		{nil, now - 90*aDay},
		{new(history.Rulebook), now - 90*aDay},
		{rulebook(t, ""), now - 90*aDay},
		{rulebook(t, "2h"), now - 2*3_600_000},
		{rulebook(t, "forever"), 0},
	} {
		if got := tt.rules.Expired(1, now); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.rules.Retention(), got, tt.want)
		}
	}
}

// TestAgree: a process with another lifetime is refused, and new classes are stored.
func TestAgree(t *testing.T) {
	stored := history.Retention{Life: history.Life{Keep: 30 * aDay, Since: 5}, Classes: map[string]history.Life{"a": {Keep: aDay, Since: 7}}, Types: map[uint32]string{1: "a"}}
	for _, tt := range []struct {
		rules *history.Rulebook
		err   string
	}{
		{rulebook(t, "90d"), "its records live 30d, not 90d"},
		{rulebook(t, "forever"), "its records live 30d, not forever"},
		{rulebook(t, "30d", "a: types=1 keep=2d"), "its records of the class a live 1d, not 2d"},
		{rulebook(t, "30d").Adopt(), ""},
		{rulebook(t, "30d", "a: types=1 keep=1d"), ""},
		{new(history.Rulebook), ""},
	} {
		got, err := tt.rules.Agree(stored)
		if errors.Is(err, history.ErrRetention) != (tt.err != "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
			t.Errorf("%s: got %v, want %q", tt.rules.Retention(), err, tt.err)
		}
		if err == nil && (!reflect.DeepEqual(got, stored) || tt.rules.Expired(9, 1) != 5 || tt.rules.TTL(9) != 30*aDay) {
			t.Errorf("%s: got %+v, expired up to %d, want %+v", tt.rules.Retention(), got, tt.rules.Expired(9, 1), stored)
		}
	}
	stored.Types = nil // of an older version
	b := rulebook(t, "30d", "new: types=1 keep=3d")
	got, err := b.Agree(stored)
	if want := (history.Life{Keep: 3 * aDay}); err != nil || got.Classes["new"] != want || len(stored.Classes) != 1 || got.Types[1] != "new" {
		t.Errorf("a new class: got %+v, %v, want %+v beside the others, and its type", got, err, want)
	}
}

// TestAgreeTypes: a process that puts a type into another class is refused. A tool takes over the classes.
func TestAgreeTypes(t *testing.T) {
	stored := rulebook(t, "90d", "a: types=1,2 keep=10d", "b: types=3").Retention()
	for _, tt := range []struct {
		rules *history.Rulebook
		err   string
	}{
		{rulebook(t, "", "a: types=1,2 keep=10d", "b: types=3"), ""},
		{rulebook(t, "", "b: types=3", "a: types=2,1 keep=10d list=5"), ""},
		{rulebook(t, "", "a: types=1,2,7 keep=10d", "b: types=3"), "its type 7 is in no class, in the rules in the class a"},
		{rulebook(t, "", "a: types=1 keep=10d", "b: types=2,3"), "its type 2 is in the class a, in the rules in the class b"},
		{rulebook(t, "", "a: types=1,2 keep=10d"), "its type 3 is in the class b, in the rules in no class"},
		{rulebook(t, ""), "its type 1 is in the class a, in the rules in no class"},
		{rulebook(t, "").Adopt(), ""},
		{new(history.Rulebook), ""},
	} {
		got, err := tt.rules.Agree(stored)
		if errors.Is(err, history.ErrRetention) != (tt.err != "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) {
			t.Errorf("%v: got %v, want %q", tt.rules.Classes(), err, tt.err)
		}
		if err == nil && (!reflect.DeepEqual(got, stored) || tt.rules.NamespaceOf("u", 2) != "u\x01a" || tt.rules.TTL(1) != 10*aDay || tt.rules.Moves(stored)) {
			t.Errorf("%v: got %+v, want %+v", tt.rules.Classes(), got, stored)
		}
		if err != nil {
			text := tt.rules.Remedy(err, "--data d", "d").Error()
			for _, command := range []string{"playhead replay copy --from archive:d --to archive:NEW --rules RULES", "playhead retention set 90d --data d --rules RULES"} {
				if !strings.Contains(text, command) || strings.Contains(text, "\n") {
					t.Errorf("got %q, want one line with %q", text, command)
				}
			}
		}
	}
	if got := rulebook(t, "30d").Adopt().Change(stored, 0).Types; !reflect.DeepEqual(got, stored.Types) {
		t.Errorf("a change without rules: got %v, want the stored classes", got)
	}
	if got := rulebook(t, "90d", "a: types=1 keep=10d").Change(stored, 0).Types; len(got) != 1 || got[1] != "a" {
		t.Errorf("a change with rules: got %v, want theirs", got)
	}
}

// TestChange: what has expired once stays expired, through any changes.
func TestChange(t *testing.T) {
	now := time.Now().UnixMilli()
	r := rulebook(t, "90d", "a: types=1 keep=10d").Retention()
	for _, step := range []struct {
		retention, class string
		after            int64 // days
		since, classes   int64 // expired, in days before the first step
	}{
		{"365d", "10d", 0, 90, 10},
		{"30d", "10d", 1, 90, 9},     // a day later
		{"forever", "20d", 2, 28, 8}, // two days later
		{"90d", "90d", 50, 28, -30},  // the class has kept 20 days until then
	} {
		at := now + step.after*aDay
		b := rulebook(t, step.retention, "a: types=1 keep="+step.class)
		r = b.Change(r, at)
		if _, err := b.Agree(r); err != nil {
			t.Fatal(err)
		}
		if got, want := r.Since, now-step.since*aDay; got != want {
			t.Errorf("%s: expired before day %d, want %d", step.retention, (got-now)/aDay, (want-now)/aDay)
		}
		if got, want := r.Classes["a"].Since, now-step.classes*aDay; got != want {
			t.Errorf("%s: class expired before day %d, want %d", step.retention, (got-now)/aDay, (want-now)/aDay)
		}
	}
}

func TestSummaryAge(t *testing.T) {
	now := time.Now().UnixMilli()
	for retention, want := range map[string]int64{"90d": now - 83*aDay, "10d": now - 5*aDay, "forever": 2} {
		if got := rulebook(t, retention).SummaryBefore(now); got != want {
			t.Errorf("%s: got %d, want %d", retention, got, want)
		}
	}
	for _, tt := range []struct {
		retention string
		summary   time.Duration
		err       string
	}{
		{"90d", 2159 * time.Hour, "want at least 2160h"},
		{"90d", 2160 * time.Hour, ""},
		{"forever", 43800 * time.Hour, "want none: records live forever"},
		{"forever", 0, ""},
		{"3d", 2160 * time.Hour, "want records that live 4d or longer"},
	} {
		err := rulebook(t, tt.retention).ValidateSummaryTTL(tt.summary)
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s, summaries for %s: got %v, want %q", tt.retention, tt.summary, err, tt.err)
		}
	}
}
