package connect

import (
	"context"
	"slices"
	"time"

	"github.com/playhead/playhead/history"
)

// Cache returns c and counts its calls for the health of Redis.
func (e *Engines) Cache(c store) *Cache {
	return &Cache{store: c, redis: e.named("redis")}
}

// Archive returns a and counts its calls for the health of HBase.
func (e *Engines) Archive(a history.Archive) history.Archive {
	return &archive{archive: a, hbase: e.named("hbase")}
}

// Publisher returns p and counts its calls for the health of Kafka.
func (e *Engines) Publisher(p history.Publisher) history.Publisher {
	return &publisher{publisher: p, kafka: e.named("kafka")}
}

// Cache counts the calls of a cache. Its methods are safe for concurrent use.
type Cache struct {
	store
	redis *engine
}

// store is a cache with its dirty marks.
type store interface {
	history.Cache
	history.Ledger
}

// Node returns the node of a bucket, or "" for a single-node cache.
func (c *Cache) Node(b history.Bucket) string {
	if on, ok := c.store.(interface{ Node(b history.Bucket) string }); ok {
		return on.Node(b)
	}
	return ""
}

// Refused counts a call that was refused because the node is silent.
func (c *Cache) Refused(node string, err error) { c.redis.observeOn(node, reads, err) }

// observe counts a call for a user.
func (c *Cache) observe(uid string, k kind, err error) {
	c.redis.observeOn(c.Node(history.BucketOf(uid)), k, err)
}

// Load implements [history.Cache].
func (c *Cache) Load(ctx context.Context, keys []history.Key) []history.Entry {
	defer c.redis.timed(ctx, "load")()
	entries := c.store.Load(ctx, keys)
	c.observeAll(reads, len(keys), func(i int) string { return keys[i].UID }, func(i int) error { return entries[i].Err })
	return entries
}

// Write implements [history.Cache].
func (c *Cache) Write(ctx context.Context, changes []history.Write) []history.Outcome {
	defer c.redis.timed(ctx, "write")()
	out := c.store.Write(ctx, changes)
	c.observeAll(writes, len(changes), func(i int) string { return changes[i].Key.UID }, func(i int) error { return out[i].Err })
	return out
}

// observeAll counts a call's n answers as one call to each of their nodes, with the first error there.
func (c *Cache) observeAll(k kind, n int, uid func(int) string, errOf func(int) error) {
	errs := make(map[string]error, 1)
	for i := range n {
		name := c.Node(history.BucketOf(uid(i)))
		if err, known := errs[name]; !known || err == nil {
			errs[name] = errOf(i)
		}
	}
	for name, err := range errs {
		c.redis.observeOn(name, k, err)
	}
}

// Clear implements [history.Cache].
func (c *Cache) Clear(ctx context.Context, uid string, what history.Clear) (int64, error) {
	defer c.redis.timed(ctx, "clear")()
	until, err := c.store.Clear(ctx, uid, what)
	c.observe(uid, writes, err)
	return until, err
}

// Pause implements [history.Cache].
func (c *Cache) Pause(ctx context.Context, uid string, from, to history.Pause) error {
	err := c.store.Pause(ctx, uid, from, to)
	c.observe(uid, writes, err)
	return err
}

// Warm implements [history.Cache].
func (c *Cache) Warm(ctx context.Context, uid string, w history.WarmSet) error {
	defer c.redis.timed(ctx, "warm")()
	err := c.store.Warm(ctx, uid, w)
	c.observe(uid, writes, err)
	return err
}

// WarmAll warms several users.
func (c *Cache) WarmAll(ctx context.Context, uids []string, sets []history.WarmSet) []error {
	defer c.redis.timed(ctx, "warm")()
	errs := history.WarmAll(ctx, c.store, uids, sets)
	for i, err := range errs {
		c.observe(uids[i], writes, err)
	}
	return errs
}

// List implements [history.Cache].
func (c *Cache) List(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	defer c.redis.timed(ctx, "list")()
	page, err := c.store.List(ctx, uid, q)
	c.observe(uid, reads, err)
	return page, err
}

// Changes implements [history.Cache].
func (c *Cache) Changes(ctx context.Context, uid string, after uint64, limit int) (history.Changes, error) {
	defer c.redis.timed(ctx, "changes")()
	changes, err := c.store.Changes(ctx, uid, after, limit)
	c.observe(uid, reads, err)
	return changes, err
}

// Overdue implements [history.Ledger].
func (c *Cache) Overdue(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.Key, error) {
	keys, err := c.store.Overdue(ctx, buckets, age, limit)
	c.observeBuckets(buckets, err)
	return keys, err
}

// Backlog implements [history.Ledger].
func (c *Cache) Backlog(ctx context.Context, buckets []history.Bucket) ([]history.Backlog, error) {
	found, err := c.store.Backlog(ctx, buckets)
	c.observeBuckets(buckets, err)
	return found, err
}

