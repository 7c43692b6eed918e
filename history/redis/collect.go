package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// collect reads the contents of places, and the user's state after them.
func (w *walk) collect(ctx context.Context, places []place) error {
	var listed []place
	var keys []history.Key
	args := []any{"mget"}
	for _, p := range places {
		if o, err := history.ParseObject(p.member); err == nil && w.wants(o, p) {
			k := history.Key{UID: w.uid, Object: o}
			listed, keys, args = append(listed, p), append(keys, k), append(args, contentKey(k))
		}
	}
	user := w.cache.state(ctx, w.uid)
	contents := goredis.NewCmd(ctx, args...)
	cmds := []goredis.Cmder{contents, user}
	if len(keys) == 0 {
		cmds = cmds[1:]
	}
	exec(ctx, w.cache, cmds)
	if len(keys) == 0 {
		contents.SetVal([]any{})
	}
	values, err := contents.Slice()
	if parted(err) {
		values, err = w.apart(ctx, args[1:])
		user = w.cache.state(ctx, w.uid)
		exec(ctx, w.cache, []goredis.Cmder{user}) // after the contents, as ever
	}
	if err := cmp.Or(err, user.Err()); err != nil {
		return err
	}
	w.user = between(w.user, stated(user))
	for i, value := range values {
		value, _ := value.(string) // nil where there is a hole
		r := w.cache.record(keys[i], value)
		if r != nil && r.State == 0 {
			asListed(r, listed[i].version)
		}
		if r != nil && w.belongs(r, listed[i]) {
			w.items = append(w.items, history.Item{Object: keys[i].Object, Record: r})
		}
	}
	return nil
}

// asListed takes from the list what a damaged content does not say: when its event was, and
// whether that was a delete.
func asListed(r *history.Record, v history.Version) {
	if r.Version = v; v == history.VersionOf(v.Time(), history.RankDelete) {
		r.State = history.StateDeleted
	}
}

// apart reads contents one by one, while their slot moves.
func (w *walk) apart(ctx context.Context, keys []any) ([]any, error) {
	cmds := make([]*goredis.Cmd, len(keys))
	for i, key := range keys {
		cmds[i] = goredis.NewCmd(ctx, "get", key)
	}
	pipeline(ctx, w.cache, cmds)
	values := make([]any, len(keys))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, goredis.Nil) {
			return nil, err
		}
		values[i] = cmd.Val()
	}
	return values, nil
}

func (w *walk) wants(o history.Object, p place) bool {
	return p.compare(w.at) > 0 && (w.query.Type == 0 || o.Type == w.query.Type)
}

// belongs reports whether a record belongs on the page. One that was written to
// between the two exchanges has moved up: on a first page it is shown at its new
// place, on others it is left to whoever starts again at the top.
func (w *walk) belongs(r *history.Record, listed place) bool {
	now := place{version: r.Version, member: listed.member}
	if now == listed {
		return true
	}
	at, q := r.Version.Time(), w.query
	return now.compare(w.start) > 0 && at >= q.Since && (q.Until == 0 || at <= q.Until)
}

// visible counts what a reader may see.
func (w *walk) visible() int {
	n := 0
	for _, item := range w.items {
		if item.Record.Visible(item.Object, &w.user) != nil {
			n++
		}
	}
	return n
}

// page is what the walk found, up to the limit.
func (w *walk) page() history.Page {
	page := history.Page{User: w.user}
	for _, item := range w.items {
		if r := item.Record.Visible(item.Object, &w.user); r != nil {
			page.Items = append(page.Items, history.Item{Object: item.Object, Record: r})
		}
	}
	slices.SortStableFunc(page.Items, func(a, b history.Item) int { return placeOf(a).compare(placeOf(b)) })
	if limit := max(w.query.Limit, 0); len(page.Items) > limit {
		page.Items, page.More = page.Items[:limit], true
	}
	return page
}
