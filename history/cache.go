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
	ChangeLog
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
	//
	// After each write the key has a dirty mark, whatever the write says: the older one of the one that it had and a new one. So a mark says
	// since when the archive may lack something of the key, however long it is written on.
	Apply(ctx context.Context, writes []Write) []Outcome
	// Clear sets the user's clear mark for one type (0 for all) to c, unless a
	// later one stands, removes the records at or before it with their dirty marks,
	// keeps the latest of their cell times (see [User.CutTime]), and marks the user's
	// own state dirty, under a new revision, in one atomic step. Records after it stay,
	// under other revisions, so that whoever holds one finds out; readers and writers
	// drop what they fold of the time before. It returns up to when it cleared.
	// One that comes late, or twice, removes nothing that was written after the first.
	Clear(ctx context.Context, uid string, c Clear) (until int64, err error)
	// Pause replaces the user's pause, and marks the user's own state dirty, under a new
	// revision, in one atomic step. Each of the user's records gets another revision in that
	// step, and keeps its clean bit: a writer that holds one without looking at the
	// user's state finds out with the next write. The state of a user does not expire while
	// recording is off. Where another pause than from is in force it does nothing and fails
	// with [ErrConflict]: so one that comes late, or twice, undoes no later one.
	Pause(ctx context.Context, uid string, from, to Pause) error
	// Warm fills a cold user with records from the archive: it adds those that the
	// cache does not have, as clean ones, merges the clear marks, the cut time and the
	// pause, and sets the low watermark. The records that the cache's own clear marks hide count for
	// the cut time. Where the pause is news, it does as Pause does. The low watermark is
	// raised above each record of which the cache has an older one: until the two are
	// united, its place in the list is not known from the cache alone. A warm user is left
	// alone. Of a user who was trimmed while cold it adds nothing from below that: a newer
	// record may have been archived and dropped since w was read.
	Warm(ctx context.Context, uid string, w WarmSet) error
}

// Write is one compare-and-set.
type Write struct {
	Key    Key
	Record *Record // its revision is new; never nil
	// Base is the revision that Record was made from, 0 when there was none. A write
	// without a base also fails when the user's type was cleared up to later than Cleared; when
	// another pause is in force than Pause; and when the record is not partial and the user not
	// complete: it was made when the user was, and the archive may have by now what it lacks.
	Base uint64
	// Pause is the user's pause when the record was made, and Cleared up to when its type was
	// cleared by then. Only a write without a base needs them: a change of either changes every base.
	Pause   Pause
	Cleared int64
	// BeginsHold says that a new hold begins, with which the content's TTL does. Whether the key has a dirty
	// mark does not depend on it.
	BeginsHold bool
}

// WriteOn returns the write of a record that was made from another one, nil for none, and from what is
// known of its user.
func WriteOn(base *Record, k Key, r *Record, u *User) Write {
	w := Write{Key: k, Record: r, Pause: u.Pause, Cleared: u.ClearedAt(k.Object.Type)}
	if base != nil {
		w.Base = base.Revision
	}
	return w
}

// Clear is what of a user's history is to be removed.
type Clear struct {
	Type uint32 // 0 for all
	// Until is the time up to which, inclusive, in Unix milliseconds.
	Until int64
}

