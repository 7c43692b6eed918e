package sim

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/playhead/playhead/history"
)

// Cache is a [history.Cache] in memory, written from the contract alone.
type Cache struct {
	mu sync.Mutex // for concurrent callers; the simulator has none
	// Keep is the number of records that a trim leaves a user.
	Keep int
	// Rules bound the records of a namespace; nil without classes.
	Rules *history.Rulebook
	// Now is the clock for dirty marks.
	Now func() time.Time

	users map[string]*account
	marks map[history.Key]history.Mark
	last  history.Mark
	made  map[uint64]bool // revisions ever written here
	had   map[uint64]bool // revisions from before Clone
}

type account struct {
	user    history.User
	records map[history.Object]*history.Record
	damaged map[history.Object]bool // readable: only the revision, and in a list the version
	asked   time.Time               // time of the latest request
	log     changeLog
}

type changeLog struct {
	name, dropped, last uint64 // name is 0 without a log
	entries             map[history.Object]uint64
}

func (l *changeLog) add(o history.Object) {
	if l.name != 0 {
		l.last++
		l.entries[o] = l.last
	}
}

func (l *changeLog) after(place uint64) (entries []history.LogEntry) {
	for o, at := range l.entries {
		if at > place {
			entries = append(entries, history.LogEntry{Object: o, Place: at})
		}
	}
	slices.SortFunc(entries, func(a, b history.LogEntry) int { return cmp.Compare(a.Place, b.Place) })
	return entries
}

var (
	_ history.Cache  = (*Cache)(nil)
	_ history.Ledger = (*Cache)(nil)
)

// NewCache returns an empty cache.
func NewCache(keep int, now func() time.Time) *Cache {
	return &Cache{Keep: keep, Now: now, users: make(map[string]*account), marks: make(map[history.Key]history.Mark), made: make(map[uint64]bool)}
}

func (c *Cache) account(uid string) *account {
	a := c.users[uid]
	if a == nil {
		a = &account{records: make(map[history.Object]*history.Record), damaged: make(map[history.Object]bool)}
		c.users[uid] = a
	}
	a.asked = time.Now()
	return a
}

// mark marks a key dirty, unless it has an older mark.
func (c *Cache) mark(k history.Key) {
	c.last = max(c.last+1, history.Mark(c.Now().UnixMicro()))
	if old, marked := c.marks[k]; !marked || c.last < old {
		c.marks[k] = c.last
	}
}

// Load implements [history.Cache].
func (c *Cache) Load(_ context.Context, keys []history.Key) []history.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]history.Entry, len(keys))
	for i, k := range keys {
		entries[i] = c.load(k)
	}
	return entries
}

func (c *Cache) load(k history.Key) history.Entry {
	a := c.users[k.UID]
	if a == nil {
		return history.Entry{}
	}
	a.asked = time.Now()
	e := history.Entry{User: a.user}
	if !k.IsUser() {
		e.Record = a.read(k.Object)
	}
	return e
}

// read returns the record as a reader gets it: only the revision of a damaged one.
func (a *account) read(o history.Object) *history.Record {
	r := a.records[o]
	if r != nil && a.damaged[o] {
		return &history.Record{Revision: r.Revision, Partial: true}
	}
	return r
}

// list returns the record as a list has it: revision and version of a damaged one.
func (a *account) list(o history.Object) *history.Record {
	r := a.read(o)
	if a.damaged[o] {
		if r.Version = a.records[o].Version; a.records[o].Deleted() {
			r.State = history.StateDeleted
		}
	}
	return r
}

// Damage makes an archived record unreadable. It reports whether there is one.
func (c *Cache) Damage(k history.Key) bool {
	a := c.users[k.UID]
	if a == nil || !a.records[k.Object].Clean() || c.marks[k] != 0 {
		return false
	}
	a.damaged[k.Object] = true
	return true
}

// Write implements [history.Cache].
func (c *Cache) Write(_ context.Context, writes []history.Write) []history.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	outcomes := make([]history.Outcome, len(writes))
	for i, w := range writes {
		outcomes[i] = c.apply(w)
	}
	return outcomes
}

func (c *Cache) apply(w history.Write) history.Outcome {
	a := c.account(w.Key.UID)
	if !a.admits(w) {
		return history.Outcome{Status: history.Conflict, Current: c.load(w.Key)}
	}
	if current := a.records[w.Key.Object]; current == nil || current.Clean() {
		a.log.add(w.Key.Object)
	}
	a.records[w.Key.Object] = w.Record
	delete(a.damaged, w.Key.Object)
	c.made[w.Record.Revision] = true
	if w.Base == 0 || w.Base&history.CleanBit != 0 {
		c.mark(w.Key)
	}
	return history.Outcome{Status: history.Applied}
}

// admits reports whether the base of a write is current.
func (a *account) admits(w history.Write) bool {
	current := a.records[w.Key.Object]
	if w.Base != 0 {
		return current != nil && current.Revision == w.Base
	}
	return current == nil && w.Cleared >= a.user.ClearedAt(w.Key.Object.Type) && w.Pause == a.user.Pause &&
		(w.Record.Partial || a.user.Complete())
}

