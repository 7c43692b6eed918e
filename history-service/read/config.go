package read

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
)

// MaxTries bounds how often one thing is tried against other writers of it. Each failed try
// is another writer's success; so many in a row mean that something is wrong.
const MaxTries = 32

// Config configures a [Reader]. Zero values take the defaults; the stores have none.
type Config struct {
	Cache   stores.Cache
	Archive history.Archive
	// NodeOf names the node of the cache that has a user (default: there is one).
	NodeOf func(uid string) string
	// Life names the lives that the servers of the cache are in, see [Reader.Changes]. Nil
	// is for a cache that never loses anything.
	Life func(context.Context) (string, error)
	// Lives names, for a cache that has no Life, those of its files, the present one last: see [Reader.Changes].
	Lives []string
	// Deadline bounds a request whose caller set no earlier one (default 5 s).
	Deadline time.Duration
	// Keep is how many records of a user a warm-up puts into the cache (default
	// 1,000), Warmers how many users are warmed at once (default 8), and WarmRate how
	// many in a second (default 1,000).
	Keep, Warmers, WarmRate int
	// Rules say what counts as what, by type of object (default the standard ones).
	Rules    *history.Rulebook
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

type metrics struct{ warmed, warmsFailed, folded prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "playhead_read_" + name + "_total", Help: help})
	}
	m := &metrics{
		warmed:      counter("warmed_users", "Cold users filled from the archive."),
		warmsFailed: counter("failed_warm_ups", "Warm-ups that a store did not answer."),
		folded:      counter("archive_folds", "Records asked of the archive because a reader's page or point lacked its part."),
	}
	if reg != nil {
		reg.MustRegister(m.warmed, m.warmsFailed, m.folded)
	}
	return m
}