// Outcome is what became of a write.
type Outcome struct {
	Status WriteStatus
	// Current is what the cache holds instead, after a conflict. It is for another try, and
	// may not be on disk yet, so that writers of one key do not wait for each other: an
	// answer that relies on it alone asks [Loader.Load].
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

// WarmSet is what the archive holds of a user.
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

// Place returns where the item stands in a user's list.
func (i Item) Place() Cursor { return Cursor{Version: i.Record.Version, Object: i.Object} }

// Lister reads a user's records in order.
type Lister interface {
	// List returns the visible records that the query asks for, newest first; ties
	// are ordered by the object's text, descending. It knows nothing of what lies
	// below the user's low watermark. A record that is damaged is in it as Load has it, partial
	// and without a state, at its place if that is known, or else last. It fails with
	// [ErrUnavailable].
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

// Compare is the order of a user's list: by version, ties by the object's text, both descending.
func (c Cursor) Compare(d Cursor) int {
	if by := cmp.Compare(d.Version, c.Version); by != 0 {
		return by
	}
	return strings.Compare(d.Object.String(), c.Object.String())
}

// Page is a part of a user's list.
type Page struct {
	Items []Item
	// More means that the store has further items of the query.
	More bool
	// User has of a page of the archive the clear marks, the cut time and the pause alone.
	User    User
	Damaged []Damage // of a page of the archive
}

// Damage is a cell that cannot be read. Without an object it is one of the user's own.
type Damage struct {
	Object Object
	Bytes  []byte
	Err    error // wraps [ErrPermanent]
}

// ChangeLog tells which contents of a user began to change, in the order of the writes. A content that is
// not clean changes on without another entry.
type ChangeLog interface {
	// Changes returns the entries of a user's log after a place, in order, at most limit of them, and what
	// the log is at that moment. Where there is no log it begins one, with an entry for each content that is not clean.
	// From then on each write with no base, or a clean one, makes an entry in its atomic step. It takes the place of
	// the entry that the object had, or that one stays beside it until a trim. A [Applier.Clear] ends
	// the log, and it goes with the user's state; an adapter may end it when nobody has asked for [ChangeLogTTL].
	//
	// A content that a later Load says is clean stays so until another write makes an entry, also when the store restarts,
	// unless it has another TTL then. It fails with [ErrUnavailable].
	Changes(ctx context.Context, uid string, after uint64, limit int) (Changes, error)
}

// ChangeLogTTL is for how long a user's log is kept when nobody asks for it.
const ChangeLogTTL = 30 * 24 * time.Hour

// Changes is a part of a user's log.
type Changes struct {
	Log uint64 // its name, drawn at random when it began; never 0
	// Dropped is the last place of which a trim has dropped the entry, 0 for none; Last is that of the newest entry.
	Dropped, Last uint64
	Entries       []LogEntry
}

// LogEntry says that the content of an object began to change.
type LogEntry struct {
	Object Object
	Place  uint64 // from 1 on; later ones are greater
}

// Mark is when a dirty mark was set, in microseconds of the cache's clock. It says when
// a key is to be archived at the latest, and how far to look back in the queue once the cache has lost something.
type Mark int64

// Content names one content of a key in the cache: the revision of its record, or of the
// user's own state; 0 for none.
type Content struct {
	Key      Key
	Revision uint64
}

// Ledger keeps the dirty marks.
type Ledger interface {
	// Overdue returns keys of the given buckets whose marks are at least as old as age by
	// the cache's clock, oldest first within a bucket, at most limit of them. An age of 0
	// is every mark, also one that the clock has not reached. Nobody knows the age of such
	// a mark, which is there once the clock was set back: any age may find it.
	Overdue(ctx context.Context, buckets []Bucket, age time.Duration, limit int) ([]Key, error)
	// Backlog returns how many marks each of the given buckets has, in order, and the
	// oldest of them. It is for monitoring, and not exact while marks come and go. With an error
	// it returns what is known: a bucket that did not answer has none.
	Backlog(ctx context.Context, buckets []Bucket) ([]Backlog, error)
	// MarkClean says that the archive has these contents. Where the cache still holds the
	// content, it sets [CleanBit] in the revision of the record and removes the dirty
	// mark, in one atomic step; otherwise it does nothing. So every write that was made from
	// the content before it was clean fails its compare.
	MarkClean(ctx context.Context, contents []Content) error
	// Trim drops the oldest clean records of each user who has more
	// than the cache keeps, and raises the low watermark above them. Tombstones are bounded
	// apart from the others, by the same number. Of a log of changes that has more entries than that it drops
	// the oldest, up to the first of a content that is not clean.
	Trim(ctx context.Context, uids []string) error
}

// Backlog is how much of a bucket may be newer than the archive.
type Backlog struct {
	Marks  int
	Oldest Mark // 0 without any
}

// Wants reports whether a visible record at a place belongs to what the query asks for.
func (q Query) Wants(c Cursor) bool {
	at := c.Version.Time()
	return (q.Type == 0 || q.Type == c.Object.Type) && at >= q.Since && (q.Until == 0 || at <= q.Until) &&
		(q.After == Cursor{} || q.After.Compare(c) < 0)
}

// End returns the place after which the page that follows begins: that of the last item, or the
// zero cursor where there is none.
func (p *Page) End() Cursor {
	if len(p.Items) == 0 {
		return Cursor{}
	}
	return p.Items[len(p.Items)-1].Place()
}

// NewestFirst is the order of items in a user's list, see [Cursor.Compare].
func NewestFirst(a, b Item) int { return a.Place().Compare(b.Place()) }
