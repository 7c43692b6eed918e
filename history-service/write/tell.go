package write

import (
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/webhook"
)

// tell tells the webhook what a batch has begun, completed and removed, of what it has written.
// Removed are the groups of which something else than the cache had a record.
func (w *Writer) tell(b *batch, removed map[*group]bool) {
	if w.cfg.Webhook == nil {
		return
	}
	var events []webhook.Event
	for _, g := range b.groups {
		if g.written == nil {
			continue
		}
		for _, kind := range g.kinds(removed[g]) {
			events = append(events, webhook.Event{
				Kind: kind, User: g.key.UID, Object: &webhook.Object{ID: g.key.Object.ID, Type: g.key.Object.Type}, Time: textOf(g.written.PlayedAt()),
			})
		}
	}
	w.cfg.Webhook.Tell(events...)
}

// kinds are what has become of the object of a group.
func (g *group) kinds(known bool) (kinds []webhook.Kind) {
	before, after := g.before().Visible(g.key.Object, &g.user), g.written.Visible(g.key.Object, &g.user)
	if after == nil {
		if before != nil || known {
			kinds = append(kinds, webhook.Removed)
		}
		return kinds
	}
	plays := uint64(0)
	if before == nil {
		kinds = append(kinds, webhook.Started)
	} else {
		plays = before.Plays()
	}
	if after.Plays() > plays {
		kinds = append(kinds, webhook.Completed)
	}
	return kinds
}

// tellCleared tells that everything of a user, or of a type, up to a time is removed.
func (w *Writer) tellCleared(uid string, c history.Clear) {
	w.cfg.Webhook.Tell(webhook.Event{Kind: webhook.Removed, User: uid, Type: c.Type, Time: textOf(c.Until)})
}

func textOf(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
