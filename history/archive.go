package history

import (
	"context"
	"fmt"
	"time"
)

// ArchiveTTL is how long the archive keeps a record after its event.
const ArchiveTTL = 90 * 24 * 3600 * 1000 // milliseconds

// Archive is the store of record: a row per user, a cell per object under the record's
// cell time, and a TTL of [ArchiveTTL]. Its methods may be called from many
// goroutines.
type Archive interface {
	// Put stores each cell unless a newer one stands: of two cells of one key the
	// one with the later [Record.CellTime] remains, whenever they come. It returns one
	// error for each cell, in order, or nil when all were stored. An error wraps
	// [ErrPermanent] when trying again is no use, otherwise [ErrUnavailable]: then the
	// cell may have been stored all the same.
	Put(ctx context.Context, cells []Cell) []error
	// Get returns one entry for each key, in order. Its record is what the archive holds
	// of the key after the user's clear marks, nil where there is none; its user has the
	// marks that apply to the key, and as [User.CutTime] the cell time of what they hide of
	// it. A cell that can never be read again is an entry whose Err is a [DamageError],
	// and its cell time the CutTime; it may have a record all the same, from elsewhere. The others are served. So they are where the archive does not
	// answer for something of one user, whose entries have an Err that wraps [ErrUnavailable]. When it does not
	// answer at all, all of Get fails.
	Get(ctx context.Context, keys []Key) ([]Entry, error)
	// Page returns a part of what the archive holds of a user, tombstones included: what
	// the query asks for, in the order of [NewestFirst]. Clear marks are applied, and
	// returned, and so are the cut time of all that they hide and the pause; with a limit
	// of 0 nothing else is. A page takes memory for its records alone. Cells that can never
	// be read again have no place among them: they are left out, named in Damaged of a
	// page without a cursor, and logged; the cut time takes them in.
	Page(ctx context.Context, uid string, q Query) (Page, error)
	// PutUser stores a user's clear marks and pause, each unless a later one stands,
	// and drops what the marks cover. Marks and pause do not expire: a mark is
	// needed for as long as a record holds something from before it, which may be one
	// of much later.
	PutUser(ctx context.Context, uid string, u User) error
}

// Pager is an archive that reads a page of each of many users for less than one by one.
type Pager interface {
	// Pages is [Archive.Page] for each of the users, with one error for each.
	Pages(ctx context.Context, uids []string, q Query) ([]Page, []error)
}

// Pages returns a page of each of the users, with one error for each.
func Pages(ctx context.Context, a Archive, uids []string, q Query) ([]Page, []error) {
	if p, ok := a.(Pager); ok && len(uids) > 1 {
		return p.Pages(ctx, uids, q)
	}
	pages, errs := make([]Page, len(uids)), make([]error, len(uids))
	for i, uid := range uids {
		pages[i], errs[i] = a.Page(ctx, uid, q)
	}
	return pages, errs
}

// Notes are users of whom the archive has a long live part. They are for the owner of the user's bucket. Times are Unix
// milliseconds.
type Notes interface {
	// Note notes a user from a time on, in place of an earlier note; with 0 the user is noted no more.
	Note(ctx context.Context, uid string, due int64) error
	// TakeNotes returns users of the given buckets whose notes are due at a time, about as many as the limit, or fewer. They are due
	// again [NoteLease] later, unless they are noted for another time: whoever takes them may die.
	// With an error it returns those that it has put off.
	TakeNotes(ctx context.Context, buckets []Bucket, now int64, limit int) ([]string, error)

	// NoteRemoved notes users of whom the archive may still have something that was deleted or cleared by a time, in Unix
	// milliseconds. Such a note stays until it is forgotten, or for a day.
	NoteRemoved(ctx context.Context, uids []string, at int64) error
	// Removed returns the users of the given buckets who were noted so last by a time. ForgetRemoved forgets those.
	Removed(ctx context.Context, buckets []Bucket, until int64) ([]string, error)
	ForgetRemoved(ctx context.Context, buckets []Bucket, until int64) error
}

// NoteLease is after how long a note that was taken is due again.
const NoteLease = time.Hour

// Cell is a record with its key.
type Cell struct {
	Key    Key
	Record *Record
}

// DamageError is the [ErrPermanent] of a cell that can never be read again.
type DamageError struct {
	Key   Key
	Bytes []byte // what the cell holds
	Cause error
}

// Error names the key.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s: cell of %d bytes: %v: %v", e.Key, len(e.Bytes), ErrPermanent, e.Cause)
}

// Unwrap returns [ErrPermanent] and the cause.
func (e *DamageError) Unwrap() []error { return []error{ErrPermanent, e.Cause} }
