package faults_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/playhead/playhead/e2e/faults"
	"github.com/playhead/playhead/history"
)

const base = 1_700_000_000_000

func sent(kind history.Kind, at, position int64, acked bool) faults.Sent {
	return faults.Sent{
		Event: history.Event{Kind: kind, At: base + at, Position: position, Duration: 100_000, Session: "s"}, Acked: acked,
	}
}

// fold merges events with the product's code.
func fold(events ...faults.Sent) (r *history.Record) {
	for _, e := range events {
		r = history.Merge(r, e.Record())
	}
	return r
}

// TestJudge judges correct records, and each kind of wrong one.
func TestJudge(t *testing.T) {
	first, second := sent(history.KindProgress, 1, 900, true), sent(history.KindProgress, 2, 100, true)
	maybe := sent(history.KindProgress, 3, 300, false)
	remove, perhaps := sent(history.KindDelete, 2, 0, true), sent(history.KindDelete, 2, 0, false)
	after := sent(history.KindStop, 4, 200, true)
	named, renamed := sent(history.KindProgress, 5, 300, true), sent(history.KindProgress, 6, 300, true)
	named.Meta, renamed.Meta = history.NewMeta(map[string]string{"title": "one"}), history.NewMeta(map[string]string{"title": "two"})
	played, nonEarly := sent(history.KindProgress, 7, 300, true), sent(history.KindProgress, 8, 20_000, true)
	first.Duration, first.Session = 1000, "f" // completes
	played.StartedAt, played.Watched = base-60_000, 30_000
	goesOn := played
	goesOn.Watched = 60_000
	nonEarly.StartedAt, nonEarly.Session = base-60_000, "n"
	begun, end, back := sent(history.KindProgress, 10, 50_000, true), sent(history.KindProgress, 11, 95_000, true), sent(history.KindProgress, 12, 1000, true)
	nearly := sent(history.KindProgress, 12, 93_000, true)
	finished := sent(history.KindFinish, 11, 95_000, true)
	mistake := sent(history.KindStart, 9, 0, true)
	tests := []struct {
		name    string
		sent    []faults.Sent
		record  *history.Record
		cleared int64
		want    string
	}{
		{"all of it", []faults.Sent{first, second}, fold(first, second), 0, ""},
		{"nothing was acknowledged", []faults.Sent{maybe}, nil, 0, ""},
		{"the unacknowledged is there", []faults.Sent{first, maybe}, fold(first, maybe), 0, ""},
		{"the unacknowledged is not there", []faults.Sent{first, maybe}, fold(first), 0, ""},
		{"nothing is there", []faults.Sent{first}, nil, 0, "lost"},
		{"the last is missing", []faults.Sent{first, second}, fold(first), 0, "lost"},
		{"the furthest and the play are missing", []faults.Sent{first, second}, fold(second), 0, "lost"},
		{"a play of a session that stayed", []faults.Sent{begun, end}, changed(fold(begun, end), func(r *history.Record) { r.Completions = nil }), 0, "lost"},
		{"the end of one that went back", []faults.Sent{begun, end, back}, fold(begun, end, back), 0, ""},
		{"the end, then a little before it", []faults.Sent{begun, end, nearly}, fold(begun, end, nearly), 0, ""},
		{"a finish of one that went back", []faults.Sent{begun, finished, back}, fold(begun, finished, back), 0, ""},
		{"a finish of one that went back is missing", []faults.Sent{begun, finished, back}, fold(begun, back), 0, "lost"},
		{"two plays of one end", []faults.Sent{begun, end, back}, changed(fold(begun, end, back), func(r *history.Record) { r.PlaysBefore = 2 }), 0, "resurrected"},
		{"nobody sent it", []faults.Sent{first}, fold(first, maybe), 0, "lost"},
		{"deleted", []faults.Sent{first, remove}, fold(first, remove), 0, ""},
		{"the delete is missing", []faults.Sent{first, remove}, fold(first), 0, "resurrected"},
		{"the tombstone is missing", []faults.Sent{first, remove}, nil, 0, "lost"},
		{"deleted and put again", []faults.Sent{first, remove, after}, fold(first, remove, after), 0, ""},
		{"the put after the delete is missing", []faults.Sent{first, remove, after}, fold(first, remove), 0, "lost"},
		{"a delete that may have been", []faults.Sent{first, perhaps}, fold(first, perhaps), 0, ""},
		{"a delete that may not have been", []faults.Sent{first, perhaps}, fold(first), 0, ""},
		{"a delete that nobody sent", []faults.Sent{first}, fold(first, remove), 0, "lost"},
		{"the furthest from before the delete", []faults.Sent{first, remove, after}, func() *history.Record {
			r := *fold(remove, after)
			r.Peaks = []history.Peak{{At: base + 1, Position: 900}}
			return &r
		}(), 0, "resurrected"},
		{"a play from before the delete", []faults.Sent{first, remove, after}, func() *history.Record {
			r := *fold(remove, after)
			r.Completions = fold(first).Completions
			return &r
		}(), 0, "resurrected"},
		{"the metadata", []faults.Sent{named, renamed}, fold(named, renamed), 0, ""},
		{"older metadata", []faults.Sent{named, renamed}, changed(fold(named, renamed), func(r *history.Record) { r.Meta = named.Meta }), 0, "lost"},
		{"the watched time", []faults.Sent{played, nonEarly}, fold(played, nonEarly), 0, ""},
		{"the watched time since a delete", []faults.Sent{remove, goesOn}, fold(remove, goesOn), 0, ""},
		{"the watched time is missing", []faults.Sent{played, nonEarly}, changed(fold(played, nonEarly), func(r *history.Record) { r.Watches = nil }), 0, "lost"},
		{"too much watched time", []faults.Sent{nonEarly}, changed(fold(nonEarly), func(r *history.Record) {
			r.Watches = []history.WatchedTime{{At: base, Viewing: 1, Watched: 99_000}}
		}), 0, "resurrected"},
		{"started by mistake", []faults.Sent{nonEarly, mistake}, fold(nonEarly, mistake), 0, ""},
		{"the resume point is missing", []faults.Sent{nonEarly, mistake}, changed(fold(nonEarly, mistake), func(r *history.Record) { r.ResumePoint = history.ResumePoint{} }), 0, "lost"},
		{"cleared", []faults.Sent{first, second}, nil, base + 2, ""},
		{"cleared in part", []faults.Sent{first, after}, fold(first, after).After(base + 1), base + 1, ""},
		{"shown though cleared", []faults.Sent{first}, fold(first), base + 1, "resurrected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := faults.Judge(tt.sent, tt.record, tt.cleared); got != tt.want {
				t.Errorf("judge %+v, cleared to %d: got %q, want %q", tt.record, tt.cleared, got, tt.want)
			}
		})
	}
}

