package sim

import (
	"fmt"

	"github.com/playhead/playhead/history"
)

// content is a record as traces show it.
func content(r *history.Record) string {
	if r == nil {
		return "nothing"
	}
	flags := ""
	if r.Partial {
		flags += " partial"
	}
	if r.Settled() {
		flags += " settled"
	}
	if r.CellTime != r.Version.Time() {
		flags += " cell time " + moment(r.CellTime)
	}
	if r.Deleted() {
		return fmt.Sprintf("{tombstone at %s, rev %s%s}", moment(r.Version.Time()), revision(r.Revision), flags)
	}
	return fmt.Sprintf("{%s at %s position %d furthest %d plays %d watched %d reset %s, rev %s%s}", r.State, moment(r.Version.Time()),
		r.Position, r.Furthest(), r.Plays(), r.Watched(), moment(r.Reset), revision(r.Revision), flags)
}

// revision is enough of a revision to tell it from others.
func revision(r uint64) string {
	s := fmt.Sprintf("%04x", r&0xffff)
	if r&history.SettledBit != 0 {
		s += "s"
	}
	return s
}

func write(w history.Write) string {
	return fmt.Sprintf("%s on %s mark %t %s", w.Key, revision(w.Base), w.Mark, content(w.Record))
}

func outcome(o history.Outcome) string {
	switch o.Status {
	case history.Applied:
		return "applied"
	case history.Conflict:
		return fmt.Sprintf("in conflict with %s, user %s", content(o.Current.Record), user(&o.Current.User))
	}
	return "no answer"
}

func user(u *history.User) string {
	return fmt.Sprintf("{warm %t floor %s cleared %v pause %+v}", u.Warm, moment(u.Floor.Time()), u.Cleared, u.Pause)
}
