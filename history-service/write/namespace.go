package write

import (
	"context"
	"errors"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
)

// otherNamespaces returns for each group the object's record from the user's other namespaces, nil if none,
// after their clears. It looks only while types are moving between classes. Tombstones count too: a delete may
// be older than the group's namespace. If a store does not answer, the group fails.
func (w *Writer) otherNamespaces(ctx context.Context, groups []*group) []*history.Record {
	if len(groups) == 0 || groups[0].batch.namespace != "" || !w.cfg.Rules.Moving(w.nowMS()) {
		return nil
	}
	var keys []history.Key
	var of []int
	for i, g := range groups {
		user, _ := history.UserOf(g.key.UID)
		for _, namespace := range w.cfg.Rules.Namespaces(user) {
			if namespace != g.key.UID {
				keys, of = append(keys, history.Key{UID: namespace, Object: g.key.Object}), append(of, i)
			}
		}
	}
	entries := w.cfg.Cache.Load(ctx, keys)
	w.fromArchive(ctx, groups, keys, of, entries)
	all := make([]*history.Record, len(groups))
	for n, e := range entries {
		g := groups[of[n]]
		if e.Err != nil {
			g.fail()
			continue
		}
		if r := e.Record.After(e.User.ClearedAt(keys[n].Object.Type)); r != nil && !view.Damaged(r) {
			other := *r
			other.Partial, other.Revision = true, 0
			all[of[n]] = history.Merge(all[of[n]], &other)
		}
	}
	return all
}

// fromArchive folds archived records into incomplete entries of groups that cannot be decided without them. The
// other groups are marked as incomplete. The entry of keys[n] is for groups[of[n]].
func (w *Writer) fromArchive(ctx context.Context, groups []*group, keys []history.Key, of []int, entries []history.Entry) { //nolint:revive // parallel slices
	var asked []history.Key
	var into []*history.Entry
	for n := range entries {
		e, g := &entries[n], groups[of[n]]
		switch lacks := e.Err == nil && (view.Incomplete(e.Record) || e.Record == nil && !e.User.Complete()); {
		case !lacks:
		case g.wants() >= compares:
			asked, into = append(asked, keys[n]), append(into, e)
		default:
			g.moved = true
		}
	}
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, archiveWithin)
	defer cancel()
	archived, err := w.cfg.Archive.Get(ctx, asked)
	for n, e := range into {
		switch {
		case err != nil:
			e.Err = err
		case errors.Is(archived[n].Err, history.ErrUnavailable):
			e.Err = archived[n].Err
		default:
			e.User.MergeCleared(archived[n].User.Cleared)
			e.Record = history.Merge(e.Record, archived[n].Record)
		}
	}
}
