package history

import (
	"context"
	"fmt"
	"time"
)

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
