package allinone

import (
	"context"
	"errors"
	"time"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/limit"
	"github.com/playhead/playhead/bff/pages"
	"github.com/playhead/playhead/bff/server"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/bff/ws"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
)

// Run serves until ctx is done, then stops in the order in which data flows.
func (p *Process) Run(ctx context.Context) error {
	players, streams, err := p.edge()
	if err != nil {
		return errors.Join(err, p.close())
	}
	admin := obs.NewAdmin(obs.AdminConfig{
		Listener: p.doors["admin"], Metrics: p.cfg.Registry, Log: p.cfg.Logger,
		Checks: map[string]func(context.Context) error{"service": p.up.Ready, "store": p.db.Ready},
	})
	g := run.Group{Drain: p.cfg.Drain, Log: p.cfg.Logger}
	g.Add("players", p.cfg.Drain*3/16, players.Run)
	g.Add("streams", p.cfg.Drain/8, streams.Run)
	g.Add("uplink", time.Second, run.Closing(p.up.Close))
	g.Add("rpc", p.cfg.Drain/4, func(ctx context.Context) error {
		return p.service.Serve(ctx, p.doors["rpc"], nil, p.cfg.Drain/8)
	})
	g.Add("warm", time.Second, p.service.Run)
	g.Add("aggregate", p.cfg.Drain/8, p.held.Run)
	g.Add("job", p.cfg.Drain/8, p.job.Run)
	g.Add("expiry", time.Second, p.db.Run)
	g.Add("store", 0, run.Closing(p.db.Close))
	g.Add("admin", 0, admin.Run)
	return g.Run(ctx)
}

// edge returns the two doors for players: who comes with a request, and who stays.
func (p *Process) edge() (*server.Server, *ws.Handler, error) {
	log, reg := p.cfg.Logger, p.cfg.Registry
	tokens, err := token.NewVerifier(p.secret, p.cfg.Audience)
	if err != nil {
		return nil, nil, err
	}
	users := limit.New(p.cfg.UserRate, p.cfg.UserBurst) // one budget, whatever the door
	streams, err := ws.New(ws.Config{
		Service: p.up, Changes: p.up, Tokens: tokens, Limit: users, Origins: p.cfg.Origins, Drain: p.cfg.Drain / 16, Logger: log, Registry: reg,
	})
	if err != nil {
		return nil, nil, err
	}
	looks, err := pages.Routes()
	if err != nil {
		return nil, nil, err
	}
	handler, err := api.New(api.Config{
		Service: p.up, Tokens: tokens, Stream: streams.Upgrade, Pages: looks, Limit: users, Origins: p.cfg.Origins, Logger: log, Registry: reg,
	})
	if err != nil {
		return nil, nil, err
	}
	return server.New(server.Config{Handler: handler, Listener: p.doors["listen"], Drain: p.cfg.Drain / 8, Logger: log, Registry: reg}), streams, nil
}

// Token returns a token for a user, for trying things.
func (p *Process) Token(uid string, life time.Duration) (string, error) {
	return token.Mint(p.secret, uid, life)
}
