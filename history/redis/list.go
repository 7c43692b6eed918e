package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/trace"
)

// List implements [history.Cache]. One exchange reads the places, a second the contents; the user's state is read
// before and after. Holes, tombstones and long ties may take further pairs.
func (c *Cache) List(ctx context.Context, uid string, q history.Query) (_ history.Page, err error) {
	ctx, span := trace.Store(ctx, "redis", "list", 1)
	defer func() { span.End(err) }()
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

// place is a record's position in a list.
type place struct {
	version history.Version
	member  string
}

func placeOf(item history.Item) place {
	return place{version: item.Record.Version, member: item.Object.String()}
}

// compare is negative if p comes before q: newer, or the same version and the greater text.
func (p place) compare(q place) int {
	switch {
	case p.version > q.version:
		return -1
	case p.version < q.version:
		return 1
	}
	return strings.Compare(q.member, p.member)
}

// walk descends a list until it has a page and one more item.
type walk struct {
	cache *Cache
	uid   string
	query history.Query
	start place          // the cursor's place
	at    place          // last place already examined
	items []history.Item // possibly visible
	user  history.User
}

func (w *walk) run(ctx context.Context) error {
	n := w.query.Limit + 4 // plus the cursor's own item and a few holes
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
			w.at = last // otherwise all were ties before the cursor
		}
		n = min(2*n, math.MaxInt32)
	}
}