// observeBuckets counts a call for some buckets. A failure on several nodes does not tell which one failed.
func (c *Cache) observeBuckets(buckets []history.Bucket, err error) {
	nodes := make(map[string]bool, 1)
	for _, b := range buckets {
		nodes[c.Node(b)] = true
	}
	if err != nil && len(nodes) > 1 {
		return
	}
	for name := range nodes {
		c.redis.observeOn(name, reads, err)
	}
}

// MarkClean implements [history.Ledger].
func (c *Cache) MarkClean(ctx context.Context, contents []history.Content) error {
	defer c.redis.timed(ctx, "settle")()
	err := c.store.MarkClean(ctx, contents)
	if c.Node(0) == "" || err == nil { // an error does not tell which node failed
		c.observeAll(writes, len(contents), func(i int) string { return contents[i].Key.UID }, func(int) error { return err })
	}
	return err
}

// firstError returns the first error of one call's answers.
func firstError[T any](answers []T, of func(*T) error) error {
	for i := range answers {
		if err := of(&answers[i]); err != nil {
			return err
		}
	}
	return nil
}

type archive struct {
	archive history.Archive
	hbase   *engine
}

// Put implements [history.Archive].
func (a *archive) Put(ctx context.Context, cells []history.Cell) []error {
	defer a.hbase.timed(ctx, "put")()
	errs := a.archive.Put(ctx, cells)
	a.hbase.observe(firstError(errs, func(err *error) error { return *err }))
	return errs
}

// Get implements [history.Archive].
func (a *archive) Get(ctx context.Context, keys []history.Key) ([]history.Entry, error) {
	defer a.hbase.timed(ctx, "get")()
	entries, err := a.archive.Get(ctx, keys)
	if slices.ContainsFunc(keys, func(k history.Key) bool { return k.UID != keys[0].UID }) || len(keys) == 0 {
		a.hbase.observe(err)
	} else {
		a.hbase.observeRead(keys[0].UID, err)
	}
	return entries, err
}

// Page implements [history.Archive].
func (a *archive) Page(ctx context.Context, uid string, q history.Query) (history.Page, error) {
	defer a.hbase.timed(ctx, "page")()
	page, err := a.archive.Page(ctx, uid, q)
	a.hbase.observeRead(uid, err)
	return page, err
}

// Pages returns a page per user.
func (a *archive) Pages(ctx context.Context, uids []string, q history.Query) ([]history.Page, []error) {
	defer a.hbase.timed(ctx, "pages")()
	pages, errs := history.Pages(ctx, a.archive, uids, q)
	for i, err := range errs {
		a.hbase.observeRead(uids[i], err)
	}
	return pages, errs
}

// PutUser implements [history.Archive].
func (a *archive) PutUser(ctx context.Context, uid string, u history.User) error {
	err := a.archive.PutUser(ctx, uid, u)
	a.hbase.observe(err)
	return err
}

type publisher struct {
	publisher history.Publisher
	kafka     *engine
}

// Publish implements [history.Publisher].
func (p *publisher) Publish(ctx context.Context, keys []history.Announcement) ([]history.Announcement, error) {
	defer p.kafka.timed(ctx, "publish")()
	unsent, err := p.publisher.Publish(ctx, keys)
	p.kafka.observe(err)
	return unsent, err
}

// Days returns d and counts its lookups for the health of Redis.
func (e *Engines) Days(d dayStore) *Days { return &Days{d, e.named("redis")} }

// Days counts the lookups of a store of days. Its methods are safe for concurrent use.
type Days struct {
	dayStore
	redis *engine
}

type dayStore interface {
	See(ctx context.Context, sightings []history.Sighting) []history.Seen
	PendingFirsts(ctx context.Context, buckets []history.Bucket, age time.Duration, limit int) ([]history.First, error)
	Announced(ctx context.Context, firsts []history.First) error
}

// See records sightings.
func (d *Days) See(ctx context.Context, sightings []history.Sighting) []history.Seen {
	seen := d.dayStore.See(ctx, sightings)
	d.redis.observe(firstError(seen, func(a *history.Seen) error { return a.Err }))
	return seen
}

// Announcer returns a and counts its calls for the health of Kafka.
func (e *Engines) Announcer(a announcer) *Announcer { return &Announcer{a, e.named("kafka")} }

// Announcer counts the calls of an announcer. Its methods are safe for concurrent use.
type Announcer struct {
	announcer
	kafka *engine
}

type announcer interface {
	Announce(ctx context.Context, firsts []history.First) error
}

// Announce publishes first sightings.
func (a *Announcer) Announce(ctx context.Context, firsts []history.First) error {
	defer a.kafka.timed(ctx, "announce")()
	err := a.announcer.Announce(ctx, firsts)
	a.kafka.observe(err)
	return err
}
