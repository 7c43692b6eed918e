package write

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/view"
)

// With classes a user has a namespace per class and a default one: see [history.Class]. Clears and the pause
// apply to the whole history. A call stores them in the default namespace first and then copies them to the
// others. If it stops half way, or the class is newer than the clear, the next report's load of the namespace
// copies them.

// entries loads keys from the cache. It also copies missing clears and pauses to the keys' namespaces, and
// reports whether it copied any.
func (w *Writer) entries(ctx context.Context, keys []history.Key) (entries []history.Entry, copied bool) {
	all, owners := slices.Clip(keys), map[string]int{}
	for _, k := range keys {
		user, class := history.UserOf(k.UID)
		if _, known := owners[user]; class != "" && !known {
			owners[user] = len(all)
			all = append(all, history.UserKey(user))
		}
	}
	begun := w.compare.begun.Load()
	loaded := w.cfg.Cache.Load(ctx, all)
	if entries = loaded[:len(keys):len(keys)]; len(owners) == 0 {
		return entries, false
	}
	failed := make(map[string]error)
	for i, k := range keys {
		user, class := history.UserOf(k.UID)
		if _, done := failed[k.UID]; done || class == "" || entries[i].Err != nil {
			continue
		}
		owner := &loaded[owners[user]]
		if failed[k.UID] = owner.Err; owner.Err == nil {
			if !owner.User.Warm {
				w.cfg.Reader.Warm(user)
			}
			var changed bool
			changed, failed[k.UID] = w.copyDecisions(ctx, k.UID, &owner.User, &entries[i].User, begun)
			copied = copied || changed
		}
	}
	if copied {
		entries = w.cfg.Cache.Load(ctx, keys)
	}
	for i, k := range keys {
		if err := failed[k.UID]; err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries, copied
}

// copyDecisions copies the clears and the pause of the default namespace, owner, to a namespace that lacks
// them, and reports whether it copied any. It remembers them for both: a cache that lost them must not regain
// them in a part of the history alone. begun is the number of comparisons started before the load of owner.
func (w *Writer) copyDecisions(ctx context.Context, namespace string, owner, own *history.User, begun uint64) (changed bool, err error) { //nolint:revive // two states, and what they were as of
	user, _ := history.UserOf(namespace)
	if p := own.Pause.Newer(owner.Pause); p != own.Pause {
		changed = true
		if err := w.cfg.Cache.Pause(ctx, namespace, own.Pause, p); err != nil && !errors.Is(err, history.ErrConflict) {
			return changed, err
		}
		w.remember(decision{uid: user, pause: p}, begun)
		w.remember(decision{uid: namespace, pause: p}, begun)
	}
	for _, typ := range slices.Sorted(maps.Keys(owner.Cleared)) {
		until := owner.Cleared[typ]
		if until <= own.ClearedAt(typ) {
			continue
		}
		changed = true
		c := history.Clear{Type: typ, Until: until}
		if _, err := w.cfg.Cache.Clear(ctx, namespace, c); err != nil {
			return changed, err
		}
		w.remember(decision{uid: user, clear: c}, begun)
		w.remember(decision{uid: namespace, clear: c}, begun)
	}
	if changed {
		w.cfg.Aggregate.MakeDue(namespace)
	}
	return changed, nil
}

// follow copies a user's clears and pause to all class namespaces.
func (w *Writer) follow(ctx context.Context, uid string) error {
	var keys []history.Key
	for _, namespace := range w.cfg.Rules.Namespaces(uid)[1:] {
		keys = append(keys, history.UserKey(namespace))
	}
	if len(keys) == 0 {
		return nil
	}
	for range read.MaxTries {
		entries, copied := w.entries(ctx, keys)
		for _, e := range entries {
			if e.Err != nil {
				return e.Err
			}
		}
		if !copied {
			return nil
		}
	}
	return fmt.Errorf("too many concurrent updates: %w", history.ErrUnavailable)
}

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

// namespacesOf returns all namespaces of a user in any store, including those of removed classes.
func (w *Writer) namespacesOf(ctx context.Context, uid string) ([]string, error) {
	all := w.cfg.Rules.Namespaces(uid)
	for _, store := range w.cfg.Erasers {
		s, ok := store.(history.NamespaceLister)
		if !ok {
			continue
		}
		some, err := s.Namespaces(ctx, uid)
		if err != nil {
			return nil, err
		}
		for _, namespace := range some {
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
	}
	return all, nil
}
