package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// Some seeds have classes of types: see [history.Class]. To the stores a namespace is a user of its own: the
// cache may forget one and keep the other. The judge reads a user's namespaces as one history.

// classSets are the possible sets of classes; types move between them. A class stays even without types.
var classSets = [...][]string{
	{"b: types=2", "c: types=none"},
	{"b: types=none", "c: types=none"},
	{"b: types=1", "c: types=none"},
	{"b: types=1,2", "c: types=none"},
	{"b: types=1", "c: types=2 list=1"},
	{"b: types=2", "c: types=1"},
}

// rulebook returns the rules for processes that start from now on.
func (w *World) rulebook() *history.Rulebook {
	if !w.traits.classes {
		return nil
	}
	texts := classSets[w.classes]
	if w.moved {
		texts = append(slices.Clone(texts), "moved="+w.began.UTC().Format(time.DateOnly))
	}
	b, err := history.ParseRules("", texts)
	if err != nil {
		panic(err)
	}
	return b
}

// namespacesOf returns the uids of all namespaces a user may ever have had.
func (w *World) namespacesOf(uid string) []string {
	if !w.traits.classes {
		return []string{uid}
	}
	return []string{uid, history.NamespaceUID(uid, "b"), history.NamespaceUID(uid, "c")}
}

func userOf(namespace string) string {
	uid, _ := history.UserOf(namespace)
	return uid
}

// keysOf returns the stores' keys for one reader's key. The first is the key of the user's own state.
func (w *World) keysOf(k history.Key) (keys []history.Key) {
	keys = []history.Key{history.UserKey(k.UID)}
	switch {
	case k.IsUser():
		return keys
	case w.moved:
		for _, namespace := range w.rules.Namespaces(k.UID) {
			keys = append(keys, history.Key{UID: namespace, Object: k.Object})
		}
	default:
		keys = append(keys, history.Key{UID: w.rules.NamespaceOf(k.UID, k.Object.Type), Object: k.Object})
	}
	return keys
}

// together merges a store's entries for all those keys.
func (w *World) together(k history.Key, load func(history.Key) history.Entry) history.Entry {
	if !w.traits.classes {
		return load(k)
	}
	keys := w.keysOf(k)
	all := load(keys[0])
	for _, k := range keys[1:] {
		e := load(k)
		if e.Record != nil && e.Record.Version == 0 { // damaged
			return e
		}
		all.Record = history.Merge(all.Record, e.Record.After(e.User.ClearedAt(k.Object.Type)))
		all.User.Warm = all.User.Warm && e.User.Warm && (e.Record != nil || e.User.Complete()) // the cache alone suffices
		all.Err = cmp.Or(all.Err, e.Err)
	}
	all.Record = all.Record.After(all.User.ClearedAt(k.Object.Type))
	return all
}

func (w *World) inCache(k history.Key) history.Entry { return w.together(k, w.cache.load) }

func (w *World) inArchive(k history.Key) history.Entry { return w.together(k, w.archivedAt) }

// anyNamespace draws a namespace of any user.
func (w *World) anyNamespace(d *dice) string { return w.namespaceOf(w.uids[d.n(len(w.uids))], d) }

func (w *World) namespaceOf(uid string, d *dice) string {
	if !w.traits.classes {
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
