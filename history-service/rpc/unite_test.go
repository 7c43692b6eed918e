package rpc_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/playhead/playhead/history-service/rpc"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// told is a history's reports and removals, in Unix ms.
type told struct {
	uid     string
	beats   []*historyv1.Heartbeat
	marks   []*historyv1.MarkRequest
	deleted int64
	cleared int64
}

// forget drops everything up to the removals.
func (h *told) forget() {
	until := max(h.deleted, h.cleared)
	h.beats = slices.DeleteFunc(h.beats, func(hb *historyv1.Heartbeat) bool { return hb.EventTimeMs <= until })
	h.marks = slices.DeleteFunc(h.marks, func(m *historyv1.MarkRequest) bool { return m.AtMs <= until })
}

const longAgo = 2_000_000 // milliseconds before start, earlier than all reports

// union is a set of histories with mutual imports.
type union struct {
	*rapid.T
	t    *testing.T // for the calls
	s    *rpc.Server
	n    int64 // makes every time unique
	film []*historyv1.Object
}

// moment draws a time for a removal, between sessions.
func (u *union) moment() int64 { return start - 100_000*rapid.Int64Range(1, 12).Draw(u.T, "moment") }

func (u *union) report(h *told) {
	u.n++
	begun := u.moment() + 1000*rapid.Int64Range(1, 20).Draw(u.T, "begun")
	hb := beat(h.uid+"/film", rapid.SampledFrom([]historyv1.Kind{stop, progress, finish}).Draw(u.T, "kind"), 0, rapid.Int64Range(1, 100).Draw(u.T, "position"))
	hb.EventTimeMs = begun + 1000*rapid.Int64Range(2, 70).Draw(u.T, "later") + u.n
	hb.Session, hb.StartedAtMs, hb.WatchedMs, hb.Device = fmt.Sprint(h.uid, " ", begun), begun, hb.EventTimeMs-begun, h.uid
	if rapid.Bool().Draw(u.T, "titled") {
		hb.Meta = map[string]string{"title": hb.Session}
	}
	apply(u.t, u.s, hb)
	h.beats = append(h.beats, hb)
}

func (u *union) mark(h *told) {
	u.n++
	m := &historyv1.MarkRequest{Uid: h.uid, Objects: toMark(u.film...), Mark: historyv1.Mark(rapid.IntRange(1, 3).Draw(u.T, "mark")), AtMs: u.moment() + 95_000 + u.n}
	resp, err := u.s.Mark(u.t.Context(), m)
	if err != nil {
		u.Fatal(err)
	}
	if st := resp.Statuses[0]; st == stored || st == historyv1.Status_STATUS_STALE {
		h.marks = append(h.marks, m)
	}
}

func (u *union) delete(h *told, at int64) {
	if _, err := u.s.Delete(u.t.Context(), &historyv1.DeleteRequest{Uid: h.uid, AtMs: at, Objects: u.film}); err != nil {
		u.Fatal(err)
	}
	h.deleted = max(h.deleted, at)
}

func (u *union) clear(h *told, until int64) {
	if _, err := u.s.Clear(u.t.Context(), &historyv1.ClearRequest{Uid: h.uid, UntilMs: until}); err != nil {
		u.Fatal(err)
	}
	h.cleared = max(h.cleared, until)
}

// take imports another history twice; the second import changes nothing.
func (u *union) take(h, from *told) {
	lines := export(u.t, u.s, from.uid)
	imports(u.t, u.s, backupOf(h.uid, lines...))
	if again := imports(u.t, u.s, backupOf(h.uid, lines...)); again[stored] > 0 {
		u.Fatalf("%s into %s, again: %v", from.uid, h.uid, again)
	}
	if empty := len(h.beats)+len(h.marks) == 0 && h.deleted+h.cleared == 0; empty && len(lines) > 0 {
		h.deleted = lines[0].Record.RemovedMs // imported into an empty history
	}
	h.beats, h.marks = append(h.beats, from.beats...), append(h.marks, from.marks...)
}

// judge compares a history with a new one that gets the same reports in another order. Marks come last, since they
// need a record.
func (u *union) judge(h *told) {
	u.n++
	other := &told{uid: fmt.Sprintf("%s-%d", h.uid, u.n)}
	apply(u.t, u.s, beat(other.uid+"/film", stop, longAgo, 100))
	for _, hb := range rapid.Permutation(h.beats).Draw(u.T, "order") {
		same := proto.CloneOf(hb)
		same.Uid = other.uid
		apply(u.t, u.s, same)
	}
	for _, m := range slices.SortedFunc(slices.Values(h.marks), func(a, b *historyv1.MarkRequest) int { return cmp.Compare(a.AtMs, b.AtMs) }) {
		same := proto.CloneOf(m)
		same.Uid = other.uid
		if _, err := u.s.Mark(u.t.Context(), same); err != nil {
			u.Fatal(err)
		}
	}
	u.delete(other, max(h.deleted, start-longAgo))
	if h.cleared > 0 {
		u.clear(other, h.cleared)
	}
	got, want := point(u.t, u.s, h.uid, "film"), point(u.t, u.s, other.uid, "film")
	if got != nil && want != nil {
		got.Etag, want.Etag = 0, 0
		got.Incomplete, want.Incomplete = false, false // the archive may have been late
	}
	if !proto.Equal(got, want) {
		u.Fatalf("%s:\ngot  %v\nwant %v", h.uid, got, want)
	}
}

// TestUnited: histories with mutual imports, between reports, marks, deletes and clears, equal a new history with
// the same reports. Removals before an export, and in the history itself, apply.
func TestUnited(t *testing.T) {
	s := newHouse(t).service(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		u := &union{T: rt, t: t, s: s, film: []*historyv1.Object{{Id: "film", Type: 1}}}
		var users []*told
		for i := range 3 {
			users = append(users, &told{uid: fmt.Sprintf("%d-%d", round, i)})
		}
		for range rapid.IntRange(2, 14).Draw(rt, "steps") {
			h := rapid.SampledFrom(users).Draw(rt, "history")
			switch rapid.SampledFrom([]string{"report", "report", "report", "mark", "delete", "clear", "import", "import"}).Draw(rt, "step") {
			case "report":
				u.report(h)
			case "mark":
				u.mark(h)
			case "delete":
				u.delete(h, u.moment())
			case "clear":
				u.clear(h, u.moment())
			case "import":
				u.take(h, rapid.SampledFrom(users).Draw(rt, "from"))
			}
			h.forget()
			u.judge(h)
		}
	})
}
