package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/imports"
	"github.com/playhead/playhead/internal/run"
)

// Users lists users and namespaces in a fixed order, those behind one of them.
type Users interface {
	Users(ctx context.Context, from string) iter.Seq2[string, error]
}

// ArchiveReader is an archive to copy from.
type ArchiveReader interface {
	Users
	Page(ctx context.Context, uid string, q history.Query) (history.Page, error)
}

// Reader reads records by key, with marks and pauses of their users. A page of no records has the state of a user.
type Reader interface {
	Get(ctx context.Context, keys []history.Key) ([]history.Entry, error)
	Page(ctx context.Context, uid string, q history.Query) (history.Page, error)
}

// ArchiveWriter is an archive to copy to.
type ArchiveWriter interface {
	Reader
	Put(ctx context.Context, cells []history.Cell) []error
	PutUser(ctx context.Context, uid string, u history.User) error
}

// FromArchive is a source of everything in an archive, except summaries: per user the clear marks and pause, and then
// the records, tombstones too.
type FromArchive struct {
	Name  string // tells it from other archives
	Store ArchiveReader
}

// pageSize is the number of records of a read.
const pageSize = 1000

// usersAtOnce are the users whose first pages are read in one call.
const usersAtOnce = 32

// Items implements [Source]. A mark is a user.
func (a *FromArchive) Items(ctx context.Context, after string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var uids []string
		some := func() (more bool) {
			pages, errs := a.first(ctx, uids)
			for i, uid := range uids {
				more, err := a.user(ctx, uid, firstPage{pages[i], errs[i]}, yield)
				if err != nil {
					yield(Item{}, fmt.Errorf("read %q: %w", uid, err))
				}
				if !more || err != nil {
					return false
				}
			}
			uids = uids[:0]
			return true
		}
		for uid, err := range a.Store.Users(ctx, after) {
			if err != nil {
				yield(Item{}, err)
				return
			}
			if uids = append(uids, uid); len(uids) == usersAtOnce && !some() {
				return
			}
		}
		some()
	}
}

type firstPage struct {
	page history.Page
	err  error
}

// first reads the first pages of users, in one call if the store can.
func (a *FromArchive) first(ctx context.Context, uids []string) ([]history.Page, []error) {
	q := history.Query{Limit: pageSize}
	if p, ok := a.Store.(interface {
		Pages(ctx context.Context, uids []string, q history.Query) ([]history.Page, []error)
	}); ok && len(uids) > 1 {
		return p.Pages(ctx, uids, q)
	}
	pages, errs := make([]history.Page, len(uids)), make([]error, len(uids))
	for i, uid := range uids {
		pages[i], errs[i] = a.Store.Page(ctx, uid, q)
	}
	return pages, errs
}

// Identity implements [Source].
func (a *FromArchive) Identity() (string, error) { return "archive:" + a.Name, nil }

// user yields a user's items, the last one with the mark.
func (a *FromArchive) user(ctx context.Context, uid string, first firstPage, yield func(Item, error) bool) (more bool, err error) {
	q := history.Query{Limit: pageSize}
	last := Item{}
	have := false
	next := func(i Item) bool { // one behind, since the last one has the mark
		i.Place = imports.Place{File: i.Key.String()}
		ok := !have || yield(last, nil)
		last, have = i, true
		return ok
	}
	for {
		page, err := first.page, first.err
		if err != nil || q.After != (history.Cursor{}) {
			err = retry(ctx, func() (err error) {
				page, err = a.Store.Page(ctx, uid, q)
				return err
			})
		}
		if err != nil {
			return false, err
		}
		if u := page.User; q.After == (history.Cursor{}) && (len(u.Cleared) > 0 || u.Pause.Since != 0) {
			if !next(Item{Key: history.UserKey(uid), User: &history.User{Cleared: u.Cleared, Pause: u.Pause}}) {
				return false, nil
			}
		}
		for _, d := range page.Damaged {
			if !next(Item{Key: history.Key{UID: uid, Object: d.Object}, Outcome: Rejected, Reason: "the cell cannot be read: " + d.Err.Error()}) {
				return false, nil
			}
		}
		for _, it := range page.Items {
			if !next(Item{Key: history.Key{UID: uid, Object: it.Object}, Record: it.Record}) {
				return false, nil
			}
		}
		if q.After = page.End(); !page.More {
			break
		}
	}
	last.Mark = uid
	return !have || yield(last, nil), nil
}

