package write

import (
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/webhook"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// tellBackend tells the webhook what a batch has begun, completed and removed, of what it has written.
// Removed are the groups of which something else than the cache had a record.
func (w *Writer) tellBackend(b *batch, removed map[*group]bool) {
	if w.cfg.Webhook == nil {
		return
	}
	var events []webhook.Event
	for _, g := range b.groups {
		if g.written != nil {
			events = g.appendEvents(events, removed[g])
		}
	}
	w.cfg.Webhook.Tell(events...)
}

// appendEvents appends what has become of the object of a group.
func (g *group) appendEvents(events []webhook.Event, known bool) []webhook.Event {
	user, _ := history.UserOf(g.key.UID)
	tell := func(kind webhook.Kind, at int64) {
		events = append(events, webhook.Event{
			Kind: kind, User: user, Object: &webhook.Object{ID: g.key.Object.ID, Type: g.key.Object.Type}, Time: textOf(at),
		})
	}
	before, after := g.known().Visible(g.key.Object, &g.user), g.written.Visible(g.key.Object, &g.user)
	switch {
	case after == nil && (before != nil || known):
		tell(webhook.Removed, g.written.PlayedAt())
	case after != nil && before == nil:
		tell(webhook.Started, g.begun())
	}
	plays := history.NewPlays(before, after)
	for _, at := range plays {
		tell(webhook.Completed, at)
	}
	if len(plays) == 0 && before != nil && after != nil && after.Marked(history.KindWatched) && !before.Marked(history.KindWatched) { // once more
		tell(webhook.Completed, after.PlayedAt())
	}
	return events
}

// known is what was known of the record before the batch, also by the archive and in other namespaces.
func (g *group) known() *history.Record {
	return history.Merge(history.Merge(g.base, g.archived), g.older)
}

// begun is when the first report happened that has made the record.
func (g *group) begun() int64 {
	at := g.written.PlayedAt()
	for _, i := range g.reports {
		if r := &g.batch.reports[i]; r.Status == historyv1.Status_STATUS_STORED && !r.Latest {
			at = min(at, r.At)
		}
	}
	return at
}

// tellCleared tells that everything of a user, or of a type, up to a time is removed.
func (w *Writer) tellCleared(uid string, c history.Clear) {
	w.cfg.Webhook.Tell(webhook.Event{Kind: webhook.Removed, User: uid, Type: c.Type, Time: textOf(c.Until)})
}

func textOf(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
