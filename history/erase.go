package history

import "context"

// Eraser is a store that can remove everything that it has of a user, at once and not in its own time.
type Eraser interface {
	// Held says by place how much the store has of a user of a time or before, in Unix milliseconds; 0 is of all
	// times. What is not visible any more, and still stored, is in it.
	Held(ctx context.Context, uid string, until int64) (map[string]int, error)
	// Erase removes that. The user was cleared up to that time in the cache, and the store keeps the clear mark: what
	// comes late of what was erased does not exist. It also keeps the pause. It may be called again, with the same
	// time or a later one.
	Erase(ctx context.Context, uid string, until int64) error
	// Remains says in sentences where bytes of what was erased are until something else removes them.
	Remains(ctx context.Context) []string
}
