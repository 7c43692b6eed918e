package sim

import (
	"cmp"
	"slices"

	"github.com/playhead/playhead/history"
)

// Some seeds have classes of types: see [history.Class]. To the stores a namespace is a user of its own: the
// cache may forget one and keep the other. The judge reads a user's namespaces as one history.

// classSets are the possible sets of classes.
var classSets = [...][]string{
	{"b: types=2"},
	{"b: types=1,2"},
	{"b: types=1", "c: types=2 list=1"},
}

// rulebook returns the rules of all processes.
func (w *World) rulebook() *history.Rulebook {
	if w.traits.classes == nil {
		return nil
	}
	b, err := history.ParseRules("", w.traits.classes)
	if err != nil {
		panic(err)
	}
	return b
}

func (w *World) namespacesOf(uid string) []string { return w.rules.Namespaces(uid) }

func userOf(namespace string) string {
	uid, _ := history.UserOf(namespace)
	return uid
}

// together merges a store's entries of a key: the user's own state, and what the type's namespace has.
func (w *World) together(k history.Key, load func(history.Key) history.Entry) history.Entry {
	if w.rules == nil || k.IsUser() {
		return load(k)
	}
	all, e := load(history.UserKey(k.UID)), load(w.rules.Home(k))
	if e.Record != nil && e.Record.Version == 0 { // damaged
		return e
	}
	all.Record = e.Record.After(e.User.ClearedAt(k.Object.Type)).After(all.User.ClearedAt(k.Object.Type))
	all.User.Warm = all.User.Warm && e.User.Warm && (e.Record != nil || e.User.Complete()) // the cache alone suffices
	all.Err = cmp.Or(all.Err, e.Err)
	return all
}

func (w *World) inCache(k history.Key) history.Entry { return w.together(k, w.cache.load) }

func (w *World) inArchive(k history.Key) history.Entry { return w.together(k, w.archivedAt) }

// anyNamespace draws a namespace of any user.
func (w *World) anyNamespace(d *dice) string { return w.namespaceOf(w.uids[d.n(len(w.uids))], d) }

func (w *World) namespaceOf(uid string, d *dice) string {
	if w.rules == nil {
		return uid
	}
	all := w.namespacesOf(uid)
	return all[d.n(len(all))]
}

func (w *World) newCache() *Cache {
	c := NewCache(w.cfg.Keep, w.cacheClock.now)
	c.Rules = w.rules
	return c
}

// keepsAll reports whether the cache has room for every record.
func (w *World) keepsAll() bool {
	list := func(c history.Class) bool { return c.List > 0 }
	return w.cfg.Keep >= w.cfg.Objects && !slices.ContainsFunc(w.rules.Classes(), list)
}
