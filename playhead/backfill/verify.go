package backfill

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Verifier is a target that compares: an item is there if folding it in would change nothing. What was deleted later, or
// is older than the retention, is no difference.
type Verifier struct {
	Reader Reader
	Rules  *history.Rulebook
	// Repair takes the items that are not there; nil only tells.
	Repair Target
	// Wait is how long an item that is not there may be on its way.
	Wait time.Duration
	// Out receives the first differences, a line each.
	Out io.Writer

	mu    sync.Mutex
	wrong int
}

const (
	// maxAwaited bounds the items to wait for: with more, the target is not about to have them.
	maxAwaited = 1000
	maxShown   = 20
)

// Fold implements [Target].
func (v *Verifier) Fold(ctx context.Context, items []Item) ([]Result, error) {
	results, err := v.compare(ctx, items)
	if err != nil {
		return nil, err
	}
	var late []int
	for i, r := range results {
		if r.Outcome == Missing || r.Outcome == Different {
			late = append(late, i)
		}
	}
	if len(late) == 0 {
		return results, nil
	}
	some := make([]Item, len(late))
	for n, i := range late {
		some[n] = items[i]
	}
	again, err := v.again(ctx, some)
	if err != nil {
		return nil, err
	}
	for n, i := range late {
		results[i] = again[n]
	}
	return results, nil
}

// again compares items once more after a moment, and repairs those that are still not there.
func (v *Verifier) again(ctx context.Context, items []Item) ([]Result, error) {
	v.mu.Lock()
	wait := v.wrong < maxAwaited
	v.mu.Unlock()
	if wait && !run.Sleep(ctx, v.Wait) {
		return nil, ctx.Err()
	}
	results, err := v.compare(ctx, items)
	if err != nil {
		return nil, err
	}
	var wrong []Item
	for i, r := range results {
		if r.Outcome != Missing && r.Outcome != Different {
			results[i].Outcome = Moved
			continue
		}
		wrong = append(wrong, items[i])
		v.show(&items[i], r.Outcome)
	}
	if v.Repair == nil || len(wrong) == 0 {
		return results, nil
	}
	repaired, err := v.Repair.Fold(ctx, wrong)
	if err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	n := 0
	for i, r := range results {
		if r.Outcome != Moved {
			if results[i] = repaired[n]; repaired[n].Outcome == New {
				results[i].Outcome = Repaired
			}
			n++
		}
	}
	return results, nil
}

func (v *Verifier) show(i *Item, o Outcome) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.wrong++; v.wrong <= maxShown && v.Out != nil {
		fmt.Fprintf(v.Out, "%s: %s is %s\n", i.Place, i.Key, o)
	}
}

// compare returns Missing or Different for items that folding in would change anything.
func (v *Verifier) compare(ctx context.Context, items []Item) (results []Result, err error) {
	err = retry(ctx, func() (err error) {
		f := &folding{reader: v.Reader, rules: v.Rules, now: nowMS()}
		if results, err = f.fold(ctx, items); err != nil {
			return err
		}
		_, service := v.Reader.(ServiceReader)
		for i, r := range results {
			switch {
			case service && items[i].User != nil:
				results[i] = Result{Skipped, "a service does not tell clear marks"}
			case r.Outcome == Older:
				results[i].Outcome = Equal // the target has it, among others
			case r.Outcome != New:
			case items[i].User == nil && f.contents[f.keys[i]].was == nil:
				results[i].Outcome = Missing
			default:
				results[i].Outcome = Different
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return results, nil
}

// ServiceReader reads records through history-service, by listing the users of the keys. A deleted object has no
// record there: only its absence is known.
type ServiceReader struct{ Service *Service }

// Page returns the pause of a user.
func (s ServiceReader) Page(ctx context.Context, uid string, _ history.Query) (page history.Page, err error) {
	user, _ := history.UserOf(uid)
	page.User.Pause, err = s.pause(ctx, user)
	return page, err
}

func (s ServiceReader) pause(ctx context.Context, user string) (p history.Pause, err error) {
	err = s.Service.again(ctx, func(ctx context.Context) error {
		resp, err := historyv1.NewHistoryServiceClient(s.Service.Conn).GetSettings(ctx, &historyv1.GetSettingsRequest{Uid: user})
		p.Since = resp.GetSettings().GetPausedMs()
		return err
	})
	return p, err
}

// Get returns the records of keys.
func (s ServiceReader) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries := make([]history.Entry, len(keys))
	byUser := make(map[string]map[history.Object]int)
	for i, k := range keys {
		user, _ := history.UserOf(k.UID)
		if byUser[user] == nil {
			byUser[user] = make(map[history.Object]int)
		}
		byUser[user][k.Object] = i
	}
	for uid, objects := range byUser {
		p, err := s.pause(ctx, uid)
		if err != nil {
			return nil, fmt.Errorf("settings of %q: %w", uid, err)
		}
		for _, i := range objects {
			entries[i].User.Pause = p
		}
		err = s.Service.again(ctx, func(ctx context.Context) error { return s.list(ctx, uid, objects, entries) })
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", uid, err)
		}
	}
	return entries, nil
}

// list reads pages of a user until all objects are found.
func (s ServiceReader) list(ctx context.Context, uid string, objects map[history.Object]int, entries []history.Entry) error {
	client, left := historyv1.NewHistoryServiceClient(s.Service.Conn), len(objects)
	for cursor, more := "", true; more && left > 0; {
		page, err := client.List(ctx, &historyv1.ListRequest{Uid: uid, Limit: 100, Cursor: cursor, Records: true})
		if err != nil {
			return err
		}
		for n, it := range page.GetItems() {
			i, asked := objects[history.Object{ID: it.GetObject().GetId(), Type: it.GetObject().GetType()}]
			if !asked {
				continue
			}
			if entries[i].Record, err = view.Record(page.GetRecords()[n]); err != nil {
				return err
			}
			left--
		}
		cursor, more = page.GetCursor(), page.GetHasMore()
	}
	return nil
}

// Both reads an archive and its cache: what is acknowledged may be in either.
type Both struct {
	Archive Reader
	Cache   interface {
		Load(ctx context.Context, keys []history.Key) []history.Entry
	}
}

// Page returns a page of the archive, with the newest state of the user.
func (b Both) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	page, err := b.Archive.Page(ctx, uid, q)
	if err != nil {
		return page, err
	}
	e := b.Cache.Load(ctx, []history.Key{history.UserKey(uid)})[0]
	page.User.MergeCleared(e.User.Cleared)
	page.User.Pause = page.User.Pause.Newer(e.User.Pause)
	return page, e.Err
}

// Get returns the records of both.
func (b Both) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	entries, err := b.Archive.Get(ctx, keys)
	if err != nil {
		return nil, err
	}
	for i, e := range b.Cache.Load(ctx, keys) {
		if e.Err != nil {
			return nil, e.Err
		}
		a, typ := &entries[i], keys[i].Object.Type
		a.User.MergeCleared(e.User.Cleared)
		a.User.Pause = a.User.Pause.Newer(e.User.Pause)
		a.Record = history.Merge(a.User.Cut(a.Record, typ), a.User.Cut(e.Record, typ))
	}
	return entries, nil
}