// places reads n places from the walk's place on. The first call also reads the user's state, before the list.
// Places of the walk's own version repeat.
func (w *walk) places(ctx context.Context, n int, first bool) ([]place, error) {
	user := w.cache.state(ctx, w.uid)
	ask := func() *goredis.ZSliceCmd {
		return goredis.NewZSliceCmd(ctx, "zrevrangebyscore", listKey(w.uid), w.newest(), w.oldest(), "withscores", "limit", 0, n)
	}
	list := ask()
	cmds := []goredis.Cmder{list}
	if first {
		cmds = []goredis.Cmder{user, list}
	}
	if exec(ctx, w.cache, cmds) { // the state was read after the list
		list = ask()
		pipeline(ctx, w.cache, []goredis.Cmder{list})
		cmds = []goredis.Cmder{user, list}
	}
	if err := firstErr(cmds); err != nil {
		return nil, err
	}
	if first {
		w.user = readState(user)
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

// versionOf clamps ms to the valid range.
func versionOf(ms int64, rank int) history.Version {
	return history.VersionOf(max(0, min(ms, history.MaxVersion.Time())), rank)
}

// collect reads the contents of places, and afterwards the user's state.
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
	if keysApart(err) {
		values, err = w.getSingly(ctx, args[1:])
		user = w.cache.state(ctx, w.uid)
		exec(ctx, w.cache, []goredis.Cmder{user}) // after the contents, as always
	}
	if err := cmp.Or(err, user.Err()); err != nil {
		return err
	}
	w.user = certain(w.user, readState(user))
	for i, value := range values {
		value, _ := value.(string) // nil for a hole
		r := w.cache.record(keys[i], value)
		if r != nil && r.State == 0 {
			completeFromList(r, listed[i].version)
		}
		if r != nil && w.belongs(r, listed[i]) {
			w.items = append(w.items, history.Item{Object: keys[i].Object, Record: r})
		}
	}
	return nil
}

// completeFromList restores a damaged content's time and deletion from its place in the list.
func completeFromList(r *history.Record, v history.Version) {
	if r.Version = v; v == history.VersionOf(v.Time(), history.RankDelete) {
		r.State = history.StateDeleted
	}
}

// getSingly reads contents one by one while their slot moves.
func (w *walk) getSingly(ctx context.Context, keys []any) ([]any, error) {
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

// belongs reports whether a record belongs on the page. A record written between the two exchanges has moved up. A
// first page shows it at its new place; later pages omit it, because it is on the first.
func (w *walk) belongs(r *history.Record, listed place) bool {
	now := place{version: r.Version, member: listed.member}
	if now == listed {
		return true
	}
	at, q := r.Version.Time(), w.query
	return now.compare(w.start) > 0 && at >= q.Since && (q.Until == 0 || at <= q.Until)
}

// visible counts the visible items.
func (w *walk) visible() int {
	n := 0
	for _, item := range w.items {
		if item.Record.Visible(item.Object, &w.user) != nil {
			n++
		}
	}
	return n
}

// page returns the visible items, up to the limit.
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

// logTTL is the TTL of an unread change log, in seconds.
const logTTL = int64(history.ChangeLogTTL / 1e9)

// Changes implements [history.Cache] in one exchange. Beginning a log takes two more, and blocks the server for
// about 1 us per record.
func (c *Cache) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	_, stateTTL := c.ttls(uid)
	for range 3 {
		call := c.scripts.changes.call(ctx, []string{logKey(uid), stateKey(uid)}, after, limit, logTTL)
		if err := c.run(ctx, call); err != nil {
			return history.Changes{}, unavailable("changes", err)
		}
		if reply, _ := call.StringSlice(); len(reply) > 0 {
			return readChanges(reply)
		}
		_, err := c.overList(ctx, uid, func(contents []string) *goredis.Cmd {
			return c.scripts.beginLog.call(ctx, append([]string{listKey(uid), stateKey(uid), logKey(uid)}, contents...), logName(history.NewRevision()), logTTL, stateTTL)
		})
		if err != nil {
			return history.Changes{}, unavailable("begin a log of changes", err)
		}
	}
	return history.Changes{}, unavailable("changes", errLogEnds)
}

var errLogEnds = fmt.Errorf("the log of the user ends too often")

// logName returns the member that names a log and marks the last dropped place. Members of objects have an
// underscore.
func logName(name uint64) string { return strconv.FormatUint(name, 36) }

// readChanges parses the script's reply.
func readChanges(reply []string) (l history.Changes, err error) {
	place := func(text string) (n uint64) {
		if err == nil {
			n, err = strconv.ParseUint(text, 10, 64)
		}
		return n
	}
	if l.Log, err = strconv.ParseUint(reply[0], 36, 64); err == nil {
		l.Dropped, l.Last = place(reply[1]), place(reply[2])
	}
	for i := 3; i+1 < len(reply) && err == nil; i += 2 {
		o, failed := history.ParseObject(reply[i])
		err = failed
		l.Entries = append(l.Entries, history.LogEntry{Object: o, Place: place(reply[i+1])})
	}
	return l, unavailable("changes", err)
}

// Trim implements [history.Ledger]. After an error some users may be trimmed.
func (c *Cache) Trim(ctx context.Context, uids []string) error {
	asked := make([]*goredis.Cmd, len(uids))
	for i, uid := range uids {
		asked[i] = c.scripts.excess.call(ctx, []string{listKey(uid)}, c.keep(uid))
	}
	exec(ctx, c, asked)
	var calls []*goredis.Cmd
	for i, uid := range uids {
		old, err := asked[i].StringSlice()
		if err != nil {
			return unavailable("trim", err)
		}
		for part := range slices.Chunk(old, 2*trimStep) {
			calls = append(calls, c.trim(ctx, uid, part))
		}
	}
	return unavailable("trim", cmp.Or(c.runAll(ctx, calls), c.trimLogs(ctx, uids)))
}

// trimLogs drops the oldest entries of logs that are too long.
func (c *Cache) trimLogs(ctx context.Context, uids []string) error {
	lengths := make([]*goredis.IntCmd, len(uids))
	for i, uid := range uids {
		lengths[i] = goredis.NewIntCmd(ctx, "zcard", logKey(uid))
	}
	exec(ctx, c, lengths)
	if err := firstErr(lengths); err != nil {
		return err
	}
	for i, uid := range uids {
		if excess := int(lengths[i].Val()) - 1 - c.logged(uid); excess > 0 {
			if err := c.trimLog(ctx, uid, excess); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cache) trimLog(ctx context.Context, uid string, excess int) error {
	oldest := goredis.NewStringSliceCmd(ctx, "zrange", logKey(uid), 0, excess, "withscores")
	pipeline(ctx, c, []goredis.Cmder{oldest})
	entries := oldest.Val()
	if err := oldest.Err(); err != nil || len(entries) < 4 {
		return err
	}
	name, entries := entries[0], entries[2:]
	for part := range slices.Chunk(entries, 2*trimStep) {
		keys, args := []string{logKey(uid)}, []any{name}
		for i := 0; i < len(part); i += 2 {
			keys, args = append(keys, memberKey(uid, part[i])), append(args, part[i], part[i+1])
		}
		call := c.scripts.trimLog.call(ctx, keys, args...)
		if err := c.run(ctx, call); err != nil {
			return err
		}
		if n, _ := call.Int(); n == 0 {
			return nil
		}
	}
	return nil
}
