// Package allinone composes edge, service and job over the embedded adapters: one process, one data directory,
// no installation. Only the adapters differ: a heartbeat passes the same code as in a cluster.
package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc/test/bufconn"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/edge"
	"github.com/playhead/playhead/bff/flow"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/uplink"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-job/counts"
	"github.com/playhead/playhead/history-service/admin"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history-service/webhook"
	"github.com/playhead/playhead/history/memfeed"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
)

// Open opens the data directory, exclusively, and the ports. Run closes them.
func Open(ctx context.Context, cfg Config) (*Process, error) {
	p := &Process{cfg: cfg.withDefaults(), queue: memqueue.New(memqueue.Config{Capacity: share(1<<20, cfg.Memory)}), listeners: make(map[string]net.Listener)}
	if cfg.Breakable {
		p.faults = map[string]*flow.Fault{"job": {}, "archive": {}, "queue": {}}
	}
	if err := p.open(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *Process) open(ctx context.Context) (err error) {
	if IsMoved(p.cfg.Dir) {
		return fmt.Errorf("--data: %s has moved to the service that %s names: start the edge of that", p.cfg.Dir, filepath.Join(p.cfg.Dir, movedFile))
	}
	for flag, addr := range map[string]string{"rpc": p.cfg.RPC, "listen": p.cfg.HTTP, "admin": p.cfg.Admin} {
		if p.listeners[flag], err = run.Listen(ctx, flag, addr); err != nil {
			return err
		}
	}
	// Nothing is created before the ports are open.
	if err := AcceptBackup(ctx, p.cfg.Dir, p.cfg.Logger); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if err := p.openClock(ctx); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	metrics := counts.NewMetrics(p.cfg.Registry)
	counting := pebble.Counting{Types: p.cfg.Counted, Counted: metrics.Observe}
	if p.db, err = pebble.Open(p.cfg.Dir, pebble.Config{Alone: true, Counting: counting, Now: p.clock.Now, Horizon: p.clock.Horizon, Keep: p.cfg.Keep, CompactAbove: p.cfg.CompactAbove, Summary: p.cfg.Summary, Rules: p.cfg.Rules, Memory: p.cfg.Memory, Files: p.files().store, Logger: p.cfg.Logger, Registry: p.cfg.Registry}); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	p.counter = counts.New(counts.Config{Counters: p.db.Counters(), Metrics: metrics, Logger: p.cfg.Logger})
	if p.secret, err = signingSecret(p.cfg); err != nil {
		return err
	}
	p.tokens, err = token.Open(token.Config{Secret: p.secret, SecretFile: p.cfg.SecretFile, KeysFile: p.cfg.KeysFile, Issuer: p.cfg.Issuer, Audience: p.cfg.Audience, Logger: p.cfg.Logger})
	if err != nil {
		return err
	}
	p.inner = bufconn.Listen(64 << 10)
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return p.inner.DialContext(ctx) }
	if p.up, err = uplink.Open(uplink.Config{Services: []string{p.RPC()}, Dial: dial, Logger: p.cfg.Logger, Registry: p.cfg.Registry}); err != nil {
		return err
	}
	epochs, err := beginEpoch(p.cfg.Dir)
	if err != nil {
		return err
	}
	return p.compose(epochs)
}

func (p *Process) compose(epochs []string) (err error) {
	log, reg := p.cfg.Logger, p.cfg.Registry
	p.dead = &deadLetterFile{path: filepath.Join(p.cfg.Dir, deadFile)}
	p.held, err = aggregate.New(aggregate.Config{Publisher: p.publisher(), Hold: p.cfg.Hold, Max: share(400_000, p.cfg.Memory), Logger: log, Registry: reg})
	if err != nil {
		return err
	}
	p.service, err = rpc.New(rpc.Config{
		Cache: p.db.Cache(), Archive: p.archive(), Summaries: p.db.Archive(), Counters: p.db.Counters(), Counts: p.counter, Counted: p.cfg.Counted, Aggregate: p.held, Queue: p.publisher(), Feed: new(memfeed.Feed), Erasers: []admin.Eraser{p.db, p.db.Counters(), p.dead},
		Days: p.db.Days(), Announcer: dayLog{log}, Webhook: p.cfg.Webhook, Authorize: p.authorize, Edge: p.inner, Epochs: epochs, Now: p.clock.Now, Horizon: p.clock.Horizon,
		Keep: p.cfg.Keep, WarmRate: warmRate, Rules: p.cfg.Rules, Tracer: p.cfg.Tracer, Logger: log, Registry: reg,
	})
	if err != nil {
		return err
	}
	archiving := archive.Config{
		Cache: p.db.Cache(), Archive: p.archive(), Promoter: p.promoter(), Dead: p.dead, Days: p.db.Days(), Announcer: dayLog{log}, Counts: p.counter, Counted: p.cfg.Counted,
		SweepEvery: 5 * time.Second, SweepAge: 2 * p.cfg.Hold, SweepAll: true, Tracer: p.cfg.Tracer, Logger: log, Registry: reg,
	}
	if p.cfg.Plays {
		archiving.Plays, archiving.Promoter = p.db.Plays(), nil
	}
	p.archiver, err = archive.New(archiving)
	return err
}

