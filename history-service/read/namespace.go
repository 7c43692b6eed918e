package read

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

// Where there are classes, a user's records are in namespaces: see [history.Class]. A page of one type reads the namespace of that type
// only. A page of all types reads all namespaces at once and merges them. Their lists have the same order and the same cursors, so the
// merge is right down to the place where the first of the pages ends. While types are being moved ([history.Rulebook.Moving]) several
// namespaces may have a record of one object. Readers then see the fold of these records, at the fold's place in the list.
//
// A clear mark in the namespace of no class holds in all namespaces.

// namespaces returns the namespaces that may have records of a type. Type 0 means all types.
func (r *Reader) namespaces(uid string, typ uint32) []string {
	if typ != 0 && !r.cfg.Rules.Moving(r.nowMS()) {
		return []string{r.cfg.Rules.NamespaceOf(uid, typ)}
	}
	return r.cfg.Rules.Namespaces(uid)
}

func (r *Reader) nowMS() int64 { return r.cfg.Now().UnixMilli() }

// divided reports whether there are classes.
func (r *Reader) divided() bool { return len(r.cfg.Rules.Classes()) > 0 }

// Namespace returns the state of a namespace, and warms the namespace up before.
func (r *Reader) Namespace(ctx context.Context, namespace string) (history.User, error) {
	entries, err := r.known(ctx, []history.Key{history.UserKey(namespace)})
	if err != nil {
		return history.User{}, err
	}
	return entries[0].User, nil
}

// oldest returns a time: records of the namespace from then or before have expired.
func (r *Reader) oldest(namespace string) int64 {
	return r.cfg.Horizon().UnixMilli() - r.cfg.Rules.NamespaceTTL(namespace)
}

// pages reads one page of all namespaces of a query. It reads on while all that it finds is hidden.
func (r *Reader) pages(ctx context.Context, uid string, q history.Query, strict bool) (p readerPage, err error) {
	read := func(ctx context.Context, namespace string, q history.Query) (readerPage, error) {
		return r.readPage(ctx, namespace, q, strict)
	}
	if !r.divided() {
		return read(ctx, uid, q)
	}
	for once := true; ; once = false {
		p, err = r.pageOfNamespaces(ctx, uid, q, read)
		if p.once = p.once && once; err != nil || len(p.items) > 0 || !p.more {
			return p, err
		}
		q.After = p.end
	}
}

