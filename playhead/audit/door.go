package audit

import (
	"context"
	"time"

	"github.com/playhead/playhead/client"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/playhead/backfill"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// report sends an event as a copy does.
func report(ctx context.Context, t backfill.Target, e *history.Event) (stored bool, err error) {
	results, err := t.Fold(ctx, []backfill.Item{{Key: e.Key, Event: e}})
	if err != nil {
		return false, err
	}
	return results[0].Outcome == backfill.New || results[0].Outcome == backfill.Equal, nil
}

func seen(items []*historyv1.Item) map[history.Object]Seen {
	all := make(map[history.Object]Seen, len(items))
	for _, it := range items {
		all[history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}] = Seen{it.GetPositionMs(), it.GetPlays(), it.GetIncomplete()}
	}
	return all
}

// Edge is the door of players.
type Edge struct{ *backfill.Edge }

// Report implements [Door].
func (d Edge) Report(ctx context.Context, e *history.Event) (bool, error) {
	return report(ctx, d.Edge, e)
}

func (d Edge) client(uid string) (*client.Client, error) {
	return client.New(client.Config{URL: d.URL, Token: func(context.Context) (string, error) { return d.Token(uid) }})
}

// Delete implements [Door].
func (d Edge) Delete(ctx context.Context, uid string, o history.Object) error {
	c, err := d.client(uid)
	if err != nil {
		return err
	}
	_, err = c.Delete(ctx, &historyv1.Object{Id: o.ID, Type: o.Type})
	return err
}

// Clear implements [Door].
func (d Edge) Clear(ctx context.Context, uid string, until int64) error {
	c, err := d.client(uid)
	if err != nil {
		return err
	}
	return c.Clear(ctx, time.UnixMilli(until), 0)
}

// List implements [Door].
func (d Edge) List(ctx context.Context, uid string) (map[history.Object]Seen, error) {
	c, err := d.client(uid)
	if err != nil {
		return nil, err
	}
	var items []*historyv1.Item
	for it, err := range c.List(ctx, client.Filter{}) {
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return seen(items), nil
}

// Service is the door of other services.
type Service struct {
	*backfill.Service
	// Patience bounds a call.
	Patience time.Duration
}

// Report implements [Door].
func (d Service) Report(ctx context.Context, e *history.Event) (bool, error) {
	return report(ctx, d.Service, e)
}

// call returns the client, and the context of a call.
func (d Service) call(ctx context.Context) (historyv1.HistoryServiceClient, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d.Patience)
	return historyv1.NewHistoryServiceClient(d.Conn), ctx, cancel
}

// Delete implements [Door].
func (d Service) Delete(ctx context.Context, uid string, o history.Object) error {
	c, ctx, cancel := d.call(ctx)
	defer cancel()
	_, err := c.Delete(ctx, &historyv1.DeleteRequest{Uid: uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}})
	return err
}

// Clear implements [Door].
func (d Service) Clear(ctx context.Context, uid string, until int64) error {
	c, ctx, cancel := d.call(ctx)
	defer cancel()
	_, err := c.Clear(ctx, &historyv1.ClearRequest{Uid: uid, UntilMs: until})
	return err
}

// List implements [Door].
func (d Service) List(ctx context.Context, uid string) (map[history.Object]Seen, error) {
	c, ctx, cancel := d.call(ctx)
	defer cancel()
	page, err := c.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: readLimit})
	return seen(page.GetItems()), err
}

// readLimit is more than the records of a user.
const readLimit = 100

// InCache returns the place of a cache. rules are those of its services.
func InCache(c history.Cache, rules *history.Rulebook, typ uint32) Place {
	return Place{Name: "cache", Read: func(ctx context.Context, uid string) (map[history.Object]Seen, bool, error) {
		uid = rules.NamespaceOf(uid, typ)
		entry := c.Load(ctx, []history.Key{history.UserKey(uid)})[0]
		if entry.Err != nil || !entry.User.Complete() {
			return nil, false, entry.Err
		}
		page, err := c.List(ctx, uid, history.Query{Limit: readLimit})
		return inPage(page), true, err
	}}
}

// InArchive returns the place of an archive that may be that late.
func InArchive(s history.Archive, rules *history.Rulebook, typ uint32, within time.Duration) Place {
	return Place{Name: "archive", Within: within, Read: func(ctx context.Context, uid string) (map[history.Object]Seen, bool, error) {
		page, err := s.Page(ctx, rules.NamespaceOf(uid, typ), history.Query{Limit: readLimit})
		return inPage(page), true, err
	}}
}

func inPage(page history.Page) map[history.Object]Seen {
	var items []*historyv1.Item
	for _, it := range page.Items {
		if !it.Record.Deleted() {
			items = append(items, view.Item(it.Object, it.Record, nil))
		}
	}
	return seen(items)
}
