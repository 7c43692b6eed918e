package read

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

// With classes, a user's records are in namespaces: see [history.Class]. A page of one type reads the type's
// namespace. A page of all types reads all namespaces concurrently and merges them, up to the earliest page end.
// All lists share one order and one form of cursor.
//
// While types are moving ([history.Rulebook.Moving]), several namespaces may have a record of one object. Readers
// then see the merged record, at its place in the list.
//
// A clear mark in the default namespace holds in all namespaces.

// namespaces returns the namespaces that may have records of a type, 0 for all types.
func (r *Reader) namespaces(uid string, typ uint32) []string {
	if typ != 0 && !r.cfg.Rules.Moving(r.nowMS()) {
		return []string{r.cfg.Rules.NamespaceOf(uid, typ)}
	}
	return r.cfg.Rules.Namespaces(uid)
}

func (r *Reader) nowMS() int64 { return r.cfg.Now().UnixMilli() }

// divided reports whether classes are configured.
func (r *Reader) divided() bool { return len(r.cfg.Rules.Classes()) > 0 }

// Namespace warms up a namespace and returns its state.
func (r *Reader) Namespace(ctx context.Context, namespace string) (history.User, error) {
	entries, err := r.known(ctx, []history.Key{history.UserKey(namespace)})
	if err != nil {
		return history.User{}, err
	}
	return entries[0].User, nil
}

// oldest returns the expiry limit of a namespace: records of this time or earlier have expired.
func (r *Reader) oldest(namespace string) int64 {
	return r.cfg.Rules.NamespaceExpired(namespace, r.cfg.Horizon().UnixMilli())
}

// pages reads one page across the namespaces of a query. It reads on while every item is hidden.
func (r *Reader) pages(ctx context.Context, uid string, q history.Query, strict bool) (p readerPage, err error) {
	read := func(ctx context.Context, namespace string, q history.Query) (readerPage, error) {
		return r.readPage(ctx, namespace, q, strict)
	}
	if !r.divided() {
		q.Since = max(q.Since, r.oldest(uid)+1)
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

// pageOfNamespaces reads a page of each namespace concurrently and merges the pages.
func (r *Reader) pageOfNamespaces(ctx context.Context, uid string, q history.Query, read func(context.Context, string, history.Query) (readerPage, error)) (readerPage, error) {
	namespaces := r.namespaces(uid, q.Type)
	parts := make([]readerPage, len(namespaces))
	var owner history.User
	g, asking := errgroup.WithContext(ctx)
	for i, namespace := range namespaces {
		g.Go(func() (err error) {
			q := q
			q.Since = max(q.Since, r.oldest(namespace)+1)
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

// mergePages merges pages of several lists, up to the earliest page end.
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

// foldNamespaces returns a namespace's entries as readers see them; the first key is the namespace's state. While
// types are moving, it merges each entry from all namespaces. Otherwise the record in the type's current namespace
// wins: a delete leaves tombstones in every namespace, and later reports go to the current one.
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

// dropHidden removes expired and cleared items, and items with a newer record in another namespace.
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
	return it.Record.Version.Time() <= r.cfg.Rules.Expired(it.Object.Type, r.cfg.Horizon().UnixMilli())
}

// dropExpired removes an expired record from an entry.
func (r *Reader) dropExpired(e *history.Entry, k history.Key) {
	if e.Record != nil && r.expired(history.Item{Object: k.Object, Record: e.Record}) {
		e.Record = nil
	}
}

// byNamespace loads keys of one user, each from its type's namespace, or from all namespaces while types are
// moving. It reads the namespaces concurrently. The default namespace's clear marks apply to all entries; expired
// records are omitted.
func (r *Reader) byNamespace(ctx context.Context, keys []history.Key, load func(context.Context, []history.Key) ([]history.Entry, error)) ([]history.Entry, error) {
	if !r.divided() {
		found, err := load(ctx, keys)
		for i := range found {
			r.dropExpired(&found[i], keys[i])
		}
		return found, err
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
		r.dropExpired(e, k)
	}
	return found, nil
}

// namespaceKeys are the keys of one namespace, with their entries.
type namespaceKeys struct {
	namespace string
	keys      []history.Key
	of        []int  // index of each key among all keys
	home      []bool // whether the namespace is the current one of the key's type
	entries   []history.Entry
}

// into merges the namespace's unexpired entries into found.
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
