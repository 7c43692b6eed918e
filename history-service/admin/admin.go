// Package admin has the operators' calls on one user: erase everything, and move records from the future to now.
package admin

import (
	"context"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/write"
)

// Eraser is a store that can remove a user's data immediately, before its regular expiry.
type Eraser interface {
	// Held returns the number of the user's stored items by place, up to a time in Unix milliseconds, 0 for all.
	// Invisible records still in storage count too.
	Held(ctx context.Context, uid string, until int64) (map[string]int, error)
	// Erase removes those items. The caller has cleared the user up to that time in the cache. The store keeps the
	// clear mark, which hides late arrivals of erased data, and the pause. It may be repeated with the same time or
	// a later one.
	Erase(ctx context.Context, uid string, until int64) error
	// Remains describes, in sentences, where erased bytes stay until another process removes them.
	Remains(ctx context.Context) []string
}

// namespaceLister is an [Eraser] with namespaces of users, see [history.Class].
type namespaceLister interface {
	// Namespaces returns the uids of all class namespaces of a user with possible data, including those of unknown
	// classes.
	Namespaces(ctx context.Context, uid string) ([]string, error)
}

// Config configures an [Admin]. All fields are required.
type Config struct {
	Cache   history.Cache
	Archive history.Archive
	Writer  *write.Writer
	Rules   *history.Rulebook
	// Erasers are the stores covered by an erasure.
	Erasers []Eraser
}

// Admin erases and rebases users. Its methods are safe for concurrent use.
type Admin struct{ cfg Config }

// New returns an Admin.
func New(cfg Config) *Admin { return &Admin{cfg: cfg} }

// namespaces returns all namespaces of a user in any store, including those of removed classes.
func (a *Admin) namespaces(ctx context.Context, uid string) ([]string, error) {
	all := a.cfg.Rules.Namespaces(uid)
	for _, store := range a.cfg.Erasers {
		s, ok := store.(namespaceLister)
		if !ok {
			continue
		}
		some, err := s.Namespaces(ctx, uid)
		if err != nil {
			return nil, err
		}
		for _, namespace := range some {
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
	}
	return all, nil
}
