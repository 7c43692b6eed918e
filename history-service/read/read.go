// Package read answers readers: pages, points, "continue watching" and settings, from the
// cache down to its floor and from the archive below it. It warms cold users up.
//
// A store that does not answer is an error, never an empty answer.
package read

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/stores"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
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

// Reader answers readers. Its methods may be called from many goroutines.
type Reader struct {
	cfg     Config
	metrics *metrics
	warm    *warmer
}

// New returns a reader. [Reader.Run] warms cold users up.
func New(cfg Config) *Reader {
	cfg.Deadline = run.Default(cfg.Deadline, 5*time.Second)
	cfg.Keep = run.Default(cfg.Keep, 1000)
	cfg.Warmers = run.Default(cfg.Warmers, 8)
	cfg.WarmRate = run.Default(cfg.WarmRate, 1000)
	if cfg.NodeOf == nil {
		cfg.NodeOf = func(string) string { return "" }
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registry)
	return &Reader{cfg: cfg, metrics: m, warm: newWarmer(cfg, m)}
}

// Run warms cold users until ctx is done.
func (r *Reader) Run(ctx context.Context) error { return r.warm.run(ctx) }

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

// bounded gives a request its deadline.
func (r *Reader) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.cfg.Deadline)
}

// Sizes of a page.
const (
	MaxPage     = 100
	defaultPage = 20
)

// maxTime bounds the times of a query, in Unix milliseconds: no event is as late, and the
// versions of later ones could not be told.
const maxTime = int64(1) << 50

// List reads a page, newest first: from the cache down to the user's floor, below
// it from the archive. When that does not answer, neither does List: a short page
// would say that there is no more.
func (r *Reader) List(ctx context.Context, req *historyv1.ListRequest) (*historyv1.ListResponse, error) {
	q, err := query(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	p, err := r.page(ctx, req.GetUid(), q)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	resp := &historyv1.ListResponse{HasMore: p.more}
	for _, it := range p.items {
		resp.Items = append(resp.Items, view.Item(it.Object, it.Record, r.cfg.Rules))
		if !req.GetRecords() {
			continue
		}
		whole, err := view.Whole(it.Record)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", it.Object, err)
		}
		resp.Records = append(resp.Records, whole)
	}
	if p.more {
		resp.Cursor = encodeCursor(req, p.end)
	}
	return resp, nil
}

func query(req *historyv1.ListRequest) (history.Query, error) {
	if err := history.ValidateUID(req.GetUid()); err != nil {
		return history.Query{}, err
	}
	if req.GetLimit() > MaxPage {
		return history.Query{}, history.Invalid("limit", "want 1 to 100")
	}
	if req.GetSinceMs() < 0 || req.GetUntilMs() < 0 {
		return history.Query{}, history.Invalid("since", "since and until want Unix milliseconds")
	}
	after, err := decodeCursor(req)
	limit := int(req.GetLimit())
	if limit == 0 {
		limit = defaultPage
	}
	return history.Query{
		After: after, Limit: limit, Type: req.GetType(),
		Since: min(req.GetSinceMs(), maxTime), Until: min(req.GetUntilMs(), maxTime),
	}, err
}

// cursors are opaque to clients: version, list and object, in base64.
var cursors = base64.RawURLEncoding

func encodeCursor(req *historyv1.ListRequest, c history.Cursor) string {
	return cursors.EncodeToString([]byte(strconv.FormatInt(int64(c.Version), 36) + "/" + list(req) + "/" + c.Object.String()))
}

// list names what a request lists: with a cursor of another user, type or time it would go
// on in the middle of nowhere.
func list(req *historyv1.ListRequest) string {
	name := fmt.Sprint(req.GetUid(), "/", req.GetType(), "/", req.GetSinceMs(), "/", req.GetUntilMs())
	return strconv.FormatUint(xxhash.Sum64String(name)>>32, 36)
}

// decodeCursor is the inverse; no text is the place before the newest. It fails
// with [history.ErrInvalid].
func decodeCursor(req *historyv1.ListRequest) (history.Cursor, error) {
	s := req.GetCursor()
	if s == "" {
		return history.Cursor{}, nil
	}
	bad := history.Invalid("cursor", "want one that a page came with")
	raw, err := cursors.DecodeString(s)
	if err != nil {
		return history.Cursor{}, bad
	}
	version, rest, _ := strings.Cut(string(raw), "/")
	name, object, _ := strings.Cut(rest, "/")
	v, err := strconv.ParseInt(version, 36, 64)
	if err != nil || v <= 0 {
		return history.Cursor{}, bad
	}
	if name != list(req) {
		return history.Cursor{}, history.Invalid("cursor", "it is of another list: user, type, since and until stay the same from page to page")
	}
	o, err := history.ParseObject(object)
	if err != nil {
		return history.Cursor{}, bad
	}
	return history.Cursor{Version: history.Version(v), Object: o}, nil
}
