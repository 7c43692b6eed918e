// Package notify tells the devices of a user what another one has changed.
//
// A change goes this way: [Notifier.Changed] notes its name; 200 ms later it is announced on
// the feed, together with all others of the same node of the cache; each service that has a
// stream watching the user hears the name, reads the record once, and sends it down the
// stream. Names carry nothing, so that a late, repeated or reordered one does no harm; where
// one may have been missed, the device is told to read again (resync).
package notify

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/run"
)

// Notifier announces the changes that its service makes, and serves the streams that watch
// users. Its methods may be called from many goroutines.
type Notifier struct {
	cfg      Config
	announce *announcer
	watchers *watchers // nil without a feed
}

// New returns a notifier that does nothing in the background until Run.
func New(cfg Config) *Notifier {
	if cfg.NodeOf == nil {
		cfg.NodeOf = func(string) string { return "" }
	}
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Notifier{cfg: cfg}
	if cfg.Feed != nil {
		n.announce, n.watchers = newAnnouncer(cfg), newWatchers(cfg)
	}
	return n
}

// Run announces changes and serves the feed until ctx is done. It ends after the requests
// do, so that the last change is announced too.
func (n *Notifier) Run(ctx context.Context) error {
	if n.watchers == nil {
		return nil
	}
	var g errgroup.Group
	g.Go(func() error { return n.announce.run(ctx) })
	g.Go(func() error { return n.watchers.run(ctx) })
	return g.Wait()
}

// Changed has records announced soon. The cost of each is that of an entry in a map.
func (n *Notifier) Changed(changes iter.Seq[history.Change]) {
	if n.announce != nil {
		n.announce.add(changes)
	}
}

// UserChanged notes that anything of a user's history may have changed.
func (n *Notifier) UserChanged(uid string) {
	n.Changed(slices.Values([]history.Change{{Key: history.UserKey(uid)}}))
}

// Leave sends the streams elsewhere. It may be called more than once.
func (n *Notifier) Leave() {
	if n.watchers != nil {
		n.watchers.leave()
	}
}
