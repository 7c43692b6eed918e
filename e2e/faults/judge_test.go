package faults_test

import (
	"testing"

	"github.com/playhead/playhead/e2e/faults"
	"github.com/playhead/playhead/history"
)

const base = 1_700_000_000_000

func sent(kind history.Kind, at, position int64, acked bool) faults.Sent {
	return faults.Sent{
		Event: history.Event{Kind: kind, At: base + at, Position: position, Duration: 1000, Session: "s"}, Acked: acked,
	}
}

// fold is what the product makes of events.
func fold(events ...faults.Sent) (r *history.Record) {
	for _, e := range events {
		r = history.Merge(r, e.Record())
	}
	return r
}

// TestJudge has the oracle look at right records and at each way to be wrong.
func TestJudge(t *testing.T) {
	first, second := sent(history.KindProgress, 1, 900, true), sent(history.KindProgress, 2, 100, true)
	maybe := sent(history.KindProgress, 3, 300, false)
	remove, perhaps := sent(history.KindDelete, 2, 0, true), sent(history.KindDelete, 2, 0, false)
	after := sent(history.KindStop, 4, 200, true)
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
			r.Peaks = fold(first, after).Peaks
			return &r
		}(), 0, "resurrected"},
		{"a play from before the delete", []faults.Sent{first, remove, after}, func() *history.Record {
			r := *fold(remove, after)
			r.Completions = fold(first).Completions
			return &r
		}(), 0, "resurrected"},
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
