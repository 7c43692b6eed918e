package write

import (
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/webhook"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// tellBackend sends the webhook the objects that the batch began, completed and removed.
func (w *Writer) tellBackend(b *batch) {
	if w.cfg.Webhook == nil {
		return
	}
	var events []webhook.Event
	for _, g := range b.groups {
		if g.written != nil {
			events = g.appendEvents(events)
		}
	}
	w.cfg.Webhook.Tell(events...)
}

func (g *group) appendEvents(events []webhook.Event) []webhook.Event {
	user, _ := history.UserOf(g.key.UID)
	tell := func(kind webhook.Kind, at int64) {
		events = append(events, webhook.Event{
			Kind: kind, User: user, Object: &webhook.Object{ID: g.key.Object.ID, Type: g.key.Object.Type}, Time: textOf(at),
		})
	}
	before, after := g.earlier().Visible(g.key.Object, &g.user), g.written.Visible(g.key.Object, &g.user)
	switch {
	case after == nil && before != nil:
		tell(webhook.Removed, g.written.PlayedAt())
	case after != nil && before == nil:
		tell(webhook.Started, g.begun())
	}
	plays := history.NewPlays(before, after)
	for _, at := range plays {
		tell(webhook.Completed, at)
	}
	if len(plays) == 0 && before != nil && after != nil && after.Marked(history.KindWatched) && !before.Marked(history.KindWatched) { // marked again
		tell(webhook.Completed, after.PlayedAt())
	}
	return events
}

// earlier returns the record before the batch, including the archive and other namespaces.
func (g *group) earlier() *history.Record {
	return history.Merge(history.Merge(g.base, g.archived), g.older)
}

// begun returns the time of the first report in the new record.
func (g *group) begun() int64 {
	at := g.written.PlayedAt()
	for _, i := range g.reports {
		if r := &g.batch.reports[i]; r.Status == historyv1.Status_STATUS_STORED && !r.Latest {
			at = min(at, r.At)
		}
	}
	return at
}

// tellCleared sends the webhook the removal of everything of a user, or of a type, up to a time.
func (w *Writer) tellCleared(uid string, c history.Clear) {
	w.cfg.Webhook.Tell(webhook.Event{Kind: webhook.Removed, User: uid, Type: c.Type, Time: textOf(c.Until)})
}

func textOf(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
