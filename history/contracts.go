package history

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Cache acknowledges heartbeats and serves reads: records, one list per user, the users' own state, and a log of
// changes. Its dirty marks are the [Ledger]. Its methods are safe for concurrent use.
type Cache interface {
	// Load returns one entry per key, in order. The key of a user's own state has a user and no record.
	Load(ctx context.Context, keys []Key) []Entry
	// Write stores each write whose base is current, with its list entry and dirty mark, in one atomic step per
	// key. It returns one outcome per write, in order. Keys must be distinct. An [Applied] write is as durable
	// as the store's configuration.
	//
	// A written key always has a dirty mark. An older mark stays, because a mark says since when the archive may
	// lack content.
	Write(ctx context.Context, writes []Write) []Outcome
	// Clear removes the records of one type (0 for all) up to c.Until, and sets the clear mark unless a later
	// one exists. The same atomic step removes their dirty marks, marks the user's state dirty under a new
	// revision, and raises [User.CutTime]. Later records get new revisions, so concurrent writes conflict. until
	// is the effective clear time. A late or repeated clear removes nothing written after the first.
	Clear(ctx context.Context, uid string, c Clear) (until int64, err error)
	// Pause replaces the user's pause and marks the user's state dirty under a new revision, in one atomic step.
	// Each record gets a new revision with the same clean bit, so concurrent writes conflict. The state of a
	// paused user does not expire. It fails with [ErrConflict] unless from is the current pause, so a late or
	// repeated call undoes nothing.
	Pause(ctx context.Context, uid string, from, to Pause) error
	// Warm adds archived records to a cold user as clean, where the cache has none. It merges clear marks, cut
	// time and pause, and sets the low watermark. A new pause has the effects of Pause; records hidden by the
	// cache's own clear marks count for the cut time. The low watermark rises above each record that is newer in
	// the archive: its place is unknown until the two are merged. A warm user stays unchanged. A user trimmed
	// while cold gets nothing from below the trim, since w may be stale there.
	Warm(ctx context.Context, uid string, w WarmSet) error
	// List returns the visible records for the query, newest first; ties are in descending order of the object's
	// text. It has nothing below the user's low watermark. A damaged record is partial, without a state, and
	// last if its place is unknown. It fails with [ErrUnavailable].
	List(ctx context.Context, uid string, q Query) (Page, error)
	// Changes returns up to limit entries after a place, in order, and the current state of the log. If there is
	// no log it starts one, with an entry for each dirty content. Then each write without a base, or on a clean
	// base, adds an entry in its atomic step. It replaces the object's earlier entry, or both stay until a trim.
	// [Cache.Clear] ends the log, and so does the expiry of the user's state. An adapter may end it after
	// [ChangeLogTTL] without a call.
	//
	// A content that a later Load reports as clean stays clean until a write adds an entry, also across a
	// restart, unless its TTL changes. It fails with [ErrUnavailable].
	Changes(ctx context.Context, uid string, after uint64, limit int) (Changes, error)
}

// Entry is the cache's content for a key.
type Entry struct {
	Record *Record // nil if none
	User   User
	// Err wraps [ErrUnavailable] if the store did not answer; the other fields are then empty.
	Err error
}

// Write is one compare-and-set.
type Write struct {
	Key    Key
	Record *Record // new revision; never nil
	// Base is the revision of the record's predecessor, 0 for none. A write without a base conflicts if the type
	// was cleared after Cleared or another pause than Pause is current. A complete record also conflicts if the
	// user no longer is: the archive may have content that it lacks.
	Base uint64
	// Pause and Cleared are the user's pause and the type's clear mark when the record was made. Only a write
	// without a base needs them: a change of either changes every base.
	Pause   Pause
	Cleared int64
	// BeginsHold starts a new hold. A store whose keys expire renews the user's list. The dirty mark does not depend
	// on it.
	BeginsHold bool
}

// WriteOn returns the write of a record made from base (nil for none) and the user's state.
func WriteOn(base *Record, k Key, r *Record, u *User) Write {
	w := Write{Key: k, Record: r, Pause: u.Pause, Cleared: u.ClearedAt(k.Object.Type)}
	if base != nil {
		w.Base = base.Revision
	}
	return w
}

// Clear selects the part of a user's history to remove.
type Clear struct {
	Type uint32 // 0 for all
	// Until is inclusive, in Unix milliseconds.
	Until int64
}