// close closes whatever is open, if Run does not.
func (p *Process) close() error {
	var errs []error
	for _, lis := range p.listeners {
		if lis != nil {
			errs = append(errs, lis.Close())
		}
	}
	if p.up != nil {
		errs = append(errs, p.up.Close())
	}
	if p.db != nil {
		errs = append(errs, p.db.Close())
	}
	return errors.Join(errs...)
}

// dayLog logs first sightings of a day: a single process has no other system to inform.
type dayLog struct{ log *slog.Logger }

// Announce logs the number of users.
func (h dayLog) Announce(_ context.Context, firsts []history.First) error {
	h.log.Debug("first sightings announced", "users", len(firsts))
	return nil
}

// Run serves until ctx is done, then stops in data-flow order.
func (p *Process) Run(ctx context.Context) error {
	players, err := p.edge()
	if err != nil {
		return errors.Join(err, p.close())
	}
	g := run.Group{Drain: p.cfg.Drain, LameDuck: p.cfg.LameDuck, Log: p.cfg.Logger}
	admin := obs.NewAdmin(obs.AdminConfig{
		Listener: netutil.LimitListener(p.listeners["admin"], p.files().admin), Hosts: p.cfg.Hosts, Metrics: p.cfg.Registry, Log: p.cfg.Logger,
		Checks:   map[string]func(context.Context) error{"service": p.up.Ready, "store": p.db.Ready, "stopping": g.Check},
		Degraded: map[string]func(context.Context) error{"clock": p.clock.Check, "token keys": p.tokens.Check}, ConfirmClock: p.clock.Confirm, Terminate: p.cfg.Terminate, Hot: p.service.Hot,
		BackUp: func(ctx context.Context, dir, to string) (any, error) { return p.BackUp(ctx, dir, to) },
		Recount: func(ctx context.Context, dir string, objects []string, verify bool) (any, error) {
			return p.recount(ctx, dir, objects, verify)
		},
	})
	players.AddTo(&g)
	g.Add("uplink", time.Second, run.Closing(p.up.Close))
	g.Add("rpc", p.cfg.Drain/5, func(ctx context.Context) error {
		return p.service.Serve(ctx, netutil.LimitListener(p.listeners["rpc"], p.files().rpc), nil, p.cfg.Drain/8)
	})
	g.Add("warm", webhook.LastTries+time.Second/2, p.service.Run)
	g.Add("aggregate", p.cfg.Drain/8, p.held.Run)
	g.Add("job", p.cfg.Drain/8, p.breakable("job", p.archiver.Generations(p.queue, archive.Loops{
		"consume":  p.archiver.Consume,
		"sweep":    p.archiver.Sweep,
		"announce": p.archiver.Announce,
	})))
	g.Add("measure", time.Second, p.archiver.Measure())
	g.Add("expiry", time.Second, p.db.Run)
	g.Add("clock", time.Second, p.clock.Run)
	g.Add("store", 0, run.Closing(p.db.Close))
	g.Add("admin", 0, admin.Run)
	if p.cfg.Reload != nil {
		g.Add("reload", 0, run.Reloading(p.cfg.Logger, func() ([]string, error) { return p.cfg.Reload(players.SetUserRate) }))
	}
	return g.Run(ctx)
}

func (p *Process) edge() (*edge.Edge, error) {
	var plays api.Plays
	if p.cfg.Plays {
		plays = p.db.Plays()
	}
	return edge.New(edge.Config{
		Plays:   plays,
		Service: p.up, Tokens: p.tokens, Listener: p.listeners["listen"], Pages: true, Images: p.cfg.Images, Flow: p.flow(), Hosts: p.cfg.Hosts, Origins: p.cfg.Origins,
		Memory: p.cfg.Memory, MaxConnections: p.files().players, UserRate: p.cfg.UserRate, UserBurst: p.cfg.UserBurst, Drain: p.cfg.Drain * 5 / 16, Tracer: p.cfg.Tracer, Logger: p.cfg.Logger, Registry: p.cfg.Registry,
	})
}

// files are shares of the file descriptors.
type files struct{ store, rpc, admin, players int }

// files returns the shares. The rest is for the journal, tables written or read beyond the bound, and closing
// connections.
func (p *Process) files() files {
	all := p.cfg.Files
	f := files{store: min(all/4, 1000), rpc: min(all/16, 1024), admin: min(all/32, 64)}
	f.players = min(all-f.store-f.rpc-f.admin-min(all/4, 256), 10_000)
	return f
}

// roomy is the memory from which bounds need no reduction.
const roomy = 2 << 30

// share scales a bound down to little memory.
func share(most int, memory int64) int {
	if memory <= 0 || memory > roomy {
		return most
	}
	return int(float64(most) * float64(memory) / roomy)
}

// warmRate is the number of cold users warmed per second; in effect unlimited. The embedded archive usually
// knows without a read that a new user has no row. A cold user costs more: each new record is partial.
const warmRate = 1_000_000