// patience is how long stores may be away.
const patience = time.Minute

// retry calls do until it succeeds, fails for good, or was in vain for [patience].
func retry(ctx context.Context, do func() error) error {
	backoff := run.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}
	for began := time.Now(); ; {
		err := do()
		if err == nil || !errors.Is(err, history.ErrUnavailable) || time.Since(began) > patience || !backoff.Sleep(ctx) {
			return err
		}
	}
}

// Archive is a target that folds items into an archive. It honours clear marks, deletes, pauses and the retention, and
// a newer content always stays. A key that the cache knows goes through the cache. So its next archival does not lose the
// item, and a warm user sees it.
type Archive struct {
	Store ArchiveWriter
	// Cache, if set, is that of the same history.
	Cache interface {
		Load(ctx context.Context, keys []history.Key) []history.Entry
	}
	// Through writes a record to the cache and marks it dirty. It is required with Cache.
	Through func(ctx context.Context, k history.Key, r *history.Record) error
	Rules   *history.Rulebook
	// OlderDeletesUnknown takes items that have expired. Viewings beyond the retention go into summaries, if these are
	// kept. Items that had expired when the retention became longer become records. Deletes that are as old may be
	// forgotten, so what they hid comes back.
	OlderDeletesUnknown bool
	Now                 func() time.Time // default time.Now
}