// Outcome is the result of a write.
type Outcome struct {
	Status WriteStatus
	// Current is the cache's content after a conflict, for a retry. It may not be durable yet, since writers of
	// one key do not wait for each other. To answer a client from it, call [Cache.Load] first.
	Current Entry
	// Err wraps [ErrUnavailable] if the status is Unknown: the write may have been applied, or may be later.
	Err error
}

// WriteStatus is the status of a write.
type WriteStatus uint8

// Statuses of a write.
const (
	Unknown WriteStatus = iota
	Applied
	Conflict
)

// WarmSet is the archive's content for a user.
type WarmSet struct {
	Items        []Item
	LowWatermark Version
	Cleared      map[uint32]int64
	CutTime      int64 // see [User.CutTime]
	Pause        Pause
}

// Item is a record with its object.
type Item struct {
	Object Object
	Record *Record
}

// Place returns the item's place in the user's list.
func (i Item) Place() Cursor { return Cursor{Version: i.Record.Version, Object: i.Object} }

// Query selects a page.
type Query struct {
	// After is the last item of the previous page; the zero cursor starts at the newest.
	After Cursor
	Limit int
	Type  uint32 // 0 for all
	Since int64  // Unix milliseconds, inclusive; 0 for no bound
	Until int64  // Unix milliseconds, inclusive; 0 for no bound
}

// Cursor is a place in a user's list.
type Cursor struct {
	Version Version
	Object  Object
}

// Compare orders a user's list: by version, then by the object's text, both descending.
func (c Cursor) Compare(d Cursor) int {
	if by := cmp.Compare(d.Version, c.Version); by != 0 {
		return by
	}
	return strings.Compare(d.Object.String(), c.Object.String())
}

// Page is a part of a user's list.
type Page struct {
	Items []Item
	// More reports further items for the query.
	More bool
	// User in a page of the archive has only the clear marks, the cut time and the pause.
	User    User
	Damaged []Damage // archive pages only
	// Unchanged reports whether the archive has certainly stored nothing of the user since it read the page. It is
	// nil if the archive cannot tell, and in pages of the cache.
	Unchanged func() bool
}

// Damage is an unreadable cell. Without an object it belongs to the user's own state.
type Damage struct {
	Object Object
	Bytes  []byte
	Err    error // wraps [ErrPermanent]
}

// ChangeLogTTL is how long a log lives without a read.
const ChangeLogTTL = 30 * 24 * time.Hour

// Changes is a part of a user's log.
type Changes struct {
	Log uint64 // random id of the log; never 0
	// Dropped is the last place dropped by a trim, 0 for none; Last is the place of the newest entry.
	Dropped, Last uint64
	Entries       []LogEntry
}

// LogEntry marks the first change of a clean content.
type LogEntry struct {
	Object Object
	Place  uint64 // from 1, ascending
}

// Mark is the time of a dirty mark, in microseconds of the cache's clock. It bounds the key's delay to the
// archive, and how far to reread the queue after a loss of cache data.
type Mark int64

// Content names one content of a key in the cache by its revision: of the record, or of the user's own state; 0
// for none.
type Content struct {
	Key      Key
	Revision uint64
}

// Ledger keeps the dirty marks.
type Ledger interface {
	// Overdue returns up to limit keys of the buckets with marks at least age old by the cache's clock, oldest
	// first within a bucket. Age 0 returns every mark, also future ones. After the clock steps back, any age may
	// return future marks.
	Overdue(ctx context.Context, buckets []Bucket, age time.Duration, limit int) ([]Key, error)
	// Backlog returns the number of marks and the oldest mark per bucket, in order. It is for monitoring and
	// approximate under writes. With an error, buckets without an answer are empty.
	Backlog(ctx context.Context, buckets []Bucket) ([]Backlog, error)
	// MarkClean records that the archive has these contents. For a current content it sets [CleanBit] in the
	// revision and removes the dirty mark in one atomic step. Writes based on the dirty revision then conflict.
	// Other contents are ignored.
	MarkClean(ctx context.Context, contents []Content) error
	// Trim drops the oldest clean records of users above the cache's limit and raises the low watermark above
	// them. Tombstones have a separate limit of the same size. It also trims a change log above that limit, up
	// to the first dirty content.
	Trim(ctx context.Context, uids []string) error
}

// Backlog is the number of dirty keys of a bucket.
type Backlog struct {
	Marks  int
	Oldest Mark // 0 if none
}

