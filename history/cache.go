package history

import (
	"cmp"
	"context"
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