// pageOfNamespaces reads a page of each namespace of a query at once, and merges them.
func (r *Reader) pageOfNamespaces(ctx context.Context, uid string, q history.Query, read func(context.Context, string, history.Query) (readerPage, error)) (readerPage, error) {
	namespaces := r.namespaces(uid, q.Type)
	parts := make([]readerPage, len(namespaces))
	var owner history.User
	g, asking := errgroup.WithContext(ctx)
	for i, namespace := range namespaces {
		g.Go(func() (err error) {
			q := q
			if namespace != uid {
				q.Since = max(q.Since, r.oldest(namespace)+1)
			}
			parts[i], err = read(asking, namespace, q)
			return err
		})
	}
	if slices.ContainsFunc(namespaces, func(s string) bool { return s != uid }) {
		g.Go(func() (err error) {
			owner, err = r.Namespace(asking, uid)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return readerPage{}, err
	}
	p := mergePages(parts, q.Limit)
	p.once = p.once && !r.cfg.Rules.Moving(r.nowMS())
	return p, r.dropHidden(ctx, uid, &owner, &p)
}

// mergePages merges pages of several lists, down to the place where the first of them ends.
func mergePages(parts []readerPage, limit int) (p readerPage) {
	p.once = true
	for _, part := range parts {
		p.once = p.once && part.once
		p.items = append(p.items, part.items...)
		if part.more && (!p.more || part.end.Compare(p.end) < 0) {
			p.more, p.end = true, part.end
		}
	}
	slices.SortStableFunc(p.items, history.NewestFirst)
	if p.more {
		i, _ := slices.BinarySearchFunc(p.items, p.end, behind)
		p.items = p.items[:i]
	}
	if len(p.items) > limit {
		p.more, p.items = true, p.items[:limit]
		p.end = endOf(p.items)
	}
	return p
}

// foldNamespaces returns the entries of some keys of one namespace as readers see them; the first key is that of the namespace's state. While
// types are being moved an entry is what all namespaces have. Otherwise it is what the namespace of its type has, where that is another one: a
// delete leaves a tombstone in each namespace, and later reports are in that of the type alone.
func (r *Reader) foldNamespaces(ctx context.Context, keys []history.Key, entries []history.Entry) ([]history.Entry, error) {
	if len(keys) == 1 || !r.divided() {
		return entries, nil
	}
	user, _ := history.UserOf(keys[0].UID)
	moving := r.cfg.Rules.Moving(r.nowMS())
	var asked []history.Key
	var of []int
	for i, k := range keys {
		if moving || !k.IsUser() && r.cfg.Rules.NamespaceOf(user, k.Object.Type) != k.UID {
			asked, of = append(asked, history.Key{UID: user, Object: k.Object}), append(of, i)
		}
	}
	if len(asked) == 0 {
		return entries, nil
	}
	homes, err := r.byNamespace(ctx, asked, r.fromBoth)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(entries)
	for n, i := range of {
		e := &homes[n]
		if moving || e.Record.Visible(keys[i].Object, &e.User) != nil {
			all[i] = *e
		}
	}
	return all, nil
}

// dropHidden drops the items of a page that have expired, that the user has cleared, or that have another place in the list because
// another namespace has a newer record of the object.
func (r *Reader) dropHidden(ctx context.Context, uid string, owner *history.User, p *readerPage) error {
	keys := make([]history.Key, len(p.items))
	for i, it := range p.items {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	var all []history.Entry
	if r.cfg.Rules.Moving(r.nowMS()) && len(keys) > 0 {
		var err error
		if all, err = r.byNamespace(ctx, keys, r.fromBoth); err != nil {
			return err
		}
	}
	seen, known := p.items[:0], make(map[history.Object]bool, len(p.items))
	for i, it := range p.items {
		at := it.Record.Version
		if all != nil {
			it.Record = all[i].Record.Visible(it.Object, &all[i].User)
		}
		it.Record = it.Record.Visible(it.Object, owner)
		if it.Record != nil && it.Record.Version == at && !r.expired(it) && !known[it.Object] {
			known[it.Object] = true
			seen = append(seen, it)
		}
	}
	p.items = seen
	return nil
}

// expired reports whether a record is past the TTL of its type.
func (r *Reader) expired(it history.Item) bool {
	return it.Record.Version.Time() <= r.cfg.Horizon().UnixMilli()-r.cfg.Rules.TTL(it.Object.Type)
}

// byNamespace loads keys of one user, each from the namespace of its type, or from all namespaces while types are being moved. The namespaces
// are asked at once. The clear marks of the namespace of no class are applied to all entries, and expired records are left out.
func (r *Reader) byNamespace(ctx context.Context, keys []history.Key, load func(context.Context, []history.Key) ([]history.Entry, error)) ([]history.Entry, error) {
	if !r.divided() {
		return load(ctx, keys)
	}
	uid, moving := keys[0].UID, r.cfg.Rules.Moving(r.nowMS())
	found := make([]history.Entry, len(keys))
	var others []namespaceKeys
	var owner namespaceKeys
	for _, namespace := range r.cfg.Rules.Namespaces(uid) {
		p := namespaceKeys{namespace: namespace}
		for i, k := range keys {
			home := k.IsUser() && namespace == uid || !k.IsUser() && r.cfg.Rules.NamespaceOf(uid, k.Object.Type) == namespace
			if home || moving && !k.IsUser() {
				p.keys, p.of, p.home = append(p.keys, history.Key{UID: namespace, Object: k.Object}), append(p.of, i), append(p.home, home)
			}
		}
		switch {
		case namespace == uid:
			p.keys = append(p.keys, history.UserKey(uid)) // the last key: its clear marks hold in all namespaces
			owner = p
		case len(p.keys) > 0:
			others = append(others, p)
		}
	}
	parts := append([]namespaceKeys{owner}, others...)
	g, asking := errgroup.WithContext(ctx)
	for n := range parts {
		g.Go(func() (err error) {
			parts[n].entries, err = load(asking, parts[n].keys)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	entries := parts[0].entries
	cleared := entries[len(entries)-1].User.Cleared
	for _, p := range parts {
		p.into(found, r.oldest(p.namespace))
	}
	for i, k := range keys {
		e := &found[i]
		e.User.MergeCleared(cleared)
		e.Record = e.Record.After(e.User.ClearedAt(k.Object.Type))
		if e.Record != nil && r.expired(history.Item{Object: k.Object, Record: e.Record}) {
			e.Record = nil
		}
	}
	return found, nil
}

// namespaceKeys are the keys that are loaded from one namespace, and their entries.
type namespaceKeys struct {
	namespace string
	keys      []history.Key
	of        []int  // the index of each key among all that are loaded
	home      []bool // whether the namespace is that of the key's type
	entries   []history.Entry
}

// into folds the entries of a namespace, but for those that it keeps no more, into those of the namespaces before.
func (p *namespaceKeys) into(found []history.Entry, oldest int64) {
	for n, i := range p.of {
		own := p.entries[n]
		own.Record = own.Record.After(own.User.ClearedAt(p.keys[n].Object.Type))
		if own.Record != nil && own.Record.Version.Time() <= oldest {
			own.Record = nil
		}
		merged := history.Merge(found[i].Record, own.Record)
		if p.home[n] {
			found[i] = own
		}
		found[i].Record = merged
	}
}