// Clear implements [history.Cache].
func (c *Cache) Clear(_ context.Context, uid string, cl history.Clear) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.account(uid)
	a.user.Cleared = later(a.user.Cleared, map[uint32]int64{cl.Type: cl.Until})
	a.log = changeLog{}
	c.cut(uid)
	c.renumber(a)
	c.mark(history.UserKey(uid))
	return a.user.Cleared[cl.Type], nil
}

func (c *Cache) cut(uid string) {
	a := c.users[uid]
	for o, r := range a.records {
		if r.Version.Time() <= a.user.ClearedAt(o.Type) {
			a.user.CutTime = max(a.user.CutTime, r.CellTime, r.Version.Time())
			c.drop(history.Key{UID: uid, Object: o})
		}
	}
}

func (c *Cache) drop(k history.Key) {
	delete(c.users[k.UID].records, k.Object)
	delete(c.users[k.UID].damaged, k.Object)
	delete(c.marks, k)
}

// later merges clear marks into a new map, because entries share theirs.
func later(a, b map[uint32]int64) map[uint32]int64 {
	joined := maps.Clone(a)
	if joined == nil {
		joined = make(map[uint32]int64, len(b))
	}
	for typ, until := range b {
		joined[typ] = max(joined[typ], until)
	}
	return joined
}

// Pause implements [history.Cache].
func (c *Cache) Pause(_ context.Context, uid string, from, to history.Pause) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.account(uid).user.Pause != from {
		return history.ErrConflict
	}
	c.pause(uid, to)
	c.mark(history.UserKey(uid))
	return nil
}

func (c *Cache) pause(uid string, p history.Pause) {
	a := c.account(uid)
	a.user.Pause = p
	c.renumber(a)
}

// renumber gives the user's state and records new revisions, which fails concurrent compares.
func (c *Cache) renumber(a *account) {
	a.user.Revision = history.NewRevision()
	c.made[a.user.Revision] = true
	c.renumberRecords(a)
}

// renumberRecords renumbers only the records, where a change of the state comes from the archive. A process that
// puts the older state there and marks it clean loses nothing.
func (c *Cache) renumberRecords(a *account) {
	for o, r := range a.records {
		m := *r
		m.Revision = history.NewRevision() | r.Revision&history.CleanBit
		a.records[o] = &m
		c.made[m.Revision] = true
	}
}

// Warm implements [history.Cache].
func (c *Cache) Warm(_ context.Context, uid string, w history.WarmSet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.account(uid)
	if a.user.Warm {
		return nil
	}
	u := &a.user
	cleared, pause := u.Cleared, u.Pause
	u.Cleared, u.CutTime, u.Pause = later(cleared, w.Cleared), max(u.CutTime, w.CutTime), pause.Newer(w.Pause)
	c.cut(uid)
	if u.Pause != pause || !maps.Equal(u.Cleared, cleared) {
		c.renumberRecords(a)
	}
	trimmed := u.LowWatermark
	u.Warm, u.LowWatermark = true, max(u.LowWatermark, w.LowWatermark)
	for _, it := range w.Items {
		if it.Record.Version < trimmed || u.Cut(it.Record, it.Object.Type) == nil {
			continue
		}
		if has := a.records[it.Object]; has != nil {
			if has.Version < it.Record.Version {
				u.LowWatermark = max(u.LowWatermark, it.Record.Version+1)
			}
			continue
		}
		r := *it.Record
		if r.Revision &^= history.CleanBit; r.Revision == 0 || u.ClearedAt(it.Object.Type) > 0 {
			r.Revision = history.NewRevision()
			c.made[r.Revision] = true
		}
		r.Revision |= history.CleanBit
		a.records[it.Object] = &r
	}
	return nil
}

// List implements [history.Cache].
func (c *Cache) List(_ context.Context, uid string, q history.Query) (history.Page, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.users[uid]
	if a == nil {
		return history.Page{}, nil
	}
	page := history.Page{User: a.user}
	for o := range a.records {
		if r := a.list(o).Visible(o, &a.user); r != nil && q.Wants(history.Cursor{Version: r.Version, Object: o}) {
			page.Items = append(page.Items, history.Item{Object: o, Record: r})
		}
	}
	slices.SortFunc(page.Items, history.NewestFirst)
	if page.More = len(page.Items) > q.Limit; page.More {
		page.Items = page.Items[:q.Limit]
	}
	return page, nil
}

// Changes implements [history.Cache].
func (c *Cache) Changes(_ context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.account(uid)
	l := &a.log
	if l.name == 0 {
		*l = changeLog{name: history.NewRevision(), entries: make(map[history.Object]uint64)}
		for _, o := range slices.SortedFunc(maps.Keys(a.records), func(a, b history.Object) int { return cmp.Compare(a.String(), b.String()) }) {
			if !a.records[o].Clean() {
				l.add(o)
			}
		}
	}
	entries := l.after(after)
	return history.Changes{Log: l.name, Dropped: l.dropped, Last: l.last, Entries: entries[:min(len(entries), limit)]}, nil
}