func changed(r *history.Record, change func(*history.Record)) *history.Record {
	c := *r
	change(&c)
	return &c
}

// TestJudgeRead judges possible and impossible views. The first two events were acknowledged before the read, the
// others later or never.
func TestJudgeRead(t *testing.T) {
	first, second := sent(history.KindProgress, 1, 20_000, true), sent(history.KindProgress, 2, 30_000, true)
	later, never := sent(history.KindProgress, 4, 40_000, true), sent(history.KindStop, 5, 50_000, false)
	remove, perhaps := sent(history.KindDelete, 3, 0, true), sent(history.KindDelete, 3, 0, false)
	long := sent(history.KindProgress, 29, 60_000, true)
	long.StartedAt, long.Watched = base-60_000, 35_000
	tests := []struct {
		name  string
		sent  []faults.Sent
		since int
		shown *history.Record
		want  string
	}{
		{"all", []faults.Sent{first, second, later, never}, 2, fold(first, second, later, never), ""},
		{"what was there before", []faults.Sent{first, second, later, never}, 2, fold(first, second), ""},
		{"less", []faults.Sent{first, second, later}, 2, fold(first), "lost"},
		{"nothing", []faults.Sent{first, second}, 2, nil, "lost"},
		{"nothing was acknowledged", []faults.Sent{later}, 0, nil, ""},
		{"a furthest position of nobody", []faults.Sent{first, second}, 2, changed(fold(first, second), func(r *history.Record) {
			r.Peaks = []history.Peak{{At: base + 1, Position: 90_000}}
		}), "resurrected"},
		{"deleted before", []faults.Sent{first, second, remove}, 3, nil, ""},
		{"shown though deleted before", []faults.Sent{first, second, remove}, 3, fold(first, second), "resurrected"},
		{"deleted since", []faults.Sent{first, second, remove}, 2, nil, ""},
		{"perhaps deleted", []faults.Sent{first, second, perhaps}, 2, nil, ""},
		{"perhaps not", []faults.Sent{first, second, perhaps}, 2, fold(first, second), ""},
		{"perhaps deleted while it was watched", []faults.Sent{first, long, perhaps}, 2, fold(first, perhaps, long), ""},
		{"perhaps not, while it was watched", []faults.Sent{first, long, perhaps}, 2, fold(first, long), ""},
		{"watched less than since what was perhaps deleted", []faults.Sent{first, long, perhaps}, 2, changed(fold(first, long), func(r *history.Record) {
			r.Watches = []history.WatchedTime{{At: base + 29, Viewing: 1, Watched: 25}}
		}), "lost"},
		{"what nobody sent", []faults.Sent{first}, 1, fold(first, never), "lost"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := faults.JudgeRead(tt.sent, tt.since, tt.shown); got != tt.want {
				t.Errorf("shown %+v: got %q, want %q", tt.shown, got, tt.want)
			}
		})
	}
}

