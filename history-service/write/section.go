package write

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/read"
	"github.com/playhead/playhead/history-service/report"
	"github.com/playhead/playhead/history-service/view"
)

// Where there are classes, a user has a section of each, and one of none: see [history.Class]. What the user has decided of all of the
// history, the clears and the pause, is decided in the section of none, and the others follow it: at once, by the call that decides, and
// where that was broken off, or nobody knew of the class then, with the next report of the section that is not held.

// homeOf returns the key under which the stores have a key: in the section of its type, unless the batch is of another one.
func (b *batch) homeOf(k history.Key) history.Key {
	if b.section != "" {
		k.UID = b.section
	} else {
		k.UID = b.rules.Home(k.UID, k.Object.Type)
	}
	return k
}

// entries loads keys, and has what their users have decided hold in their sections. Adopted says that it did not yet.
func (w *Writer) entries(ctx context.Context, keys []history.Key) (entries []history.Entry, adopted bool) {
	all, owners := slices.Clip(keys), map[string]int{}
	for _, k := range keys {
		user, class := history.UserOf(k.UID)
		if _, known := owners[user]; class != "" && !known {
			owners[user] = len(all)
			all = append(all, history.UserKey(user))
		}
	}
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
			var news bool
			news, failed[k.UID] = w.adopt(ctx, k.UID, &owner.User, &entries[i].User)
			adopted = adopted || news
		}
	}
	if adopted {
		entries = w.cfg.Cache.Load(ctx, keys)
	}
	for i, k := range keys {
		if err := failed[k.UID]; err != nil {
			entries[i] = history.Entry{Err: err}
		}
	}
	return entries, adopted
}

// adopt has what a user has decided hold in a section too, and reports whether it did not yet.
func (w *Writer) adopt(ctx context.Context, section string, owner, own *history.User) (news bool, err error) {
	if p := own.Pause.Newer(owner.Pause); p != own.Pause {
		news = true
		if err := w.cfg.Cache.Pause(ctx, section, own.Pause, p); err != nil && !errors.Is(err, history.ErrConflict) {
			return news, err
		}
		w.decided.note(decision{uid: section, pause: p})
	}
	for typ, until := range owner.Cleared {
		if until <= own.ClearedAt(typ) {
			continue
		}
		news = true
		c := history.Clear{Type: typ, Until: until}
		if _, err := w.cfg.Cache.Clear(ctx, section, c); err != nil {
			return news, err
		}
		w.decided.note(decision{uid: section, clear: c})
	}
	if news {
		w.cfg.Aggregate.Announce(section)
	}
	return news, nil
}

// follow has what a user has decided hold in all sections.
func (w *Writer) follow(ctx context.Context, uid string) error {
	var keys []history.Key
	for _, section := range w.cfg.Rules.Sections(uid)[1:] {
		keys = append(keys, history.UserKey(section))
	}
	if len(keys) == 0 {
		return nil
	}
	for range read.MaxTries {
		entries, adopted := w.entries(ctx, keys)
		for _, e := range entries {
			if e.Err != nil {
				return e.Err
			}
		}
		if !adopted {
			return nil
		}
	}
	return fmt.Errorf("others are always first: %w", history.ErrUnavailable)
}

// elsewhere returns for each group what other sections than its own have of its object, while types are being moved: what the
// user has decided applied, nil for nothing. Where that has to be known, and a store does not answer, the group fails.
func (w *Writer) elsewhere(ctx context.Context, groups []*group) []*history.Record {
	if len(groups) == 0 || groups[0].batch.section != "" || !w.cfg.Rules.Moving(w.nowMS()) {
		return nil
	}
	var keys []history.Key
	var of []int
	for i, g := range groups {
		user, _ := history.UserOf(g.key.UID)
		for _, section := range w.cfg.Rules.Sections(user) {
			if section != g.key.UID {
				keys, of = append(keys, history.Key{UID: section, Object: g.key.Object}), append(of, i)
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
		if r := e.Record.Visible(keys[n].Object, &e.User); r != nil && !view.Damaged(r) {
			other := *r
			other.Partial, other.Revision = true, 0
			all[of[n]] = history.Merge(all[of[n]], &other)
		}
	}
	return all
}

// fromArchive folds what the archive has into those entries that lack it, of groups that cannot be decided without.
func (w *Writer) fromArchive(ctx context.Context, groups []*group, keys []history.Key, of []int, entries []history.Entry) { //nolint:revive // what is asked for whom
	var asked []history.Key
	var into []*history.Entry
	for n := range entries {
		e, g := &entries[n], groups[of[n]]
		lacks := e.Err == nil && (view.Incomplete(e.Record) || e.Record == nil && !e.User.Complete())
		if lacks && (g.batch.whole || g.matched() || g.needsRecord()) {
			asked, into = append(asked, keys[n]), append(into, e)
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

// deleteElsewhere deletes what other sections than those of their types may have of objects: what has been there since before a type was
// moved would be seen again when the type is moved back. It returns the objects of which there was something to be seen.
func (w *Writer) deleteElsewhere(ctx context.Context, uid string, reports []report.Report, latest bool) (seen map[history.Object]bool, err error) {
	sections := w.cfg.Rules.Sections(uid)
	if len(sections) == 1 {
		return nil, nil
	}
	seen = make(map[history.Object]bool)
	for _, section := range sections {
		b := &batch{latest: latest, section: section}
		for _, r := range reports {
			if r.IfMatch = 0; w.cfg.Rules.Home(uid, r.Key.Object.Type) != section {
				r.Status = 0
				b.reports = append(b.reports, r)
			}
		}
		w.prepare(b)
		w.load(ctx, b)
		w.store(ctx, b)
		w.cfg.Notify.Changed(b.changes())
		for _, g := range b.groups {
			if err := g.deleted(); err != nil {
				return nil, fmt.Errorf("delete %s: %w", g.key.Object, err)
			}
			if g.visible && g.written != nil {
				seen[g.key.Object] = true
			}
		}
	}
	return seen, nil
}

// sectionsOf returns all sections that a user has in any store, also those of classes that there are no more.
func (w *Writer) sectionsOf(ctx context.Context, uid string) ([]string, error) {
	all := w.cfg.Rules.Sections(uid)
	for _, store := range w.cfg.Erasers {
		s, ok := store.(history.Sectioner)
		if !ok {
			continue
		}
		some, err := s.Sections(ctx, uid)
		if err != nil {
			return nil, err
		}
		for _, section := range some {
			if !slices.Contains(all, section) {
				all = append(all, section)
			}
		}
	}
	return all, nil
}