// Wants reports whether the query includes a visible record at a place.
func (q Query) Wants(c Cursor) bool {
	at := c.Version.Time()
	return (q.Type == 0 || q.Type == c.Object.Type) && at >= q.Since && (q.Until == 0 || at <= q.Until) &&
		(q.After == Cursor{} || q.After.Compare(c) < 0)
}

// End returns the cursor of the next page: the place of the last item, or the zero cursor.
func (p *Page) End() Cursor {
	if len(p.Items) == 0 {
		return Cursor{}
	}
	return p.Items[len(p.Items)-1].Place()
}

// NewestFirst orders items of a user's list; see [Cursor.Compare].
func NewestFirst(a, b Item) int { return a.Place().Compare(b.Place()) }

// Archive is the store of record: a row per user, a cell per object at the record's cell time, and the
// [Retention] of its rules. Its methods are safe for concurrent use.
type Archive interface {
	// Put stores each cell unless a newer one exists: the later [Record.CellTime] wins in any order of calls. It
	// returns nil, or one error per cell in order. [ErrPermanent] means that a retry is useless. After
	// [ErrUnavailable] the cell may have been stored anyway.
	Put(ctx context.Context, cells []Cell) []error
	// Get returns one entry per key, in order: the record after the user's clear marks, nil if none. The user has the
	// marks for the key, and the pause. [User.CutTime] is the cell time of the cleared content. An unreadable cell
	// yields a [DamageError] and its cell time as CutTime; the entry may still have a record from another
	// source. If only one user's data is unavailable, the errors of its entries wrap [ErrUnavailable]. If the
	// archive does not answer at all, Get fails.
	Get(ctx context.Context, keys []Key) ([]Entry, error)
	// Page returns the user's records for the query, tombstones included, in the order of [NewestFirst] and
	// after clear marks. It also returns the marks, the cut time of all cleared content, and the pause; a limit
	// of 0 returns only these. Memory is bounded by the page. Unreadable cells are skipped and logged, count for
	// the cut time, and are listed in Damaged if the query has no cursor.
	Page(ctx context.Context, uid string, q Query) (Page, error)
	// PutUser stores a user's clear marks and pause, each unless a later one exists, and drops the cleared
	// records. Neither expires: a record from much later may still contain events from before a mark.
	PutUser(ctx context.Context, uid string, u User) error
}

// Pages is [Archive.Page] for several users, with one error per user. An archive with a method Pages reads them at
// less cost than one by one.
func Pages(ctx context.Context, a Archive, uids []string, q Query) ([]Page, []error) {
	type pager interface {
		Pages(ctx context.Context, uids []string, q Query) ([]Page, []error)
	}
	if p, ok := a.(pager); ok && len(uids) > 1 {
		return p.Pages(ctx, uids, q)
	}
	pages, errs := make([]Page, len(uids)), make([]error, len(uids))
	for i, uid := range uids {
		pages[i], errs[i] = a.Page(ctx, uid, q)
	}
	return pages, errs
}

// WarmAll is [Cache.Warm] for several users, with one error per user. A cache with a method WarmAll warms them at less
// cost than one by one.
func WarmAll(ctx context.Context, c Cache, uids []string, sets []WarmSet) []error {
	type warmer interface {
		WarmAll(ctx context.Context, uids []string, sets []WarmSet) []error
	}
	if w, ok := c.(warmer); ok && len(uids) > 1 {
		return w.WarmAll(ctx, uids, sets)
	}
	errs := make([]error, len(uids))
	for i, uid := range uids {
		errs[i] = c.Warm(ctx, uid, sets[i])
	}
	return errs
}

// NoteLease is the delay until a taken note of a user to compact is due again.
const NoteLease = time.Hour

// Cell is a record with its key.
type Cell struct {
	Key    Key
	Record *Record
}

// DamageError is the [ErrPermanent] of a cell that cannot be decoded.
type DamageError struct {
	Key   Key
	Bytes []byte // content of the cell
	Cause error
}

// Error names the key.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s: cell of %d bytes: %v: %v", e.Key.Private(), len(e.Bytes), ErrPermanent, e.Cause)
}

// Unwrap returns [ErrPermanent] and the cause.
func (e *DamageError) Unwrap() []error { return []error{ErrPermanent, e.Cause} }

// Announcement is a key whose record may be newer than in the archive.
type Announcement struct {
	Key Key
	// Record is set if the queue carries the content too.
	Record *Record
	// Trace is the traceparent of the key's last sampled report, usually empty.
	Trace string
}

