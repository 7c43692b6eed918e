package redis

import (
	"context"
	"math"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
)

// List reads a page as [history.Lister] says: the places in one exchange, the
// contents in a second, with the user's state before and after. Holes, tombstones
// and long ties may take further pairs of those.
func (c *Cache) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	w := walk{cache: c, uid: uid, query: q, at: place{version: history.MaxVersion}}
	if q.After != (history.Cursor{}) {
		w.at = place{version: q.After.Version, member: q.After.Object.String()}
	}
	w.start = w.at
	if err := w.run(ctx); err != nil {
		return history.Page{}, unavailable("list", err)
	}
	return w.page(), nil
}

// place is where a record stands in a list.
type place struct {
	version history.Version
	member  string
}

func placeOf(item history.Item) place {
	return place{version: item.Record.Version, member: item.Object.String()}
}

// compare is negative when p comes before q: newer, or of the same version and
// with the greater text.
func (p place) compare(q place) int {
	switch {
	case p.version > q.version:
		return -1
	case p.version < q.version:
		return 1
	}
	return strings.Compare(q.member, p.member)
}

// walk goes down a list until it has a page and one item more, which proves that
// there is more.
type walk struct {
	cache *Cache
	uid   string
	query history.Query
	start place          // of the cursor
	at    place          // everything before it, and itself, was looked at
	items []history.Item // may be visible
	user  history.User
}

func (w *walk) run(ctx context.Context) error {
	n := w.query.Limit + 4 // the cursor's own item, and a hole or two
	if w.query.Type != 0 {
		n *= 3
	}
	for first := true; ; first = false {
		places, err := w.places(ctx, n, first)
		if err != nil {
			return err
		}
		if err := w.collect(ctx, places); err != nil {
			return err
		}
		if len(places) < n || w.visible() > w.query.Limit {
			return nil
		}
		if last := places[len(places)-1]; last.compare(w.at) > 0 {
			w.at = last // else all of them were ties that come before the cursor
		}
		n = min(2*n, math.MaxInt32)
	}
}

// places reads n places from the walk's on, after the user's state when it is asked
// for the first time. Places of the walk's own version come again.
func (w *walk) places(ctx context.Context, n int, first bool) ([]place, error) {
	user := w.cache.state(ctx, w.uid)
	list := goredis.NewZSliceCmd(ctx, "zrevrangebyscore", listKey(w.uid), w.newest(), w.oldest(), "withscores", "limit", 0, n)
	cmds := []goredis.Cmder{list}
	if first {
		cmds = []goredis.Cmder{user, list}
	}
	exec(ctx, w.cache, cmds)
	if err := firstErr(cmds); err != nil {
		return nil, err
	}
	if first {
		w.user = stated(user)
	}
	places := make([]place, len(list.Val()))
	for i, z := range list.Val() {
		member, _ := z.Member.(string)
		places[i] = place{version: history.Version(z.Score * 4), member: member}
	}
	return places, nil
}

func (w *walk) newest() string {
	v := w.at.version
	if w.query.Until != 0 {
		v = min(v, versionOf(w.query.Until, history.RankDelete))
	}
	if v == history.MaxVersion {
		return "+inf"
	}
	return string(appendScore(nil, v))
}

func (w *walk) oldest() string {
	if w.query.Since == 0 {
		return "-inf"
	}
	return string(appendScore(nil, versionOf(w.query.Since, history.RankProgress)))
}

// versionOf is that of any time, also one that no version has.
func versionOf(ms int64, rank int) history.Version {
	return history.VersionOf(max(0, min(ms, history.MaxVersion.Time())), rank)
}
