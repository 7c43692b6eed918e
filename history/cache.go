package history

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Cache is the store that acknowledges heartbeats and answers readers: records,
// one list per user, the users' own state, and the ledger of dirty marks. Its
// methods may be called from many goroutines.
type Cache interface {
	Loader
	Applier
	Lister
	Ledger
}

// Loader reads records by key.
type Loader interface {
	// Load returns one entry for each key, in order. A key of a user's own state
	// has no record, only the user.
	Load(ctx context.Context, keys []Key) []Entry
}

// Entry is what the cache knows of a key.
type Entry struct {
	Record *Record // nil when there is none
	User   User
	// Err wraps [ErrUnavailable] when the store did not answer for this key; then
	// nothing else is known.
	Err error
}

// Applier writes.
type Applier interface {
	// Apply stores each write whose base still stands, with its place in the list
	// and its dirty mark, in one atomic step per key. It returns one outcome for
	// each write, in order. No two writes of one call may have the same key. A write
	// that is [Applied] is as durable as the store is configured to be.
	Apply(ctx context.Context, writes []Write) []Outcome
	// Clear sets the user's clear mark for one type (0 for all) to until, unless a
	// later one stands, removes the records at or before it with their dirty marks,
	// and marks the user's own state dirty, in one atomic step. Records after it
	// stay: readers drop what they fold of the time before.
	Clear(ctx context.Context, uid string, typ uint32, until int64) (Mark, error)
	// Pause switches recording off or on at a time, see [Pause.Switched], and marks the
	// user's own state dirty, in one atomic step. Each of the user's records gets another
	// revision in that step: whoever holds one without looking at the user's state finds
	// out with the next write. The state of a user does not expire while recording is off.
	Pause(ctx context.Context, uid string, recording bool, at int64) (Pause, Mark, error)
	// Warm fills a cold user with records from the archive: it adds those that the
	// cache does not have, without dirty marks, merges the clear marks and the pause, and
	// sets the floor. Where the pause is news, it does as Pause does. A warm user is left alone. Of a user who was trimmed while cold it adds
	// nothing from below that: a newer record may have been archived and dropped since
	// w was read.
	Warm(ctx context.Context, uid string, w Warmth) error
}

// Write is one compare-and-set.
type Write struct {
	Key    Key
	Record *Record // its revision is new; never nil
	// Base is the revision that Record was made from, 0 when there was none. A
	// write without a base also fails when a clear mark covers its record, or a pause
	// does and it is no tombstone.
	Base uint64
	// Mark asks for a new dirty mark, which replaces any other of the key.
	Mark bool
}

// Outcome is what became of a write.
type Outcome struct {
	Status WriteStatus
	// Mark is the new dirty mark of an applied write that asked for one.
	Mark Mark
	// Current is what the cache holds instead, after a conflict.
	Current Entry
	// Err wraps [ErrUnavailable] when the status is Unknown: the write may or may
	// not have been, or may still be, applied.
	Err error
}

// WriteStatus says what became of a write.
type WriteStatus uint8

// The outcomes of a write.
const (
	Unknown WriteStatus = iota
	Applied
	Conflict
)

// Warmth is what the archive holds of a user.
type Warmth struct {
	Items   []Item
	Floor   Version
	Cleared map[uint32]int64
	Pause   Pause
}

// Item is a record with its object.
type Item struct {
	Object Object
	Record *Record
}

// Lister reads a user's records in order.
type Lister interface {
	// List returns the visible records that the query asks for, newest first; ties
	// are ordered by the object's text, descending. It knows nothing of what lies
	// below the user's floor. It fails with [ErrUnavailable].
	List(ctx context.Context, uid string, q Query) (Page, error)
}

// Query asks for a page.
type Query struct {
	// After is the last item of the page before; the zero cursor starts at the newest.
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

// Page is a part of a user's list.
type Page struct {
	Items []Item
	// More means that the cache has further items of the query.
	More bool
	User User
}

// Mark is the identity of one dirty mark of a key: microseconds of the cache's
// clock. No two marks of a key are the same.
type Mark int64

// Dirty is a key whose record may be newer than the archive, under a mark.
type Dirty struct {
	Key  Key
	Mark Mark
	// Record is set where the queue is to hold the content too. Such a key has no
	// mark: the hold that covers the record goes on, and its mark must stand.
	Record *Record
}

// Ledger keeps the dirty marks.
type Ledger interface {
	// Overdue returns keys of the given buckets whose marks are older than age by
	// the cache's clock, oldest first within a bucket, at most limit of them.
	Overdue(ctx context.Context, buckets []Bucket, age time.Duration, limit int) ([]Dirty, error)
	// Backlog returns how many marks each of the given buckets has, in order, and the
	// oldest of them. It is for those who watch, and may see some marks come and go.
	Backlog(ctx context.Context, buckets []Bucket) ([]Backlog, error)
	// Settle removes each mark that still stands as given. Others are left alone.
	Settle(ctx context.Context, marks []Dirty) error
	// Trim drops the oldest records without a dirty mark of each user who has more
	// than the cache keeps, and raises the floor above them.
	Trim(ctx context.Context, uids []string) error
}

// Backlog is how much of a bucket may be newer than the archive.
type Backlog struct {
	Marks  int
	Oldest Mark // 0 without any
}

// Wants reports whether a visible record belongs to what the query asks for.
func (q Query) Wants(o Object, r *Record) bool {
	at := r.Version.Time()
	return (q.Type == 0 || q.Type == o.Type) && at >= q.Since && (q.Until == 0 || at <= q.Until) &&
		(q.After == Cursor{} || NewestFirst(Item{Object: q.After.Object, Record: &Record{Version: q.After.Version}}, Item{Object: o, Record: r}) < 0)
}

// NewestFirst is the order of a user's list: by version, ties by the object's
// text, both descending.
func NewestFirst(a, b Item) int {
	if c := cmp.Compare(b.Record.Version, a.Record.Version); c != 0 {
		return c
	}
	return strings.Compare(b.Object.String(), a.Object.String())
}