// Traces returns the traceparents of announcements.
func Traces(keys []Announcement) (parents []string) {
	for i := range keys {
		if keys[i].Trace != "" {
			parents = append(parents, keys[i].Trace)
		}
	}
	return parents
}

// Publisher announces dirty keys to the jobs. Its methods are safe for concurrent use.
type Publisher interface {
	// Publish sends the keys in one message per partition, or several if one would be too large. It returns the
	// keys without a confirmed delivery, with the cause; a retry is harmless. If ctx is done it sends nothing.
	Publish(ctx context.Context, keys []Announcement) (unsent []Announcement, err error)
}

// Consumer delivers announced keys to one job.
type Consumer interface {
	// Consume joins the group of jobs and calls handle once per generation until ctx is done. The context of
	// handle ends with the generation; handle must then return soon. Consume returns nil once ctx is done, or
	// handle's error if its generation was still current.
	Consume(ctx context.Context, handle func(context.Context, Assignment) error) error
}

// Assignment is a job's buckets during one generation.
type Assignment interface {
	// Buckets returns the buckets that only this job receives.
	Buckets() []Bucket
	// Fetch waits for messages and returns all available ones, up to a bound, in order. Uncommitted messages
	// come again in a later generation. An undecodable message is poison and part of its delivery. Fetch fails
	// once handle has returned.
	Fetch(ctx context.Context) (Delivery, error)
	// Commit marks d and everything fetched before it as processed. It works until handle returns, even if
	// handle's context is done. It fails after that, and once another member has ended the generation.
	Commit(ctx context.Context, d Delivery) error
}

// Delivery is one or more messages of the queue.
type Delivery struct {
	Keys []Announcement
	// Poison are the undecodable messages.
	Poison []Poison
	// Traces are the traceparents of traced messages; of a queue in memory, those of its keys.
	Traces   []string
	Messages int
	Bytes    int
	// Offsets are the next offsets by partition, for the adapter.
	Offsets map[int]int64
	// CommitMetadata is a short text to store with the commit.
	CommitMetadata string
}

// Poison is an undecodable message.
type Poison struct {
	Payload   []byte
	Partition int
	Offset    int64
	Err       error
}

// Dead is a dead letter: a key that the archive refused permanently, a damaged cell about to be overwritten, or
// an undecodable message.
type Dead struct {
	Key     Key     // zero for a message.
	Record  *Record // nil for a message, for a user's own state, and if only the cell is known.
	User    User    // clear marks and pause of a user's own state.
	Payload []byte  // of a message.
	Cell    []byte  // of a damaged cell, see [DamageError].
	Origin  string  // "archive", or partition and offset of the message.
	Reason  string
	At      int64 // Unix milliseconds.
}

// Feed notifies services of changes by others, immediately and at most once. A notice names the change without
// its content: notices may repeat, arrive late and in any order, since the receiver reads the current content.
// A feed that knows its followers may have a method Followed(Bucket) bool: if false, earlier changes need no
// announcement. Its methods are safe for concurrent use.
type Feed interface {
	// Announce notifies all subscriptions to the buckets of the changed users. After an error some may have been
	// notified; a repeat is harmless.
	Announce(ctx context.Context, changes []Change) error
	// Interrupt reports to all subscriptions to the buckets that notices may be missing, as after a lost
	// connection. After an error some may have been notified.
	Interrupt(ctx context.Context, buckets []Bucket) error
	// Subscribe returns a subscription without buckets. It calls handle for each notice, from several goroutines
	// and never from within the subscription's methods. handle must return soon: a delayed notice may be
	// dropped, and a later notice then says so. The caller closes the subscription.
	Subscribe(handle func(Notice)) Subscription
}

// Change names a changed key. A key without an object stands for the user's own state and all records.
type Change struct {
	Key Key
	// Origin is the connection that made the change, 0 if there is no single one.
	Origin uint64
}

// Subscription follows buckets.
type Subscription interface {
	// Follow adds a bucket. A notice reports when delivery begins.
	Follow(b Bucket)
	// Unfollow removes a bucket. Some of its notices may still arrive.
	Unfollow(b Bucket)
	// Close ends the subscription and waits for running calls of handle.
	Close() error
}

// Notice is a message from a subscription.
type Notice struct {
	// Changes are of users in followed buckets.
	Changes []Change
	// Joined are buckets with complete delivery from now on, until they are listed again. Earlier notices may be
	// missing: the bucket was not followed yet, or the connection was lost.
	Joined []Bucket
}