// Overdue implements [history.Ledger].
func (c *Cache) Overdue(_ context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var asked [history.Buckets]bool
	for _, b := range buckets {
		asked[b] = true
	}
	before := history.Mark(c.Now().Add(-age).UnixMicro())
	var keys []history.Key
	for k, m := range c.marks {
		if asked[history.BucketOf(k.UID)] && (age == 0 || m <= before) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b history.Key) int {
		return cmp.Or(cmp.Compare(history.BucketOf(a.UID), history.BucketOf(b.UID)), cmp.Compare(c.marks[a], c.marks[b]))
	})
	return keys[:min(len(keys), limit)], nil
}

// Backlog implements [history.Ledger].
func (c *Cache) Backlog(_ context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all [history.Buckets]history.Backlog
	for k, m := range c.marks {
		b := &all[history.BucketOf(k.UID)]
		if b.Marks++; b.Oldest == 0 || m < b.Oldest {
			b.Oldest = m
		}
	}
	found := make([]history.Backlog, len(buckets))
	for i, b := range buckets {
		found[i] = all[b]
	}
	return found, nil
}

// MarkClean implements [history.Ledger].
func (c *Cache) MarkClean(_ context.Context, contents []history.Content) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range contents {
		c.markClean(s)
	}
	return nil
}

func (c *Cache) markClean(s history.Content) {
	e := c.load(s.Key)
	switch {
	case s.Key.IsUser():
		if e.User.Revision == s.Revision {
			delete(c.marks, s.Key)
		}
	case e.Record == nil:
		if s.Revision == 0 {
			delete(c.marks, s.Key)
		}
	case e.Record.Revision == s.Revision:
		r := *c.users[s.Key.UID].records[s.Key.Object]
		r.Revision |= history.CleanBit
		c.users[s.Key.UID].records[s.Key.Object] = &r
		delete(c.marks, s.Key)
	}
}

// Trim implements [history.Ledger].
func (c *Cache) Trim(_ context.Context, uids []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uid := range uids {
		if c.users[uid] != nil {
			c.trim(uid, false)
			c.trim(uid, true)
			c.trimLog(uid)
		}
	}
	return nil
}

// trim bounds the number of tombstones, or of other records.
func (c *Cache) trim(uid string, tombstones bool) {
	a := c.users[uid]
	var items []history.Item
	for o, r := range a.records {
		if r.Deleted() == tombstones {
			items = append(items, history.Item{Object: o, Record: r})
		}
	}
	keep := c.Rules.NamespaceList(uid, c.Keep)
	if len(items) <= keep {
		return
	}
	slices.SortFunc(items, history.NewestFirst)
	bound := items[keep-1].Record.Version // equal versions stay together
	for _, it := range items[keep:] {
		if it.Record.Version < bound && it.Record.Clean() {
			c.drop(history.Key{UID: uid, Object: it.Object})
			a.user.LowWatermark = max(a.user.LowWatermark, it.Record.Version+1)
		}
	}
}

// trimLog drops the oldest entries, up to the first dirty record.
func (c *Cache) trimLog(uid string) {
	a := c.users[uid]
	entries := a.log.after(0)
	for _, e := range entries[:max(0, len(entries)-c.Rules.NamespaceList(uid, c.Keep))] {
		if r := a.records[e.Object]; r != nil && !r.Clean() {
			return
		}
		delete(a.log.entries, e.Object)
		a.log.dropped = e.Place
	}
}

// Expire forgets a user, like a store whose keys expire. It keeps a user with dirty marks, with recording off, or
// with a recent request. It reports whether it forgot the user.
func (c *Cache) Expire(uid string) bool {
	a := c.users[uid]
	if a == nil || a.user.Pause.On() || time.Since(a.asked) < 3*requestLimit {
		return false
	}
	for k := range c.marks {
		if k.UID == uid {
			return false
		}
	}
	delete(c.users, uid)
	return true
}

// Clone returns a copy of the cache, for another epoch.
func (c *Cache) Clone() *Cache {
	m := &Cache{Keep: c.Keep, Rules: c.Rules, Now: c.Now, users: make(map[string]*account, len(c.users)), marks: maps.Clone(c.marks), last: c.last, made: make(map[uint64]bool), had: maps.Clone(c.made)}
	maps.Copy(m.had, c.had)
	for uid, a := range c.users {
		m.users[uid] = &account{user: a.user, records: maps.Clone(a.records), damaged: maps.Clone(a.damaged), asked: a.asked, log: a.log}
		m.users[uid].log.entries = maps.Clone(a.log.entries)
	}
	return m
}

// knows reports whether a revision was ever written to the cache.
func (c *Cache) knows(revision uint64) bool { return c.made[revision] || c.had[revision] }
