package rpc

import (
	"context"
	"time"

	"github.com/playhead/playhead/history"
)

// herald tells of first sightings right away, in the background. What it does not get
// rid of stays owed, and the jobs announce it a little later.
type herald struct {
	cfg     Config
	metrics *metrics
	queue   chan []history.First
}

const (
	// heraldQueue bounds the batches that wait.
	heraldQueue = 1024
	// heraldWithin bounds one announcement. Together with the wait for the one before
	// it must be shorter than what the jobs wait, or both would announce.
	heraldWithin = 10 * time.Second
)

func newHerald(cfg Config, m *metrics) *herald {
	return &herald{cfg: cfg, metrics: m, queue: make(chan []history.First, heraldQueue)}
}

// add waits for nobody.
func (a *herald) add(firsts []history.First) {
	if len(firsts) == 0 {
		return
	}
	a.metrics.firsts.Add(float64(len(firsts)))
	select {
	case a.queue <- firsts:
	default:
	}
}

func (a *herald) run(ctx context.Context) error {
	for {
		select {
		case firsts := <-a.queue:
			a.announce(ctx, a.gather(firsts))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// gather adds what waits behind.
func (a *herald) gather(firsts []history.First) []history.First {
	for {
		select {
		case more := <-a.queue:
			firsts = append(firsts, more...)
		default:
			return firsts
		}
	}
}

func (a *herald) announce(ctx context.Context, firsts []history.First) {
	ctx, cancel := context.WithTimeout(ctx, heraldWithin)
	defer cancel()
	err := a.cfg.Announcer.Announce(ctx, firsts)
	if err == nil {
		err = a.cfg.Days.Announced(ctx, firsts)
	}
	if err != nil {
		a.metrics.notAnnounced.Add(float64(len(firsts)))
		a.cfg.Logger.Debug("first sightings are left to the jobs", "users", len(firsts), "error", err)
		return
	}
	a.metrics.announced.Add(float64(len(firsts)))
}
