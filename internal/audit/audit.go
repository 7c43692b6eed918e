// Package audit logs what was done to users' data: who did it, to whom, how much, with which outcome. It never logs
// content.
package audit

import (
	"context"
	"log/slog"

	"github.com/playhead/playhead/history"
)

// Entry is an action. Only Action and By are required.
type Entry struct {
	Action string // such as export
	By     string // subject of a token, address of a caller, or user of a machine
	Scopes string // of the token, if it allowed the action.
	UID    string // whose data; logged as a pseudonym
	Count  int    // objects
	// Request names the request in other lines.
	Request string
	Err     error // why it failed, or was cut off
}

// Log writes one line, at the level info. Log parsers find it by the group "audit".
func Log(ctx context.Context, log *slog.Logger, e Entry) {
	attrs := []any{slog.String("action", e.Action), slog.String("by", e.By)}
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("scopes", e.Scopes)
	if e.UID != "" {
		add("user", history.Pseudonym(e.UID))
	}
	attrs = append(attrs, slog.Int("count", e.Count))
	add("request_id", e.Request)
	outcome := "done"
	if e.Err != nil {
		outcome = e.Err.Error()
	}
	add("outcome", outcome)
	log.LogAttrs(ctx, slog.LevelInfo, "audit", slog.Group("audit", attrs...))
}
