package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (w *World) traced() bool { return w.cfg.Trace != nil }

func (w *World) tracef(format string, args ...any) {
	if w.cfg.Trace != nil {
		fmt.Fprintf(w.cfg.Trace, "%6d %9.3f  %s\n", w.steps, time.Since(w.began).Seconds(), strings.ReplaceAll(fmt.Sprintf(format, args...), "\x01", "."))
	}
}

// content formats a record for traces.
func (w *World) content(r *history.Record) string {
	if r == nil {
		return "nothing"
	}
	flags := ""
	if r.Partial {
		flags += " partial"
	}
	if r.CellTime != r.Version.Time() {
		flags += " cell time " + moment(r.CellTime)
	}
	if r.Deleted() {
		return fmt.Sprintf("{tombstone at %s, rev %s%s}", moment(r.Version.Time()), w.revision(r.Revision), flags)
	}
	return fmt.Sprintf("{%s at %s position %d furthest %d plays %d watched %d removed %s, rev %s%s}", r.State, moment(r.Version.Time()),
		r.Position, r.Furthest(), r.Plays(), r.Watched(), moment(r.RemovedAt), w.revision(r.Revision), flags)
}

// revision numbers revisions by first appearance. They are random, and two traces of one run must be equal.
func (w *World) revision(r uint64) string {
	if r == 0 {
		return "none"
	}
	n, known := w.revisions[r&^history.CleanBit]
	if !known {
		n = len(w.revisions) + 1
		w.revisions[r&^history.CleanBit] = n
	}
	if r&history.CleanBit != 0 {
		return fmt.Sprintf("%d clean", n)
	}
	return fmt.Sprint(n)
}

func (w *World) write(c history.Write) string {
	return fmt.Sprintf("%s on %s mark %t %s", c.Key, w.revision(c.Base), c.BeginsHold, w.content(c.Record))
}

func (w *World) outcome(o history.Outcome) string {
	switch o.Status {
	case history.Applied:
		return "applied"
	case history.Conflict:
		return fmt.Sprintf("in conflict with %s, user %s", w.content(o.Current.Record), userText(&o.Current.User))
	}
	return "no answer"
}

func userText(u *history.User) string {
	return fmt.Sprintf("{warm %t low watermark %s cleared %v pause %+v}", u.Warm, moment(u.LowWatermark.Time()), u.Cleared, u.Pause)
}

func applyText(w *World, attempts []*attempt, req *historyv1.ApplyRequest) string {
	if !w.traced() {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apply %s", strings.ToLower(strings.TrimPrefix(req.Ack.String(), "ACK_")))
	for i, a := range attempts {
		fmt.Fprintf(&b, "\n                    %s/%s %s", a.uid, a.object, &a.k.fact)
		if tag := req.Heartbeats[i].IfMatch; tag != 0 {
			fmt.Fprintf(&b, " if %x", tag)
		}
	}
	return b.String()
}
