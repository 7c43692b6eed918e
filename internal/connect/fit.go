package connect

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/playhead/playhead/history"
)

// fitEvery is how often an engine's settings are looked at: they change while it runs.
const fitEvery = 10 * time.Second

// Fit says how to ask an engine whether its settings let it keep what it acknowledges.
// [Engines.Watch] asks again and again. While the answer is no, the gauge of [Engines.Register]
// says so, and readiness fails unless that is allowed.
func (e *Engines) Fit(name string, fit func(context.Context) error, allowed bool) {
	one := e.named(name)
	one.fit, one.allowed = fit, allowed
}

// watchFit asks for the settings until ctx is done.
func (e *engine) watchFit(ctx context.Context, all *Engines) {
	t := time.NewTicker(fitEvery)
	defer t.Stop()
	for {
		if e.answered() { // before, Run asks
			e.lookFit(ctx, all)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookFit asks once. An engine that does not answer says nothing of its settings.
func (e *engine) lookFit(ctx context.Context, all *Engines) {
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := e.fit(asking)
	if errors.Is(err, history.ErrUnavailable) || ctx.Err() != nil {
		return
	}
	e.mu.Lock()
	was := e.unfit
	e.unfit = err
	e.mu.Unlock()
	switch {
	case err != nil && was == nil:
		all.Log.Error("engine may lose what it acknowledges", "engine", e.name, "err", err)
	case err == nil && was != nil:
		all.Log.Info("engine keeps what it acknowledges again", "engine", e.name)
	}
}

// settings returns why an engine's settings are not fit.
func (e *engine) settings() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unfit
}

// registerFit adds the gauge of one engine's settings.
func (e *engine) registerFit(reg prometheus.Registerer) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "playhead_engine_unfit", Help: "1 while an engine's settings let it lose what it has acknowledged.",
		ConstLabels: prometheus.Labels{"engine": e.name},
	}, func() float64 {
		if e.settings() != nil {
			return 1
		}
		return 0
	}))
}
