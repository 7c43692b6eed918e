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
// A clear mark in the default namespace holds in all namespaces.

// namespaces returns the namespaces that may have records of a type, 0 for all types.
func (r *Reader) namespaces(uid string, typ uint32) []string {
	if typ != 0 {
		return []string{r.cfg.Rules.NamespaceOf(uid, typ)}
	}
	return r.cfg.Rules.Namespaces(uid)
}

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
	p.items = r.visible(p.items, &owner)
	return p, nil
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

// visible returns the items that have neither expired nor been cleared by the owner of their namespace.
func (r *Reader) visible(items []history.Item, owner *history.User) []history.Item {
	seen := items[:0]
	for _, it := range items {
		at := it.Record.Version
		if it.Record = it.Record.Visible(it.Object, owner); it.Record != nil && it.Record.Version == at && !r.expired(it) {
			seen = append(seen, it)
		}
	}
	return seen
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

// byNamespace loads keys of one user, each from its type's namespace. It reads the namespaces concurrently. The
// default namespace's clear marks apply to all entries; expired records are omitted.
func (r *Reader) byNamespace(ctx context.Context, keys []history.Key, load func(context.Context, []history.Key) ([]history.Entry, error)) ([]history.Entry, error) {
	if !r.divided() {
		found, err := load(ctx, keys)
		for i := range found {
			r.dropExpired(&found[i], keys[i])
		}
		return found, err
	}
	uid := keys[0].UID
	var parts []namespaceKeys // the default namespace first
	for _, namespace := range r.cfg.Rules.Namespaces(uid) {
		var p namespaceKeys
		for i, k := range keys {
			if k = r.cfg.Rules.Home(k); k.UID == namespace {
				p.keys, p.of = append(p.keys, k), append(p.of, i)
			}
		}
		if namespace == uid {
			p.keys = append(p.keys, history.UserKey(uid)) // the last key: its clear marks hold in all namespaces
		}
		if len(p.keys) > 0 {
			parts = append(parts, p)
		}
	}
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
	found, owners := make([]history.Entry, len(keys)), parts[0].entries
	cleared := owners[len(owners)-1].User.Cleared
	for _, p := range parts {
		for n, i := range p.of {
			e := p.entries[n]
			e.User.MergeCleared(cleared)
			e.Record = e.Record.After(e.User.ClearedAt(keys[i].Object.Type))
			r.dropExpired(&e, keys[i])
			found[i] = e
		}
	}
	return found, nil
}

// namespaceKeys are the keys of one namespace, with their entries.
type namespaceKeys struct {
	keys    []history.Key
	of      []int // index of each key among all keys
	entries []history.Entry
}
