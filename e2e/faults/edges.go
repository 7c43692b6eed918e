package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/internal/run"
)

const (
	edges      = 2
	edgeStops  = 3               // of each edge
	lameDuck   = 5 * time.Second // default of --lame-duck
	edgeDrain  = 20 * time.Second
	probeEvery = time.Second // of the balancer
	probeFails = 2           // failed probes in a row that take an edge out
)

// stoppedEdges stops edges behind a balancer with SIGTERM, in turn. An edge that the balancer has not taken out must
// accept connections, and one retry must suffice for each player.
func stoppedEdges(ctx context.Context, t *trial) error {
	b, err := t.stopEdges(ctx, lameDuck, t.retried)
	if err == nil && b.refused.Load() > 0 {
		err = errors.New("an edge left before the balancer could notice")
	}
	return err
}

// hastyEdges is the control of stoppedEdges: edges without a lame duck must refuse connections.
func hastyEdges(ctx context.Context, t *trial) error {
	b, err := t.stopEdges(ctx, 0, t.reported)
	if err == nil && b.refused.Load() == 0 {
		err = errors.New("no connection was refused by edges without a lame duck: the case edges would notice nothing")
	}
	return err
}

// stopEdges stops edges with SIGTERM, in turn, while all players report through a balancer.
func (t *trial) stopEdges(ctx context.Context, lame time.Duration, while func(context.Context, target, ...step) error) (*balancer, error) {
	if err := t.start(ctx, spec{}); err != nil {
		return nil, err
	}
	watch, end := context.WithCancel(ctx)
	defer end()
	b := &balancer{fresh: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var stops []step
	for i := range edges {
		u, c, err := t.stack.newEdge(ctx, watch, fmt.Sprintf("bff-%d", i), "--lame-duck", lame.String())
		if err == nil {
			err = u.awaitReady(ctx, 20*time.Second)
		}
		if err != nil {
			return nil, err
		}
		e := &balanced{unit: u, client: c}
		b.edges, stops = append(b.edges, e), append(stops, e.stop)
		t.stack.wg.Go(func() { e.probe(watch) })
	}
	var steps []step
	for range edgeStops {
		steps = append(steps, stops...)
	}
	err := while(ctx, b, append([]step{b.complete}, steps...)...)
	t.res.note("%d stops of an edge; %d connections were refused by an edge that was not out", len(steps), b.refused.Load())
	return b, err
}

// balancer is a target that spreads requests over its edges. Half of them use a new connection.
type balancer struct {
	edges []*balanced
	fresh *http.Client // without keep-alive

	requests, refused atomic.Int64
}

// balanced is an edge behind a balancer.
type balanced struct {
	unit   *unit
	client edgeClient
	in     atomic.Bool // gets requests
}

// probe takes the edge out after some failed probes, and in after one that succeeds.
func (e *balanced) probe(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; run.Sleep(ctx, probeEvery) {
		asking, cancel := context.WithTimeout(ctx, probeEvery)
		if failed++; e.unit.readyNow(asking) == nil {
			failed = 0
		}
		cancel()
		if failed == 0 || failed >= probeFails {
			e.in.Store(failed == 0)
		}
	}
}

// stop stops the edge, and waits until the supervisor has started it again and it gets requests.
func (e *balanced) stop(ctx context.Context) error {
	if err := e.unit.restart(ctx, lameDuck+edgeDrain); err != nil {
		return err
	}
	return e.awaitIn(ctx)
}

func (e *balanced) awaitIn(ctx context.Context) error {
	return process.Await(ctx, 20*time.Second, e.unit.name+" to get requests", func(context.Context) error {
		if !e.in.Load() {
			return errors.New("it is out")
		}
		return nil
	})
}

// complete waits until all edges get requests.
func (b *balancer) complete(ctx context.Context) error {
	for _, e := range b.edges {
		if err := e.awaitIn(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *balancer) apply(ctx context.Context, events []*event) ([]bool, error) {
	n := b.requests.Add(1)
	e, err := b.pick(int(n))
	if err != nil {
		return nil, err
	}
	c := e.client
	if n/edges%2 == 0 {
		c.client = b.fresh
	}
	acked, err := c.apply(ctx, events)
	if errors.Is(err, syscall.ECONNREFUSED) {
		b.refused.Add(1)
	}
	return acked, err
}

// pick returns the edges that are in by turns.
func (b *balancer) pick(n int) (*balanced, error) {
	for i := range b.edges {
		if e := b.edges[(n+i)%len(b.edges)]; e.in.Load() {
			return e, nil
		}
	}
	return nil, errors.New("no edge is in")
}
