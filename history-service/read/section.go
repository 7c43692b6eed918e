package read

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
)

// Where there are classes, a user's records are in sections: see [history.Class]. A page of one type reads the section of that type
// only, and one of all types reads all of them, side by side: each is a list in one order, with the same cursors, so that they
// are merged as far as all of them are known. While types are being moved ([history.Rulebook.Moving]) what there is of an object
// may be in several sections: then it is the fold of all of them, and has the place in the list that this has.
//
// What the user has cleared in the section of no class is cleared in all of them.

// sections returns the sections that may have records of a type, 0 for all types.
func (r *Reader) sections(uid string, typ uint32) []string {
	if typ != 0 && !r.cfg.Rules.Moving(r.nowMS()) {
		return []string{r.cfg.Rules.Home(uid, typ)}
	}
	return r.cfg.Rules.Sections(uid)
}

func (r *Reader) nowMS() int64 { return r.cfg.Now().UnixMilli() }

// divided reports whether there are classes.
func (r *Reader) divided() bool { return len(r.cfg.Rules.Classes()) > 0 }

// Section returns the state of a user's section, which is warm then.
func (r *Reader) Section(ctx context.Context, section string) (history.User, error) {
	entries, err := r.known(ctx, []history.Key{history.UserKey(section)})
	if err != nil {
		return history.User{}, err
	}
	return entries[0].User, nil
}

// oldest returns the time at or before which records of a section have expired.
func (r *Reader) oldest(section string) int64 { return r.nowMS() - r.cfg.Rules.SectionLife(section) }

// pages reads a part of what all sections of a query have, until it has something to show, or there is no more.
func (r *Reader) pages(ctx context.Context, uid string, q history.Query, whole bool) (p readerPage, err error) {
	read := func(ctx context.Context, section string, q history.Query) (readerPage, error) {
		return r.readPage(ctx, section, q, whole)
	}
	if !r.divided() {
		return read(ctx, uid, q)
	}
	for {
		if p, err = r.stitched(ctx, uid, q, read); err != nil || len(p.items) > 0 || !p.more {
			return p, err
		}
		q.After = p.end
	}
}

// stitched reads a part of each of the sections of a query, and joins what they have.
func (r *Reader) stitched(ctx context.Context, uid string, q history.Query, read func(context.Context, string, history.Query) (readerPage, error)) (readerPage, error) {
	sections := r.sections(uid, q.Type)
	parts := make([]readerPage, len(sections))
	var owner history.User
	g, asking := errgroup.WithContext(ctx)
	for i, section := range sections {
		g.Go(func() (err error) {
			q := q
			if section != uid {
				q.Since = max(q.Since, r.oldest(section)+1)
			}
			parts[i], err = read(asking, section, q)
			return err
		})
	}
	if slices.ContainsFunc(sections, func(s string) bool { return s != uid }) {
		g.Go(func() (err error) {
			owner, err = r.Section(asking, uid)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return readerPage{}, err
	}
	p := joined(parts, q.Limit)
	return p, r.show(ctx, uid, &owner, &p)
}

// joined merges parts of several lists, as far as all of them are known.
func joined(parts []readerPage, limit int) (p readerPage) {
	for _, part := range parts {
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

// shown returns what is to be seen of some keys of one section; the first is that of the user. While types are being moved that is what
// all sections have. Else it is what the section of the type has, where that is another one: a delete leaves a tombstone in each of them, and
// what is reported after it is in that one alone.
func (r *Reader) shown(ctx context.Context, keys []history.Key, entries []history.Entry) ([]history.Entry, error) {
	if len(keys) == 1 || !r.divided() {
		return entries, nil
	}
	user, _ := history.UserOf(keys[0].UID)
	moving := r.cfg.Rules.Moving(r.nowMS())
	var asked []history.Key
	var of []int
	for i, k := range keys {
		if moving || !k.IsUser() && r.cfg.Rules.Home(user, k.Object.Type) != k.UID {
			asked, of = append(asked, history.Key{UID: user, Object: k.Object}), append(of, i)
		}
	}
	if len(asked) == 0 {
		return entries, nil
	}
	homes, err := r.bySection(ctx, asked, r.whole)
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

// show leaves of a page what is to be seen: nothing that has expired, that the user has cleared, or that is at another place in the
// list, since another section has something newer of it.
func (r *Reader) show(ctx context.Context, uid string, owner *history.User, p *readerPage) error {
	keys := make([]history.Key, len(p.items))
	for i, it := range p.items {
		keys[i] = history.Key{UID: uid, Object: it.Object}
	}
	var all []history.Entry
	if r.cfg.Rules.Moving(r.nowMS()) && len(keys) > 0 {
		var err error
		if all, err = r.bySection(ctx, keys, r.whole); err != nil {
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

// expired reports whether a record is older than those of its type live.
func (r *Reader) expired(it history.Item) bool {
	return it.Record.Version.Time() <= r.nowMS()-r.cfg.Rules.Life(it.Object.Type)
}

// bySection loads keys of one user, each from its section, side by side, and while types are being moved from all of them. The
// entries have what the user has cleared in the section of no class, and nothing that has expired.
func (r *Reader) bySection(ctx context.Context, keys []history.Key, load func(context.Context, []history.Key) ([]history.Entry, error)) ([]history.Entry, error) {
	if !r.divided() {
		return load(ctx, keys)
	}
	uid, moving := keys[0].UID, r.cfg.Rules.Moving(r.nowMS())
	found := make([]history.Entry, len(keys))
	var others []part
	var owner part
	for _, section := range r.cfg.Rules.Sections(uid) {
		p := part{section: section}
		for i, k := range keys {
			home := k.IsUser() && section == uid || !k.IsUser() && r.cfg.Rules.Home(uid, k.Object.Type) == section
			if home || moving && !k.IsUser() {
				p.keys, p.of, p.home = append(p.keys, history.Key{UID: section, Object: k.Object}), append(p.of, i), append(p.home, home)
			}
		}
		switch {
		case section == uid:
			p.keys = append(p.keys, history.UserKey(uid)) // the last one: whose clears hold in all
			owner = p
		case len(p.keys) > 0:
			others = append(others, p)
		}
	}
	parts := append([]part{owner}, others...)
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
		p.into(found)
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

// part is what is asked of one section.
type part struct {
	section string
	keys    []history.Key
	of      []int  // which of those that were asked for they are
	home    []bool // whether the section is that of the type
	entries []history.Entry
}

// into folds what a section has into what others have.
func (p *part) into(found []history.Entry) {
	for n, i := range p.of {
		own := p.entries[n]
		own.Record = own.Record.After(own.User.ClearedAt(p.keys[n].Object.Type))
		merged := history.Merge(found[i].Record, own.Record)
		if p.home[n] {
			found[i] = own
		}
		found[i].Record = merged
	}
}
