// Package admin has the operators' calls on one user: erase everything, and move records from the future to now.
package admin

import (
	"context"
	"slices"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/write"
)

// Config configures an [Admin]. All fields are required.
type Config struct {
	Cache   history.Cache
	Archive history.Archive
	Writer  *write.Writer
	Rules   *history.Rulebook
	// Erasers are the stores covered by an erasure.
	Erasers []history.Eraser
}

// Admin erases and rebases users. Its methods are safe for concurrent use.
type Admin struct{ cfg Config }

// New returns an Admin.
func New(cfg Config) *Admin { return &Admin{cfg: cfg} }

// namespaces returns all namespaces of a user in any store, including those of removed classes.
func (a *Admin) namespaces(ctx context.Context, uid string) ([]string, error) {
	all := a.cfg.Rules.Namespaces(uid)
	for _, store := range a.cfg.Erasers {
		s, ok := store.(history.NamespaceLister)
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