// TestCompareStores compares keys that one store lacks.
func TestCompareStores(t *testing.T) {
	e := sent(history.KindProgress, 1, 20_000, true)
	r := fold(e)
	for _, tt := range []struct {
		name             string
		cached, archived *history.Record
		want             int
	}{
		{"both", r, r, 0},
		{"neither", nil, nil, 1},
		{"the cache alone", r, nil, 1},
		{"the archive alone", nil, r, 1},
		{"not the same", r, changed(r, func(r *history.Record) { r.Duration = 2000 }), 1},
	} {
		if got := faults.Compare(e, tt.cached, tt.archived); got.Lost != tt.want || len(got.Examples) != tt.want {
			t.Errorf("%s: got %+v, want %d lost", tt.name, got, tt.want)
		}
	}
}

func TestPrint(t *testing.T) {
	results := []faults.Result{
		{Case: "1", Load: "beats", Fault: "kill -9", Acknowledged: 7, QuietMS: 1240, Notes: []string{"three held"}},
		{Case: "2", Lost: 1, Examples: []string{"archive: u/o_1 nothing is there"}},
		{Case: "3", Error: "not ready"},
	}
	var out strings.Builder
	if err := faults.Print(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kill -9", "1.2s", "1: three held", "2: WRONG: archive: u/o_1", "3: FAILED: not ready"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for i, want := range []bool{true, false, false} {
		if got := results[i].OK(); got != want {
			t.Errorf("OK of %+v = %v, want %v", results[i], got, want)
		}
	}
}

func TestPrintJSON(t *testing.T) {
	var out strings.Builder
	if err := faults.PrintJSON(&out, []faults.Result{{Case: "1", Seed: 5}, {Case: "2", Lost: 2}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"seed":5`) || !strings.Contains(lines[1], `"lost":2`) {
		t.Errorf("got %q, want one object per line", lines)
	}
}

func TestRunUnknownCase(t *testing.T) {
	o := faults.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	err := faults.Run(t.Context(), o, []string{"1", "nope"}, func(r faults.Result) { t.Errorf("case %s ran", r.Case) })
	if err == nil || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("Run = %v, want an error that names the case", err)
	}
}
