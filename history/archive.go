package history

import "context"

// ArchiveLife is how long the archive keeps a record after its event.
const ArchiveLife = 90 * 24 * 3600 * 1000 // milliseconds

// Archive is the store of record: a row per user, a cell per object, cell time =
// event time, and a life of [ArchiveLife]. Its methods may be called from many
// goroutines.
type Archive interface {
	// Put stores each cell unless a newer one stands: of two cells of one key the
	// one with the later event time remains, of two with the same time the one that
	// came later. It returns one error for each cell, in order, or nil when all
	// were stored. An error wraps [ErrPermanent] when trying again is no use,
	// otherwise [ErrUnavailable]: then the cell may have been stored all the same.
	Put(ctx context.Context, cells []Cell) []error
	// Get returns one record for each key, in order, nil where there is none. Clear
	// marks are applied.
	Get(ctx context.Context, keys []Key) ([]*Record, error)
	// Row returns all that the archive holds of a user, tombstones included, in the
	// order of the objects' text. Clear marks are applied, and returned, and so is the pause.
	Row(ctx context.Context, uid string) (Row, error)
	// PutUser stores a user's clear marks and pause, each unless a later one stands,
	// and drops what the marks cover. The pause has no end of life.
	PutUser(ctx context.Context, uid string, u User) error
}

// Cell is a record with its key.
type Cell struct {
	Key    Key
	Record *Record
}

// Row is a user's share of the archive.
type Row struct {
	Items   []Item
	Cleared map[uint32]int64
	Pause   Pause
}
