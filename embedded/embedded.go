// Package embedded is Playhead within another Go program: the edge as an [http.Handler], the history as methods, and
// a store in a directory. It opens no port. Command playhead serve is the same with ports, limits and metrics.
package embedded

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
)

// Playhead is an open store. [Playhead.Run] must run while Edge or History are used.
type Playhead struct {
	Edge    http.Handler // serves /v1/, /openapi.json and /docs
	History *rpc.Server  // reads and writes any user's history

	parts []func(context.Context) error
	close func() error
}

// Open opens a store in dir, exclusively. secret signs the tokens (HS256) and has 32 bytes at least. Run closes the store.
func Open(dir string, secret []byte) (*Playhead, error) {
	tokens, err := token.NewVerifier(secret, "")
	if err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, pebble.Config{Alone: true})
	if err != nil {
		return nil, err
	}
	queue := memqueue.New(memqueue.Config{})
	held, err1 := aggregate.New(aggregate.Config{Publisher: queue, Max: 400_000})
	history, err2 := rpc.New(rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Aggregate: held, Queue: queue})
	archiver, err3 := archive.New(archive.Config{Cache: db.Cache(), Archive: db.Archive(), SweepAll: true})
	edge, err4 := api.New(api.Config{Service: history, Tokens: tokens})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	archiving := archiver.Generations(queue, archive.Loops{"consume": archiver.Consume, "sweep": archiver.Sweep})
	return &Playhead{
		Edge: edge, History: history,
		parts: []func(context.Context) error{history.Run, held.Run, archiving, db.Run}, close: db.Close,
	}, nil
}

// Run archives in the background until ctx is done, and closes the store.
func (p *Playhead) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range p.parts {
		g.Go(func() error { return part(ctx) })
	}
	return errors.Join(g.Wait(), p.close())
}