// Fold implements [Target].
func (a *Archive) Fold(ctx context.Context, items []Item) (results []Result, err error) {
	err = retry(ctx, func() (err error) {
		f := &folding{reader: a.Store, rules: a.Rules, now: nowMS(), archive: a}
		if a.Now != nil {
			f.now = a.Now().UnixMilli()
		}
		if results, err = f.fold(ctx, items); err == nil {
			err = f.put(ctx)
		}
		if err == nil {
			err = f.putPast(ctx)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("put into the archive: %w", err)
	}
	return results, nil
}

// fold folds items into the contents of their keys.
func (f *folding) fold(ctx context.Context, items []Item) ([]Result, error) {
	f.keys, f.results = make([]history.Key, len(items)), make([]Result, len(items))
	f.contents = make(map[history.Key]*content)
	if err := f.load(ctx, items); err != nil {
		return nil, err
	}
	for i := range items {
		if items[i].User == nil {
			f.results[i] = f.add(i, &items[i])
		}
	}
	return f.results, nil
}

// folding is a batch of items on its way into an archive, or compared with one.
type folding struct {
	reader   Reader
	rules    *history.Rulebook
	archive  *Archive // nil to compare only
	results  []Result
	keys     []history.Key // of the items, by the rules of classes
	contents map[history.Key]*content
	distinct []history.Key         // of contents
	past     map[string][]pastItem // expired viewings, by namespace
	now      int64
}

// content is a key's record, as it was and with the items.
type content struct {
	was, now *history.Record
	user     history.User
}

// load puts the users' states, and reads the records of the batch with their users' marks and pauses.
func (f *folding) load(ctx context.Context, items []Item) error {
	for i := range items {
		it := &items[i]
		if it.User != nil {
			result, err := f.putUser(ctx, it)
			if err != nil {
				return err
			}
			f.results[i] = result
			continue
		}
		user, _ := history.UserOf(it.Key.UID)
		k := history.Key{UID: f.rules.NamespaceOf(user, it.Key.Object.Type), Object: it.Key.Object}
		if f.keys[i] = k; f.contents[k] == nil {
			f.contents[k] = &content{}
			f.distinct = append(f.distinct, k)
		}
	}
	slices.SortFunc(f.distinct, func(a, b history.Key) int { // stores read a user's records together
		return cmp.Or(cmp.Compare(history.BucketOf(a.UID), history.BucketOf(b.UID)), strings.Compare(a.UID, b.UID), strings.Compare(a.Object.ID, b.Object.ID))
	})
	entries, err := f.reader.Get(ctx, f.distinct)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if e.Err != nil {
			return fmt.Errorf("%s: %w", f.distinct[i], e.Err)
		}
		*f.contents[f.distinct[i]] = content{was: e.Record, now: e.Record, user: e.User}
	}
	return nil
}

// putUser puts clear marks and a pause, unless the archive has later ones. Those of a user are for all namespaces.
func (f *folding) putUser(ctx context.Context, it *Item) (Result, error) {
	result := Result{Outcome: Equal}
	namespaces := []string{it.Key.UID}
	if user, class := history.UserOf(it.Key.UID); class == "" {
		namespaces = f.rules.Namespaces(user)
	}
	for _, uid := range namespaces {
		page, err := f.reader.Page(ctx, uid, history.Query{})
		if err != nil {
			return Result{}, err
		}
		changed := it.User.Pause.Newer(page.User.Pause) != page.User.Pause
		for typ, at := range it.User.Cleared {
			changed = changed || at > page.User.Cleared[typ]
		}
		if !changed {
			continue
		}
		if result.Outcome = New; f.archive == nil {
			continue
		}
		if err := f.archive.Store.PutUser(ctx, uid, *it.User); err != nil {
			return Result{}, err
		}
	}
	return result, nil
}

// add folds an item into the content of its key.
func (f *folding) add(i int, it *Item) Result {
	k := f.keys[i]
	c, r := f.contents[k], f.record(it)
	typ := k.Object.Type
	expired := r.Version.Time() <= f.rules.Expired(typ, f.now)
	switch {
	case expired && (r.Deleted() || f.archive == nil || !f.archive.OlderDeletesUnknown):
		return Result{Outcome: Expired}
	case !r.Deleted() && c.user.Pause.Covers(r.PlayedAt()):
		return Result{Outcome: Paused}
	}
	if expired {
		return f.addExpired(i, it, r)
	}
	if r = r.After(c.user.ClearedAt(typ)); r == nil {
		return Result{Outcome: Deleted}
	}
	if c.now != nil && !r.Restored && !r.Deleted() {
		if r = r.After(c.now.RemovedAt); r == nil {
			return Result{Outcome: Deleted}
		}
	}
	return c.add(r)
}

func (c *content) add(r *history.Record) Result {
	merged := history.Merge(c.now, r)
	if c.now != nil {
		merged.Partial = c.now.Partial
	}
	if c.now == nil || !history.SameButViewings(merged, c.now) {
		c.now = merged
		return Result{Outcome: New}
	}
	if c.now.Version == r.Version {
		return Result{Outcome: Equal}
	}
	return Result{Outcome: Older}
}

// record returns the item's record: of an event, that of its start and its end.
func (f *folding) record(it *Item) *history.Record {
	if it.Record != nil {
		r := *it.Record
		r.Revision, r.CellTime, r.Partial = 0, 0, true
		return &r
	}
	var r *history.Record
	rules := f.rules.Of(it.Key.Object.Type)
	for e := range Beats(it.Event, 0) {
		r = history.Merge(r, rules.Record(e))
	}
	return r
}

// putsOfCall bounds the cells of a put: those of all lanes at once have to be done within its deadline.
const putsOfCall = 250

// put stores the contents that have changed.
func (f *folding) put(ctx context.Context) error {
	var cells []history.Cell
	for _, k := range f.distinct {
		c := f.contents[k]
		if c.now == c.was {
			continue
		}
		r := c.now
		if c.was != nil {
			r = &history.Record{}
			*r = *c.now
			r.CellTime = max(r.CellTime, c.was.CellTime)
		}
		r = r.Successor(&c.user)
		r.Partial = false
		cells = append(cells, history.Cell{Key: k, Record: r})
	}
	through, err := f.through(ctx, &cells)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(cells, putsOfCall) {
		for _, err := range f.archive.Store.Put(ctx, some) {
			if err != nil {
				return err
			}
		}
	}
	again := cells // a user may have become warm meanwhile
	some, err := f.through(ctx, &again)
	if err != nil {
		return err
	}
	for _, cell := range append(through, some...) {
		if err := f.archive.Through(ctx, cell.Key, cell.Record); err != nil {
			return err
		}
	}
	return nil
}

// through takes out of the cells those that the cache must have: of keys that it has, and of warm users.
func (f *folding) through(ctx context.Context, cells *[]history.Cell) (known []history.Cell, err error) {
	if f.archive.Cache == nil || len(*cells) == 0 {
		return nil, nil
	}
	keys := make([]history.Key, len(*cells))
	for i, cell := range *cells {
		keys[i] = cell.Key
	}
	var direct []history.Cell
	for i, e := range f.archive.Cache.Load(ctx, keys) {
		switch {
		case e.Err != nil:
			return nil, e.Err
		case e.Record != nil || e.User.Warm:
			known = append(known, (*cells)[i])
		default:
			direct = append(direct, (*cells)[i])
		}
	}
	*cells = direct
	return known, nil
}
