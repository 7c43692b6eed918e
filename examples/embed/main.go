// Command embed is a program that has Playhead in itself: its own mux serves the edge, and its own code reads the
// history. Records are kept in a directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/playhead/playhead/bff/api"
	"github.com/playhead/playhead/bff/token"
	"github.com/playhead/playhead/history-job/archive"
	"github.com/playhead/playhead/history-service/aggregate"
	"github.com/playhead/playhead/history-service/rpc"
	"github.com/playhead/playhead/history/memqueue"
	"github.com/playhead/playhead/history/pebble"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func main() {
	p, err := open("playhead-data", []byte(os.Getenv("TOKEN_SECRET")))
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(p.run(context.Background())) }()
	http.Handle("/v1/", p.edge)
	http.HandleFunc("/watched/{user}", func(w http.ResponseWriter, r *http.Request) { // add who may see it
		page, err := p.history.List(r.Context(), &historyv1.ListRequest{Uid: r.PathValue("user"), Limit: 20})
		fmt.Fprintf(w, "%d objects, %v\n", len(page.GetItems()), err)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil)) //nolint:gosec // an example
}

// embedded is Playhead without ports. run must run while edge or history are used.
type embedded struct {
	edge    http.Handler
	history *rpc.Server
	run     func(context.Context) error
}

// open opens a store in dir; secret signs the tokens, 32 bytes at least. run closes it.
func open(dir string, secret []byte) (*embedded, error) {
	tokens, err := token.NewVerifier(secret, "")
	if err != nil {
		return nil, err
	}
	db, err := pebble.Open(dir, pebble.Config{Alone: true})
	if err != nil {
		return nil, err
	}
	queue := memqueue.New(memqueue.Config{})
	held, err1 := aggregate.New(aggregate.Config{Publisher: queue})
	history, err2 := rpc.New(rpc.Config{Cache: db.Cache(), Archive: db.Archive(), Aggregate: held, Queue: queue})
	archiver, err3 := archive.New(archive.Config{Cache: db.Cache(), Archive: db.Archive(), SweepAll: true})
	edge, err4 := api.New(api.Config{Service: history, Tokens: tokens})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	archiving := archiver.Generations(queue, archive.Loops{"consume": archiver.Consume, "sweep": archiver.Sweep})
	return &embedded{edge, history, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, part := range []func(context.Context) error{history.Run, held.Run, archiving, db.Run} {
			g.Go(func() error { return part(ctx) })
		}
		return errors.Join(g.Wait(), db.Close())
	}}, nil
}
